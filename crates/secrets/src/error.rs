//! Errors of secrets. No message contains a secret value.

use rustix::io::Errno;

use crate::VALUE_BYTES_MAX;
use spec::inventory::NotGranted;
use spec::path::escape;
use spec::units::limit;

/// Why a secret is not provided.
#[derive(Debug, thiserror::Error)]
pub enum SecretError {
    /// The inventory does not grant the secret to this consumer.
    #[error(transparent)]
    NotGranted(Box<NotGranted>),
    /// No usable value is available on this host.
    #[error("the secret {variable} ({slug}) has no value here: {provider} {cause}")]
    Unresolved {
        variable: String,
        slug: String,
        provider: String,
        #[source]
        cause: Unusable,
    },
    /// The caller received a signal while waiting for a provider.
    #[error("cancelled by signal {signal} while waiting for a secret")]
    Cancelled { signal: i32 },
}

/// Why a provider returned no usable value. Completes "the provider …".
#[derive(Debug, thiserror::Error)]
pub enum Unusable {
    /// The host has no provider: completes "no provider".
    #[error("is configured")]
    NoProvider,
    #[error("was not queried: the name is not a valid slug")]
    NoSlug,
    #[error("cannot be opened: {0}")]
    Directory(Errno),
    #[error("has no file {file}")]
    NoFile { file: String },
    #[error("has {file}, which cannot be read: {errno}")]
    Unreadable { file: String, errno: Errno },
    #[error("has {file}, which is a link or is reached through one")]
    Link { file: String },
    #[error("has {file}, which is not a regular file")]
    NotRegular { file: String },
    #[error("has {file}, which other users may read or write (mode {mode:04o})")]
    Shared { file: String, mode: u32 },
    /// Too long for an environment variable.
    #[error("returned more than {}", limit(&VALUE_BYTES_MAX))]
    TooLong,
    #[error("has no variable {variable}")]
    NoVariable { variable: String },
    #[error("cannot be started: {0}")]
    NotStarted(std::io::Error),
    /// A system call that waits for the program or reads its output failed.
    #[error("cannot be waited for: {0}")]
    Lost(Errno),
    #[error("ended with {0}")]
    Ended(String),
    #[error("did not answer within {seconds} s and was killed")]
    TimedOut { seconds: u64 },
    #[error("returned an empty value")]
    Empty,
    #[error("returned a value with a NUL byte, which an environment variable cannot contain")]
    Nul,
    #[error("returned a value that is not a JSON object with the string field `{field}`")]
    NoField { field: String },
    /// [`Invocation::is_cancelled`](crate::program::Invocation::is_cancelled) returned true.
    #[error("was interrupted")]
    Interrupted,
    /// The caller received a signal.
    #[error("was interrupted by signal {signal}")]
    Cancelled { signal: i32 },
}

impl SecretError {
    /// Stable identifier of the error.
    #[must_use]
    pub const fn code(&self) -> &'static str {
        match self {
            Self::NotGranted(_) => "secret_not_granted",
            Self::Unresolved { .. } => "secret_unresolved",
            Self::Cancelled { .. } => "cancelled",
        }
    }

    /// What the user can change, if anything.
    #[must_use]
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::NotGranted(refused) => Some(refused.line.clone()),
            Self::Unresolved {
                variable, cause, ..
            } => {
                let flag = format!("pass the value: --secret {variable}=env:{variable}");
                Some(match cause.remedy() {
                    Some(remedy) => format!("{remedy}, or {flag}"),
                    None => flag,
                })
            }
            Self::Cancelled { .. } => None,
        }
    }
}

impl Unusable {
    fn remedy(&self) -> Option<String> {
        Some(match self {
            Self::NoProvider => "set secrets.provider in the host's configuration".to_owned(),
            Self::NoSlug => "write a slug such as `openai-api-key` or `prod/db-password`: 2 to 80 \
                             lower-case letters, digits and dashes"
                .to_owned(),
            Self::NoFile { file } => format!("write the value to {file} (mode 0600)"),
            Self::Link { .. } | Self::NotRegular { .. } => "put a regular file there".to_owned(),
            Self::Shared { file, .. } => format!("remove the rights of others: chmod 600 {file}"),
            Self::NoVariable { variable } => format!("set {variable}"),
            Self::NotStarted(_) | Self::Ended(_) | Self::TimedOut { .. } => {
                "run the program by hand to see its messages".to_owned()
            }
            _ => return None,
        })
    }
}

/// The path of `slug` below the provider's directory, for messages.
pub(super) fn escaped_path(directory: &std::path::Path, slug: &str) -> String {
    let path = directory.join(slug);
    escape(std::os::unix::ffi::OsStrExt::as_bytes(path.as_os_str()))
}
