//! Errors of `runner source`.

use rustix::io::Errno;

use crate::run::error::RunError;
use bundler::BundleError;
use sources::oci::error::OciError;
use spec::oci::reference::ReferenceError;
use spec::path::PathError;

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
    #[error("signals cannot be blocked: {0}")]
    Signals(Errno),
    #[error(transparent)]
    Record(#[from] RunError),
}

impl SourceError {
    pub(super) fn code(&self) -> &str {
        match self {
            Self::Build(error) => error.code(),
            Self::Oci(error) => error.code(),
            Self::Reference(error) => error.code(),
            Self::Path { .. } | Self::Epoch { .. } => "usage",
            Self::TargetPinned { .. } => "reference_invalid",
            Self::NotStored { .. } => "source_not_stored",
            Self::Signals(_) => "source_internal",
            Self::Record(error) => error.code(),
        }
    }

    pub(super) fn hint(&self) -> Option<String> {
        let text = match self {
            Self::Build(error) => return error.hint(),
            Self::Oci(error) => return error.hint(),
            Self::Reference(error) => return error.hint(),
            Self::Path { .. } => "give a path without `..`, other than the directory itself",
            Self::Epoch { .. } => "unset it, or set it to the output of `git log -1 --format=%ct`",
            Self::TargetPinned { .. } => "omit the digest: the registry gets that of the artifact",
            Self::NotStored { .. } => "`runner source list` shows what is in the store",
            Self::Record(error) => return error.hint(),
            Self::Signals(_) => return None,
        };
        Some(text.to_owned())
    }
}
