//! Why an artifact or an image could not be had or brought.

use crate::oci::layout::error::LayoutError;
use crate::oci::registry::error::RegistryError;

/// Why an artifact or an image could not be had or brought.
#[derive(Debug, thiserror::Error)]
pub enum OciError {
    /// A registry: what it answered, or that it did not.
    #[error(transparent)]
    Registry(Box<RegistryError>),
    /// A directory in the OCI layout.
    #[error(transparent)]
    Layout(Box<LayoutError>),
    /// The caller wanted an end.
    #[error("cancelled while {during}")]
    Cancelled {
        /// What was being done.
        during: &'static str,
    },
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
    pub fn into_read(self) -> std::io::Error {
        std::io::Error::other(self)
    }

    /// Whether the same may succeed when it is tried again, from where it broke off.
    #[must_use]
    pub fn is_passing(&self) -> bool {
        match self {
            Self::Registry(error) => error.is_passing(),
            Self::Layout(_) | Self::Cancelled { .. } => false,
        }
    }

    /// Stable name of the cause, in snake case.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::Registry(error) => error.code(),
            Self::Layout(error) => error.code(),
            Self::Cancelled { .. } => "cancelled",
        }
    }

    /// What to do about it, where something can be said.
    #[must_use]
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Registry(error) => error.hint(),
            Self::Layout(error) => error.hint(),
            Self::Cancelled { .. } => None,
        }
    }
}
