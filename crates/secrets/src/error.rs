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
        /// Why the value is not usable.
        #[source]
        cause: Unusable,
    },
    /// The caller received a signal while waiting for a provider.
    #[error("cancelled by signal {signal} while a secret was waited for")]
    Cancelled { signal: i32 },
}

/// Why a provider has no usable value: completes "the provider …".
#[derive(Debug, thiserror::Error)]
pub enum Unusable {
    /// The host has no provider.
    #[error("is configured")]
    NoProvider,
    /// The text is not a slug.
    #[error("is not asked, because that is no slug")]
    NoSlug,
    /// The directory cannot be opened.
    #[error("cannot be opened: {0}")]
    Directory(Errno),
    /// The file does not exist.
    #[error("has no file {file}")]
    NoFile { file: String },
    /// The file cannot be read.
    #[error("has {file}, which cannot be read: {errno}")]
    Unreadable { file: String, errno: Errno },
    /// The file or one of its parents is a symbolic link.
    #[error("has {file}, which is a link or lies behind one")]
    Link { file: String },
    /// Not a regular file.
    #[error("has {file}, which is not a regular file")]
    NotRegular { file: String },
    /// Other users may read or write the file.
    #[error("has {file}, which others may read or change (mode {mode:04o})")]
    Shared { file: String, mode: u32 },
    /// Too long for an environment variable.
    #[error("gives more than {}", limit(&VALUE_BYTES_MAX))]
    TooLong,
    /// The variable does not exist.
    #[error("has no variable {variable}")]
    NoVariable { variable: String },
    /// The program cannot be started.
    #[error("cannot be started: {0}")]
    NotStarted(std::io::Error),
    /// The program cannot be monitored.
    #[error("cannot be waited for: {0}")]
    Lost(Errno),
    /// The program did not exit with status 0.
    #[error("ended with {0}")]
    Ended(String),
    /// The program timed out.
    #[error("gave no answer within {seconds} s and was killed")]
    Late { seconds: u64 },
    #[error("gives nothing")]
    Empty,
    /// The value contains a NUL byte, which no variable can hold.
    #[error("gives a value with a NUL byte, which no variable can hold")]
    Nul,
    /// The value has no such field.
    #[error("gives a value that is no JSON object with the text field `{field}`")]
    NoField { field: String },
    /// The caller requested an end.
    #[error("was not waited for any longer")]
    Interrupted,
    /// The caller received a signal.
    #[error("was not waited for after signal {signal}")]
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

    /// What the user can do.
    #[must_use]
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::NotGranted(refused) => Some(refused.line.clone()),
            Self::Unresolved {
                variable, cause, ..
            } => {
                let give = format!("--secret {variable}=env:{variable}");
                Some(match cause.remedy() {
                    Some(remedy) => format!("{remedy}, or give the value yourself: {give}"),
                    None => format!("give the value yourself: {give}"),
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
            Self::NoSlug => "a slug is such as `openai-api-key` or `prod/db-password`: 2 to 80 \
                             lower-case letters, digits and dashes"
                .to_owned(),
            Self::NoFile { file } => format!("write the value to {file} (mode 0600)"),
            Self::Link { .. } | Self::NotRegular { .. } => "put a regular file there".to_owned(),
            Self::Shared { file, .. } => format!("take others' rights away: chmod 600 {file}"),
            Self::NoVariable { variable } => format!("set {variable}"),
            Self::NotStarted(_) | Self::Ended(_) | Self::Late { .. } => {
                "run the program by hand to see what it says".to_owned()
            }
            _ => return None,
        })
    }
}

/// A path below the provider's directory, for messages.
pub(super) fn shown_file(directory: &std::path::Path, slug: &str) -> String {
    let path = directory.join(slug);
    escape(std::os::unix::ffi::OsStrExt::as_bytes(path.as_os_str()))
}
