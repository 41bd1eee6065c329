//! Why a verb of `runner source` did not do what was asked.

use rustix::io::Errno;

use bundler::BundleError;
use sources::oci::error::OciError;
use spec::oci::reference::ReferenceError;
use spec::path::PathError;

/// Why a verb of `runner source` did not do what was asked.
#[derive(Debug, thiserror::Error)]
pub(super) enum SourceError {
    #[error(transparent)]
    Build(#[from] BundleError),
    #[error(transparent)]
    Oci(#[from] OciError),
    #[error(transparent)]
    Reference(#[from] ReferenceError),
    #[error("found {flag} `{found}`, expected a path beneath the directory: it {error}")]
    Path {
        flag: &'static str,
        found: String,
        error: PathError,
    },
    #[error("found SOURCE_DATE_EPOCH `{found}`, expected seconds since 1970")]
    Epoch { found: String },
    #[error("found `{found}`, expected HOST/REPOSITORY or HOST/REPOSITORY:TAG")]
    TargetPinned { found: String },
    #[error("`{found}` is neither an artifact of the store nor a directory in the OCI layout")]
    NotStored { found: String },
    #[error("no reference was given")]
    Nothing,
    #[error("signals cannot be held back: {0}")]
    Signals(Errno),
}

impl SourceError {
    /// Stable name of the cause.
    pub(super) fn code(&self) -> &'static str {
        match self {
            Self::Build(error) => error.code(),
            Self::Oci(error) => error.code(),
            Self::Reference(error) => error.code(),
            Self::Path { .. } | Self::Epoch { .. } | Self::Nothing => "usage",
            Self::TargetPinned { .. } => "reference_invalid",
            Self::NotStored { .. } => "source_not_stored",
            Self::Signals(_) => "source_internal",
        }
    }

    /// What to do about it, where something can be said.
    pub(super) fn hint(&self) -> Option<String> {
        let text = match self {
            Self::Build(error) => return error.hint(),
            Self::Oci(error) => return error.hint(),
            Self::Reference(error) => return error.hint(),
            Self::Path { .. } => "leave out `..` and the directory itself",
            Self::Epoch { .. } => "unset it, or give it what `git log -1 --format=%ct` prints",
            Self::TargetPinned { .. } => "what is sent has its own digest: leave it out",
            Self::NotStored { .. } => "`runner source list` shows what is in the store",
            Self::Nothing | Self::Signals(_) => return None,
        };
        Some(text.to_owned())
    }
}
