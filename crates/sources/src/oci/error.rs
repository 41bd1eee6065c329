//! Errors of OCI operations.

use crate::oci::artifact::ArtifactProblem;
use crate::oci::layers::ImageProblem;
use crate::oci::layout::error::LayoutError;
use crate::oci::registry::error::RegistryError;
use crate::oci::store::StoreError;
use reader::Problem;
use spec::digest::Digest;
use store::CacheError;

/// Error while fetching or pushing an artifact or an image.
#[derive(Debug, thiserror::Error)]
pub enum OciError {
    #[error(transparent)]
    Registry(Box<RegistryError>),
    #[error(transparent)]
    Layout(Box<LayoutError>),
    #[error(transparent)]
    Store(Box<StoreError>),
    #[error("{place}: {problem}")]
    Artifact {
        place: String,
        problem: Box<ArtifactProblem>,
    },
    #[error("{place}: {problem}")]
    Image {
        place: String,
        problem: Box<ImageProblem>,
    },
    #[error("{place}: layer {digest} cannot be unpacked")]
    Unpack {
        place: String,
        digest: Digest,
        #[source]
        source: Box<Problem>,
    },
    #[error("cancelled while {during}")]
    Cancelled { during: &'static str },
}

impl From<RegistryError> for OciError {
    fn from(error: RegistryError) -> Self {
        Self::Registry(Box::new(error))
    }
}

impl From<LayoutError> for OciError {
    fn from(error: LayoutError) -> Self {
        Self::Layout(Box::new(error))
    }
}

impl From<StoreError> for OciError {
    fn from(error: StoreError) -> Self {
        Self::Store(Box::new(error))
    }
}

impl From<CacheError> for OciError {
    fn from(error: CacheError) -> Self {
        Self::Store(Box::new(error.into()))
    }
}

impl OciError {
    /// Extracts the error that a reader of a [`BlobStream`](crate::oci::origin::BlobStream)
    /// wrapped.
    ///
    /// # Errors
    /// The unchanged error, if it wraps none.
    pub fn of_read(error: std::io::Error) -> Result<Self, std::io::Error> {
        error.downcast::<Self>()
    }

    #[must_use]
    pub(crate) fn into_read(self) -> std::io::Error {
        std::io::Error::other(self)
    }

    /// Whether a retry may succeed. It can resume from the received bytes.
    #[must_use]
    pub fn is_temporary(&self) -> bool {
        matches!(self, Self::Registry(error) if error.is_temporary())
    }

    /// Returns the stable name of the cause, in snake case.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::Registry(error) => error.code(),
            Self::Layout(error) => error.code(),
            Self::Store(error) => error.code(),
            Self::Artifact { problem, .. } => problem.code(),
            Self::Image { problem, .. } => problem.code(),
            Self::Unpack { source, .. } if source.is_refusal() => "artifact_layer_refused",
            Self::Unpack { .. } => "store_unusable",
            Self::Cancelled { .. } => "cancelled",
        }
    }

    /// Returns advice for the user, if any.
    #[must_use]
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Registry(error) => error.hint(),
            Self::Layout(error) => error.hint(),
            Self::Store(error) => error.hint(),
            Self::Artifact { problem, .. } => problem.hint(),
            Self::Image { problem, .. } => problem.hint(),
            Self::Unpack { source, .. } => unpack_hint(source),
            Self::Cancelled { .. } => None,
        }
    }
}

/// The hints of most problems are about bundles.
fn unpack_hint(problem: &Problem) -> Option<String> {
    match problem.code.as_str() {
        "layer_not_opaque" => problem.hint.clone(),
        "unpacked_bytes_limit" => {
            Some("the limit is `oci.unpacked` of the host's configuration".to_owned())
        }
        "entries_limit" => {
            Some("the limit is `oci.entries` of the host's configuration".to_owned())
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use rustix::io::Errno;

    use super::*;
    use archive::{Refusal, UnpackError};
    use sys::file::CallError;

    #[test]
    fn a_refused_layer_has_a_hint() {
        let unpack = |error: UnpackError| OciError::Unpack {
            place: "oci:/image".to_owned(),
            digest: Digest::of(b"layer"),
            source: Box::new(Problem::of(&error)),
        };
        let no_attributes = unpack(UnpackError::NotOpaque {
            name: "etc".to_owned(),
            source: CallError::new("fsetxattr", "etc".to_owned(), Errno::NOTSUP),
        });
        assert_eq!(no_attributes.code(), "store_unusable");
        let hint = no_attributes.hint().expect("a hint");
        assert!(hint.contains("oci.directory"), "{hint}");
        let too_many = unpack(UnpackError::entry(3, b"etc", Refusal::too_many_entries(2)));
        assert_eq!(too_many.code(), "artifact_layer_refused");
        let hint = too_many.hint().expect("a hint");
        assert!(hint.contains("oci.entries"), "{hint}");
    }
}
