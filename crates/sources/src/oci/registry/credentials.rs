//! Lookup of registry credentials, once, on the first `401`.

use std::fmt;
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use serde::Deserialize;

use crate::oci::error::OciError;
use crate::oci::registry::Connection;
use crate::oci::registry::docker_config::{DockerConfig, Helper, Login};
use crate::oci::registry::error::RegistryError;
use secrets::Unusable;
use secrets::program::{self, Invocation};
use spec::oci::reference::Reference;
use spec::path::{escape, escape_path};
use sys::allocator::keep_from_children;
use sys::credentials::is_ours_or_roots;
use sys::file::{CallError, Unread, read_regular};

const FILE: &str = "config.json";
const FILE_BYTES_MAX: usize = 1 << 20;
const WRITABLE_FOR_OTHERS: u32 = 0o0002;
/// What a helper without credentials prints, with a non-zero exit code (docker-credential-helpers,
/// credentials/error.go).
const NOT_FOUND: &[u8] = b"credentials not found in native keychain";
/// User name of a helper whose secret is an identity token.
const TOKEN_USER: &str = "<token>";

/// Credentials and their source. [`fmt::Debug`] shows the source only.
pub(super) struct Credentials {
    pub(super) login: Login,
    pub(super) origin: String,
}

impl fmt::Debug for Credentials {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Credentials(of {})", self.origin)
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct HelperOutput {
    #[serde(default)]
    username: String,
    #[serde(default)]
    secret: String,
}

/// Finds the credentials for a repository; `None` without any. No process that is forked later has them.
///
/// # Errors
/// [`RegistryError::Credentials`]: the file or a helper is unusable; [`OciError::Cancelled`].
pub(super) fn find(
    reference: &Reference,
    connection: &Connection,
) -> Result<Option<Credentials>, OciError> {
    let Some(directory) = &connection.docker_config else {
        return Ok(None);
    };
    let path = directory.join(FILE);
    let file = CredentialSource {
        registry: &reference.registry,
        origin: format!("`{}`", escape_path(&path)),
    };
    let Some(config) = keep_from_children(|| read_config(&path, &file))? else {
        return Ok(None);
    };
    let helper = config.helper(&reference.registry);
    let is_own = helper.as_ref().is_some_and(|helper| helper.is_own);
    if let Some(helper) = helper
        && let Some(found) = run_helper(&helper, connection, &file)?
    {
        return Ok(Some(found));
    }
    if is_own {
        return Ok(None);
    }
    let login = keep_from_children(|| config.login(&reference.registry, &reference.repository));
    let login = login.map_err(|problem| file.error(problem, None))?;
    Ok(login.map(|login| Credentials {
        login,
        origin: file.origin.clone(),
    }))
}

/// The file or the helper that has the credentials of `registry`.
struct CredentialSource<'registry> {
    registry: &'registry str,
    origin: String,
}

impl CredentialSource<'_> {
    fn error(&self, problem: String, source: Option<CallError>) -> OciError {
        RegistryError::Credentials {
            registry: self.registry.to_owned(),
            origin: self.origin.clone(),
            problem,
            source,
        }
        .into()
    }
}

/// Reads the file, if it exists. Refuses one that others can write: it may name a program to run.
fn read_config(
    path: &Path,
    source: &CredentialSource<'_>,
) -> Result<Option<DockerConfig>, OciError> {
    let failed = |call, errno| {
        let cause = CallError::new(call, escape_path(path), errno);
        source.error("cannot be read".to_owned(), Some(cause))
    };
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    let file: OwnedFd = match rustix::fs::open(path, flags, Mode::empty()) {
        Ok(file) => file,
        Err(Errno::NOENT | Errno::NOTDIR) => return Ok(None),
        Err(errno) => return Err(failed("open", errno)),
    };
    let status = rustix::fs::fstat(&file).map_err(|errno| failed("fstat", errno))?;
    if !is_ours_or_roots(status.st_uid) {
        let problem = format!(
            "is a file of uid {}, expected one of this user or of root",
            status.st_uid
        );
        return Err(source.error(problem, None));
    }
    if status.st_mode & WRITABLE_FOR_OTHERS != 0 {
        let problem = format!(
            "is a file with mode {:04o}, expected one that is not writable for others",
            status.st_mode & 0o7777
        );
        return Err(source.error(problem, None));
    }
    let bytes = read_regular(file, FILE_BYTES_MAX).map_err(|unread| match unread {
        Unread::Stat(errno) => failed("fstat", errno),
        Unread::Read(errno) => failed("read", errno),
        Unread::NotRegular => source.error("is not a regular file".to_owned(), None),
        Unread::TooLarge => source.error("has more than 1 MiB".to_owned(), None),
    })?;
    DockerConfig::parse(&bytes)
        .map(Some)
        .map_err(|problem| source.error(problem, None))
}

fn run_helper(
    helper: &Helper<'_>,
    connection: &Connection,
    file: &CredentialSource<'_>,
) -> Result<Option<Credentials>, OciError> {
    if !helper.has_valid_name() {
        let name = escape(helper.name.as_bytes());
        let problem = format!(
            "names the program `docker-credential-{name}`, expected letters, digits, `-`, `_` and `.`"
        );
        return Err(file.error(problem, None));
    }
    let program = format!("docker-credential-{}", helper.name);
    let source = CredentialSource {
        registry: file.registry,
        origin: format!("`{program}`"),
    };
    let observer = &connection.observer;
    let answer = program::run(&Invocation {
        argv: &[program, "get".to_owned()],
        input: helper.server.as_bytes(),
        environment: &connection.environment,
        timeout: connection.timeouts.program,
        signals: None,
        is_cancelled: &|| observer.is_cancelled(),
    });
    let answer = answer.map_err(|unusable| match unusable {
        Unusable::Interrupted => OciError::Cancelled {
            during: "waiting for a credential helper",
        },
        unusable => source.error(unusable.to_string(), None),
    })?;
    let output = answer.stdout.bytes();
    if answer.status.code() != Some(0) {
        if output.trim_ascii().starts_with(NOT_FOUND) {
            return Ok(None);
        }
        let status = program::describe_status(answer.status);
        return Err(source.error(format!("ended with {status}"), None));
    }
    let printed = keep_from_children(|| serde_json::from_slice::<HelperOutput>(output));
    let printed = printed.map_err(|_text| {
        let problem = "did not print a JSON object with the strings `Username` and `Secret`";
        source.error(problem.to_owned(), None)
    })?;
    if printed.secret.is_empty() {
        return Ok(None);
    }
    let login = match printed.username.as_str() {
        TOKEN_USER => Login::Identity(printed.secret),
        _ => Login::Password {
            user: printed.username,
            password: printed.secret,
        },
    };
    Ok(Some(Credentials {
        login,
        origin: source.origin,
    }))
}
