//! Why a secret is not given out. No value is ever part of a text.

use rustix::io::Errno;

use crate::VALUE_BYTES_MAX;
use spec::inventory::NotGranted;
use spec::path::escape;
use spec::units::limit;

/// Why a secret is not given out.
#[derive(Debug, thiserror::Error)]
pub enum SecretError {
    /// The inventory does not let this consumer have it.
    #[error(transparent)]
    NotGranted(Box<NotGranted>),
    /// There is no usable value here.
    #[error("the secret {variable} ({slug}) has no value here: {provider} {cause}")]
    Unresolved {
        variable: String,
        slug: String,
        provider: String,
        /// Why it is none.
        #[source]
        cause: Unusable,
    },
    /// The caller's signal came while a provider was waited for.
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
    /// A directory that cannot be opened.
    #[error("cannot be opened: {0}")]
    Directory(Errno),
    /// There is no such file.
    #[error("has no file {file}")]
    NoFile { file: String },
    /// The file cannot be read.
    #[error("has {file}, which cannot be read: {errno}")]
    Unreadable { file: String, errno: Errno },
    /// A link stands at it or on the way to it.
    #[error("has {file}, which is a link or lies behind one")]
    Link { file: String },
    /// Something else than a regular file.
    #[error("has {file}, which is not a regular file")]
    NotRegular { file: String },
    /// Others may read or write it.
    #[error("has {file}, which others may read or change (mode {mode:04o})")]
    Shared { file: String, mode: u32 },
    /// Too long for a variable.
    #[error("gives more than {}", limit(&VALUE_BYTES_MAX))]
    TooLong,
    /// There is no such variable.
    #[error("has no variable {variable}")]
    NoVariable { variable: String },
    /// The program cannot be started.
    #[error("cannot be started: {0}")]
    NotStarted(std::io::Error),
    /// What the program does cannot be followed.
    #[error("cannot be waited for: {0}")]
    Lost(Errno),
    /// The program ended in another way than with 0.
    #[error("ended with {0}")]
    Ended(String),
    /// The program was too slow.
    #[error("gave no answer within {seconds} s and was killed")]
    Late { seconds: u64 },
    #[error("gives nothing")]
    Empty,
    /// It cannot be a variable.
    #[error("gives a value with a NUL byte, which no variable can hold")]
    Nul,
    /// The value has no such field.
    #[error("gives a value that is no JSON object with the text field `{field}`")]
    NoField { field: String },
    /// The caller wanted an end.
    #[error("was not waited for any longer")]
    Interrupted,
    /// The caller's signal came.
    #[error("was not waited for after signal {signal}")]
    Cancelled { signal: i32 },
}

impl SecretError {
    /// Stable name of the problem.
    #[must_use]
    pub const fn code(&self) -> &'static str {
        match self {
            Self::NotGranted(_) => "secret_not_granted",
            Self::Unresolved { .. } => "secret_unresolved",
            Self::Cancelled { .. } => "cancelled",
        }
    }

    /// What to do.
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
