//! The configuration files: found, read and merged into the host policy.
//!
//! In order: `/etc/runner/config.yaml`, the user's `runner/config.yaml` below `XDG_CONFIG_HOME`
//! or `~/.config` (not for uid 0), the file of `--policy`. The first two may be missing.
//! [`host_config`] reads one of them; [`merge`] says what a later file may change.

use std::io::Read as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use crate::cli::surroundings::Surroundings;
use spec::host_config::{self, InvalidConfig, Statement};
use spec::host_policy::{DuplicateImage, ForbiddenGrant, HostPolicy, check_images, merge};
use spec::path::escape;
use spec::report::ErrorReport;

const FILE_BYTES_MAX: u64 = 1 << 20;

/// Why the configuration cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// It is there, or was asked for, and cannot be read.
    #[error("the configuration file {file} cannot be read")]
    Unreadable {
        file: String,
        #[source]
        source: std::io::Error,
    },
    /// Larger than 1 MiB.
    #[error("the configuration file {file} is larger than 1 MiB")]
    TooLarge { file: String },
    #[error(transparent)]
    Invalid(#[from] InvalidConfig),
    /// An image template that is there already.
    #[error("{again}: the image `{id}` is in {first} already; neither may replace the other")]
    ImageTwice {
        id: String,
        /// The file that states it first, escaped.
        first: String,
        /// The file that states it again, escaped.
        again: String,
    },
}

impl ConfigError {
    /// The error as the report has it.
    #[must_use]
    pub fn report(&self) -> ErrorReport {
        let (code, hint) = match self {
            Self::Unreadable { .. } => ("policy_unreadable", None),
            Self::TooLarge { .. } => ("policy_invalid", None),
            Self::ImageTwice { .. } => (
                "policy_invalid",
                Some("give one of the two another id".to_owned()),
            ),
            Self::Invalid(invalid) => ("policy_invalid", invalid.hint.clone()),
        };
        ErrorReport {
            code: code.to_owned(),
            message: spec::report::with_causes(self),
            hint,
        }
    }
}

/// The policy of this host for this caller, and the grants that did not count.
///
/// # Errors
/// A file that is there and cannot be read or understood; a missing one of `--policy`.
pub fn load(
    surroundings: &Surroundings,
    policy: Option<&Path>,
) -> Result<(HostPolicy, Vec<ForbiddenGrant>), ConfigError> {
    Ok(merge(&statements(surroundings, policy)?))
}

/// What each of the files states, earliest first.
///
/// # Errors
/// As [`load`].
pub fn statements(
    surroundings: &Surroundings,
    policy: Option<&Path>,
) -> Result<Vec<Statement>, ConfigError> {
    let mut statements = Vec::new();
    for file in surroundings.config_files() {
        statements.extend(read(&file, true)?);
    }
    if let Some(file) = policy {
        statements.extend(read(file, false)?);
    }
    check_images(&statements).map_err(|DuplicateImage { id, first, again }| {
        ConfigError::ImageTwice { id, first, again }
    })?;
    Ok(statements)
}

fn read(path: &Path, may_be_missing: bool) -> Result<Option<Statement>, ConfigError> {
    let file = escape(path.as_os_str().as_bytes());
    let opened = match std::fs::File::open(path) {
        Err(error) if may_be_missing && is_missing(&error) => return Ok(None),
        other => other,
    };
    let mut bytes = Vec::new();
    opened
        .and_then(|opened| opened.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes))
        .map_err(|source| ConfigError::Unreadable {
            file: file.clone(),
            source,
        })?;
    if FILE_BYTES_MAX < u64::try_from(bytes.len()).unwrap_or(u64::MAX) {
        return Err(ConfigError::TooLarge { file });
    }
    Ok(Some(host_config::parse(&file, &bytes)?))
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
        let surroundings = Surroundings {
            variables: [("HOME".into(), "/nonexistent".into())].into(),
            uid: 1000,
            ..Surroundings::default()
        };
        let (policy, forbidden) = load(&surroundings, None).expect("nothing to read");
        assert_eq!(policy, HostPolicy::default());
        assert!(forbidden.is_empty());
        let error =
            load(&surroundings, Some(Path::new("/nonexistent/policy"))).expect_err("missing");
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
        let surroundings = Surroundings {
            variables: [("XDG_CONFIG_HOME".into(), directory.path().into())].into(),
            uid: 1000,
            ..Surroundings::default()
        };
        let error = load(&surroundings, Some(&flag)).expect_err("twice");
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
        let surroundings = Surroundings {
            variables: [("XDG_CONFIG_HOME".into(), directory.path().into())].into(),
            uid: 1000,
            ..Surroundings::default()
        };
        let (policy, forbidden) = load(&surroundings, Some(&flag)).expect("readable");
        assert_eq!(policy.maxima.memory_bytes.value, 1 << 30);
        assert!(policy.grants.env && !policy.grants.egress);
        assert_eq!(forbidden[0].grant, "egress");
        assert!(forbidden[0].forbidden_by.ends_with("runner/config.yaml"));
    }
}
