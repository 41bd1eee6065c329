//! Why an artifact or an image could not be had or brought.

use crate::oci::artifact::ArtifactError;
use crate::oci::layers::ImageError;
use crate::oci::layout::error::LayoutError;
use crate::oci::registry::error::RegistryError;
use crate::oci::store::StoreError;
use archive::UnpackError;
use spec::digest::Digest;
use store::CacheError;

/// Why an artifact or an image could not be had or brought.
#[derive(Debug, thiserror::Error)]
pub enum OciError {
    /// A registry: what it answered, or that it did not.
    #[error(transparent)]
    Registry(Box<RegistryError>),
    /// A directory in the OCI layout.
    #[error(transparent)]
    Layout(Box<LayoutError>),
    /// The store: what came is not what was asked for, or there is no place for it.
    #[error(transparent)]
    Store(Box<StoreError>),
    /// What a manifest or a config says is refused.
    #[error(transparent)]
    Artifact(Box<ArtifactError>),
    /// An image is refused for what its manifest or its config says.
    #[error(transparent)]
    Image(Box<ImageError>),
    /// A layer is refused, or could not be written.
    #[error("{place}: layer {digest} cannot be unpacked")]
    Unpack {
        place: String,
        digest: Digest,
        #[source]
        source: Box<UnpackError>,
    },
    /// The caller wanted an end.
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

impl From<ImageError> for OciError {
    fn from(error: ImageError) -> Self {
        Self::Image(Box::new(error))
    }
}

impl From<ArtifactError> for OciError {
    fn from(error: ArtifactError) -> Self {
        Self::Artifact(Box::new(error))
    }
}

impl OciError {
    /// What an error of a [`BlobStream`](crate::oci::origin::BlobStream)'s reader holds.
    ///
    /// # Errors
    /// The error itself, where it holds none of these.
    pub fn of_read(error: std::io::Error) -> Result<Self, std::io::Error> {
        error.downcast::<Self>()
    }

    /// As an error of a reader.
    #[must_use]
    pub(crate) fn into_read(self) -> std::io::Error {
        std::io::Error::other(self)
    }

    /// Whether the same may succeed when it is tried again, from where it broke off.
    #[must_use]
    pub fn is_passing(&self) -> bool {
        match self {
            Self::Registry(error) => error.is_passing(),
            Self::Layout(_)
            | Self::Store(_)
            | Self::Artifact(_)
            | Self::Image(_)
            | Self::Unpack { .. }
            | Self::Cancelled { .. } => false,
        }
    }

    /// Stable name of the cause, in snake case.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::Registry(error) => error.code(),
            Self::Layout(error) => error.code(),
            Self::Store(error) => error.code(),
            Self::Artifact(error) => error.code(),
            Self::Image(error) => error.code(),
            Self::Unpack { source, .. } => match source.is_refusal() {
                true => "artifact_layer_refused",
                false => "store_unusable",
            },
            Self::Cancelled { .. } => "cancelled",
        }
    }

    /// What to do about it, where something can be said.
    #[must_use]
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Registry(error) => error.hint(),
            Self::Layout(error) => error.hint(),
            Self::Store(error) => error.hint(),
            Self::Artifact(error) => error.hint(),
            Self::Image(error) => error.hint(),
            Self::Unpack { source, .. } => unpack_hint(source),
            Self::Cancelled { .. } => None,
        }
    }
}

/// Those of a bundle speak of the bundle and of its limits.
fn unpack_hint(error: &UnpackError) -> Option<String> {
    match error {
        UnpackError::NotOpaque { .. } => error.hint(),
        UnpackError::TooManyBytes { .. } => {
            Some("the host's configuration says how many: oci.unpacked".to_owned())
        }
        UnpackError::TooManyEntries { .. } => {
            Some("the host's configuration says how many: oci.entries".to_owned())
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use rustix::io::Errno;

    use super::*;
    use sys::file::CallError;

    #[test]
    fn what_a_layer_is_refused_for_has_a_hint_of_the_store() {
        let unpack = |source: UnpackError| OciError::Unpack {
            place: "oci:/image".to_owned(),
            digest: Digest::of(b"layer"),
            source: Box::new(source),
        };
        let no_attributes = unpack(UnpackError::NotOpaque {
            name: "etc".to_owned(),
            source: CallError::new("fsetxattr", "etc".to_owned(), Errno::NOTSUP),
        });
        assert_eq!(no_attributes.code(), "store_unusable");
        let hint = no_attributes.hint().expect("a hint");
        assert!(hint.contains("oci.directory"), "{hint}");
        let too_many = unpack(UnpackError::TooManyEntries {
            index: 3,
            name: "etc".to_owned(),
            limit: 2,
        });
        assert_eq!(too_many.code(), "artifact_layer_refused");
        let hint = too_many.hint().expect("a hint");
        assert!(hint.contains("oci.entries"), "{hint}");
    }
}
