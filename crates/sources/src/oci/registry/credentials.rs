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
use spec::path::escape;
use sys::credentials::is_ours_or_roots;
use sys::file::{CallError, Unread, read_regular};

const FILE: &str = "config.json";
const FILE_BYTES_MAX: usize = 1 << 20;
const FOR_ALL: u32 = 0o0002;
/// Output of a helper without credentials, with a non-zero exit code (docker-credential-helpers,
/// credentials/error.go).
const NOTHING_FOUND: &[u8] = b"credentials not found in native keychain";
/// User name of a helper whose secret is an identity token.
const TOKEN_USER: &str = "<token>";

/// Credentials and their source. [`fmt::Debug`] shows the source only.
#[derive(Clone)]
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
struct Printed {
    #[serde(default)]
    username: String,
    #[serde(default)]
    secret: String,
}

/// Finds the credentials for a repository; `None` without any.
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
    let refusal = Refusal {
        registry: &reference.registry,
        origin: shown(&path),
    };
    let Some(config) = read(&path, &refusal)? else {
        return Ok(None);
    };
    let helper = config.helper(&reference.registry);
    let is_own = helper.as_ref().is_some_and(|helper| helper.is_own);
    if let Some(helper) = helper
        && let Some(found) = ask(&helper, reference, connection, &refusal)?
    {
        return Ok(Some(found));
    }
    if is_own {
        return Ok(None);
    }
    let login = config
        .login(&reference.registry, &reference.repository)
        .map_err(|problem| refusal.error(problem, None))?;
    Ok(login.map(|login| Credentials {
        login,
        origin: refusal.origin.clone(),
    }))
}

struct Refusal<'registry> {
    registry: &'registry str,
    origin: String,
}

impl Refusal<'_> {
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
fn read(path: &Path, refusal: &Refusal<'_>) -> Result<Option<DockerConfig>, OciError> {
    let failed = |call, errno| {
        let source = CallError::new(call, shown(path), errno);
        refusal.error("cannot be read".to_owned(), Some(source))
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
        return Err(refusal.error(problem, None));
    }
    if status.st_mode & FOR_ALL != 0 {
        let problem = format!(
            "is a file with mode {:04o}, expected one that is not writable for others",
            status.st_mode & 0o7777
        );
        return Err(refusal.error(problem, None));
    }
    let bytes = read_regular(file, FILE_BYTES_MAX).map_err(|unread| match unread {
        Unread::Stat(errno) => failed("fstat", errno),
        Unread::Read(errno) => failed("read", errno),
        Unread::NotRegular => refusal.error("is not a regular file".to_owned(), None),
        Unread::TooLarge => refusal.error("has more than 1 MiB".to_owned(), None),
    })?;
    DockerConfig::parse(&bytes)
        .map(Some)
        .map_err(|problem| refusal.error(problem, None))
}

fn ask(
    helper: &Helper<'_>,
    reference: &Reference,
    connection: &Connection,
    file: &Refusal<'_>,
) -> Result<Option<Credentials>, OciError> {
    if !helper.is_name() {
        let name = escape(helper.name.as_bytes());
        let problem = format!("names the program `docker-credential-{name}`, expected a name");
        return Err(file.error(problem, None));
    }
    let program = format!("docker-credential-{}", helper.name);
    let refusal = Refusal {
        registry: &reference.registry,
        origin: format!("`{program}`"),
    };
    let observer = &connection.observer;
    let said = program::run(&Invocation {
        argv: &[program, "get".to_owned()],
        input: helper.server.as_bytes(),
        environment: &connection.environment,
        timeout: connection.timeouts.program,
        signals: None,
        is_cancelled: &|| observer.is_cancelled(),
    });
    let said = said.map_err(|unusable| match unusable {
        Unusable::Interrupted => OciError::Cancelled {
            during: "a credential helper was asked",
        },
        unusable => refusal.error(unusable.to_string(), None),
    })?;
    let output = said.stdout.bytes();
    if said.status.code() != Some(0) {
        return match output.trim_ascii().starts_with(NOTHING_FOUND) {
            true => Ok(None),
            false => {
                let ended = program::describe_status(said.status);
                Err(refusal.error(format!("ended with {ended}"), None))
            }
        };
    }
    let printed: Printed = serde_json::from_slice(output).map_err(|_text| {
        let problem = "did not print a JSON object with the texts `Username` and `Secret`";
        refusal.error(problem.to_owned(), None)
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
        origin: refusal.origin,
    }))
}

fn shown(path: &Path) -> String {
    format!("`{}`", escape(path.as_os_str().as_encoded_bytes()))
}
