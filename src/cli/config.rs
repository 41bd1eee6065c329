//! Reads the configuration files and merges them into the host policy.
//!
//! In order: `/etc/runner/config.yaml`, the user's `runner/config.yaml` below `XDG_CONFIG_HOME`
//! or `~/.config` (not for uid 0), the file of `--policy`. The first two may be missing.
//! [`host_config`] parses one file; [`merge`] defines what a later file may change.
//!
//! A file may name programs that are started outside of the sandbox: only root and the caller may be
//! able to change it. The file of `--policy` is checked for uid 0 only: others name files of checkouts,
//! which their group may write.

use std::fs::{File, Metadata};
use std::io::Read as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use rustix::fs::{FileType, Mode, OFlags};

use crate::cli::context::ProcessContext;
use spec::host_config::{self, InvalidConfig, Statement};
use spec::host_policy::{DuplicateImage, ForbiddenGrant, HostPolicy, check_images, merge};
use spec::path::{escape_path, quoted};
use spec::report::ErrorReport;

const FILE_BYTES_MAX: u64 = 1 << 20;
/// f_type of pipes without a name (statfs(2)).
const PIPEFS_MAGIC: i64 = 0x5049_5045;

/// Names of files are escaped.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    #[error("the configuration file {file} cannot be read")]
    Unreadable {
        file: String,
        #[source]
        source: std::io::Error,
    },
    #[error("the configuration file {file} is larger than 1 MiB")]
    TooLarge { file: String },
    #[error("the configuration file {file} cannot be trusted: {object} {problem}")]
    Untrusted {
        file: String,
        /// The file or its directory.
        object: String,
        problem: String,
        hint: String,
    },
    #[error(transparent)]
    Invalid(#[from] InvalidConfig),
    #[error("{again}: the image `{id}` is in {first} already; neither may replace the other")]
    ImageTwice {
        id: String,
        first: String,
        again: String,
    },
}

impl ConfigError {
    #[must_use]
    pub fn report(&self) -> ErrorReport {
        let (code, hint) = match self {
            Self::Unreadable { .. } => ("policy_unreadable", None),
            Self::TooLarge { .. } => ("policy_invalid", None),
            Self::Untrusted { hint, .. } => ("policy_untrusted", Some(hint.clone())),
            Self::ImageTwice { .. } => (
                "policy_invalid",
                Some("give one of the two another id".to_owned()),
            ),
            Self::Invalid(invalid) => ("policy_invalid", invalid.hint.clone()),
        };
        let source_line = match self {
            Self::Invalid(invalid) => invalid.source_line.clone(),
            _ => None,
        };
        ErrorReport {
            source_line,
            ..ErrorReport::of(code, self, hint)
        }
    }
}

/// The host policy for this caller, and the grants that an earlier file denies.
///
/// # Errors
/// A file that cannot be read or parsed, or a missing file of `--policy`.
pub fn load(
    context: &ProcessContext,
    policy: Option<&Path>,
) -> Result<(HostPolicy, Vec<ForbiddenGrant>), ConfigError> {
    Ok(merge(&statements(context, policy)?))
}

/// The statements of each file, earliest first.
///
/// # Errors
/// As [`load`].
pub fn statements(
    context: &ProcessContext,
    policy: Option<&Path>,
) -> Result<Vec<Statement>, ConfigError> {
    let mut statements = Vec::new();
    for file in context.config_files() {
        statements.extend(read(&file, true, Some(context.uid))?);
    }
    if let Some(file) = policy {
        let owner = (context.uid == 0).then_some(0);
        statements.extend(read(file, false, owner)?);
    }
    check_images(&statements).map_err(|DuplicateImage { id, first, again }| {
        ConfigError::ImageTwice { id, first, again }
    })?;
    Ok(statements)
}

/// `owner`: who may own the file, besides root; `None`: anybody.
fn read(
    path: &Path,
    may_be_missing: bool,
    owner: Option<u32>,
) -> Result<Option<Statement>, ConfigError> {
    let file = escape_path(path);
    match read_bytes(path, may_be_missing, owner)? {
        Some(bytes) => Ok(Some(host_config::parse(&file, &bytes)?)),
        None => Ok(None),
    }
}

/// As [`read`], without parsing it.
pub(super) fn read_bytes(
    path: &Path,
    may_be_missing: bool,
    owner: Option<u32>,
) -> Result<Option<Vec<u8>>, ConfigError> {
    let file = escape_path(path);
    let opened = match open(path) {
        Err(error) if may_be_missing && is_missing(&error) => return Ok(None),
        other => other,
    };
    let read = opened.and_then(|opened| Ok((opened.metadata()?, read_small(opened)?)));
    match read {
        Ok((status, Some(bytes))) => {
            if let Some(owner) = owner {
                check_owner(path, status, owner)?;
            }
            Ok(Some(bytes))
        }
        Ok((_, None)) => Err(ConfigError::TooLarge { file }),
        Err(source) => Err(ConfigError::Unreadable { file, source }),
    }
}

/// Checks that only root and `owner` can change the file at `path`, and replace it in its directory or
/// in that of its link's target.
fn check_owner(path: &Path, status: Metadata, owner: u32) -> Result<(), ConfigError> {
    let named = std::path::absolute(path).unwrap_or_else(|_unknown| path.to_owned());
    let real = path.canonicalize().unwrap_or_else(|_no_path| named.clone());
    let mut directories = vec![named.parent(), real.parent()];
    directories.dedup();
    let mut objects = vec![(real.as_path(), status)];
    for directory in directories.into_iter().flatten() {
        if let Ok(status) = directory.metadata() {
            objects.push((directory, status));
        }
    }
    // In a sticky directory others can neither replace nor remove the file.
    let is_writable = |status: &Metadata| {
        status.mode() & 0o022 != 0 && !(status.is_dir() && status.mode() & 0o1000 != 0)
    };
    for (object, status) in &objects {
        let (problem, hint) = if ![0, owner].contains(&status.uid()) {
            let sudo = if owner == 0 { "" } else { "sudo " };
            let expected = if owner == 0 { "root" } else { "you or root" };
            (
                format!("belongs to uid {}, expected {expected}", status.uid()),
                format!(
                    "if you trust what it says: {sudo}chown {owner} {}",
                    quoted(&escape_path(object))
                ),
            )
        } else if is_writable(status) {
            let all = objects.iter().filter(|(_, status)| is_writable(status));
            let all: Vec<_> = all.map(|(path, _)| quoted(&escape_path(path))).collect();
            (
                format!(
                    "can be changed by other users (mode {:04o})",
                    status.mode() & 0o7777
                ),
                format!("chmod go-w {}", all.join(" ")),
            )
        } else {
            continue;
        };
        return Err(ConfigError::Untrusted {
            file: escape_path(path),
            object: escape_path(object),
            problem,
            hint,
        });
    }
    Ok(())
}

/// Opens a file or a pipe that the caller has open, such as `<(…)` of a shell. Another FIFO could block.
pub(super) fn open(path: &Path) -> std::io::Result<File> {
    check_kind(path)?;
    // O_NONBLOCK: the file may have been replaced by a FIFO.
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    let file = rustix::fs::open(path, flags, Mode::empty())?;
    rustix::fs::fcntl_setfl(&file, OFlags::empty())?;
    Ok(file.into())
}

/// Checks, without opening the file, that [`open`] would accept its kind.
pub(super) fn check_kind(path: &Path) -> std::io::Result<()> {
    let kind = FileType::from_raw_mode(rustix::fs::stat(path)?.st_mode);
    let is_accepted = match kind {
        FileType::RegularFile | FileType::CharacterDevice => true,
        FileType::Fifo => rustix::fs::statfs(path)?.f_type == PIPEFS_MAGIC,
        _ => false,
    };
    if is_accepted {
        return Ok(());
    }
    let kind = sys::file::type_name(kind);
    Err(std::io::Error::other(format!(
        "it is {kind}, expected a regular file"
    )))
}

/// Reads a file or a pipe; `None` if it is larger than 1 MiB.
pub(super) fn read_small(file: File) -> std::io::Result<Option<Vec<u8>>> {
    let mut bytes = Vec::new();
    file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes)?;
    let is_small = u64::try_from(bytes.len()).is_ok_and(|length| length <= FILE_BYTES_MAX);
    Ok(is_small.then_some(bytes))
}

fn is_missing(error: &std::io::Error) -> bool {
    matches!(
        error.kind(),
        std::io::ErrorKind::NotFound | std::io::ErrorKind::NotADirectory
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_policy_is_an_error_and_a_missing_configuration_is_none() {
        let context = ProcessContext {
            variables: [("HOME".into(), "/nonexistent".into())].into(),
            uid: 1000,
            ..ProcessContext::default()
        };
        let (policy, forbidden) = load(&context, None).expect("nothing to read");
        assert_eq!(policy, HostPolicy::default());
        assert!(forbidden.is_empty());
        let error = load(&context, Some(Path::new("/nonexistent/policy"))).expect_err("missing");
        assert_eq!(error.report().code, "policy_unreadable");
        assert!(error.to_string().contains("/nonexistent/policy"), "{error}");
    }

    #[test]
    fn an_image_of_two_files_is_refused_with_both_names() {
        let directory = tempfile::tempdir().expect("a directory");
        let image = "images: [{ id: a, languages: [node], cost_tier: 0 }]\n";
        std::fs::create_dir(directory.path().join("runner")).expect("made");
        std::fs::write(directory.path().join("runner/config.yaml"), image).expect("written");
        let flag = directory.path().join("policy.yaml");
        std::fs::write(&flag, image).expect("written");
        let context = ProcessContext {
            variables: [("XDG_CONFIG_HOME".into(), directory.path().into())].into(),
            uid: rustix::process::geteuid().as_raw().max(1),
            ..ProcessContext::default()
        };
        let error = load(&context, Some(&flag)).expect_err("twice");
        assert_eq!(error.report().code, "policy_invalid");
        let message = error.to_string();
        assert!(message.contains("policy.yaml: the image `a`"), "{message}");
        assert!(message.contains("runner/config.yaml already"), "{message}");
    }

    #[test]
    fn the_file_of_the_flag_cannot_loosen_the_users() {
        let directory = tempfile::tempdir().expect("a directory");
        let users = directory.path().join("runner");
        std::fs::create_dir(&users).expect("made");
        std::fs::write(
            users.join("config.yaml"),
            "maxima: { memory: 1g }\ndeny_grants: [egress]\n",
        )
        .expect("written");
        let flag = directory.path().join("policy.yaml");
        std::fs::write(&flag, "maxima: { memory: 8g }\ngrants: [egress, env]\n").expect("written");
        let context = ProcessContext {
            variables: [("XDG_CONFIG_HOME".into(), directory.path().into())].into(),
            uid: rustix::process::geteuid().as_raw().max(1),
            ..ProcessContext::default()
        };
        let (policy, forbidden) = load(&context, Some(&flag)).expect("readable");
        assert_eq!(policy.maxima.memory_bytes.value, 1 << 30);
        assert!(policy.grants.env && !policy.grants.egress);
        assert_eq!(forbidden[0].grant, "egress");
        assert!(forbidden[0].forbidden_by.ends_with("runner/config.yaml"));
    }
}
