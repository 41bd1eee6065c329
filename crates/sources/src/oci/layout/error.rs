//! Why a directory in the OCI layout cannot be read or written: each names the file.

use spec::digest::Digest;
use sys::file::CallError;

/// Why a directory in the OCI layout cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub enum LayoutError {
    /// A call on the directory or one of its files failed.
    #[error("the layout `{directory}`: `{file}` cannot be {act}")]
    Call {
        directory: String,
        /// Which file in it; `.` for itself.
        file: String,
        /// `read`, `written`.
        act: &'static str,
        #[source]
        source: CallError,
    },
    /// A file of it is not what it must be.
    #[error("the layout `{directory}`: `{file}` {problem}")]
    File {
        directory: String,
        file: String,
        /// Completes the sentence: what was found and what is expected.
        problem: String,
    },
    /// It has no manifest of that name, or more than one where none was named.
    #[error("the layout `{directory}` has {found}; {known}")]
    Which {
        directory: String,
        /// `no manifest NAME`, `3 manifests, expected one`.
        found: String,
        known: String,
    },
    /// A file has other bytes than its name says.
    #[error("the layout `{directory}`: `{file}` has the digest {found}, expected {expected}")]
    WrongDigest {
        directory: String,
        file: String,
        found: Digest,
        expected: Digest,
    },
    /// What stands where a layout is to be written is none.
    #[error("the layout `{directory}` cannot be written: {found}")]
    Occupied {
        directory: String,
        found: &'static str,
    },
}

impl LayoutError {
    /// Stable name of the cause, in snake case.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::Call { .. } => "layout_unusable",
            Self::File { .. } => "layout_invalid",
            Self::Which { .. } => "layout_not_found",
            Self::WrongDigest { .. } => "layout_wrong_digest",
            Self::Occupied { .. } => "layout_occupied",
        }
    }

    /// What to do about it, where something can be said.
    #[must_use]
    pub fn hint(&self) -> Option<String> {
        let text = match self {
            Self::Which { .. } => {
                "name one of them: oci:DIRECTORY:NAME or oci:DIRECTORY@sha256:HEX"
            }
            Self::Occupied { .. } => {
                "give the name of a directory that is not there yet, or a layout"
            }
            Self::Call { .. } | Self::File { .. } | Self::WrongDigest { .. } => return None,
        };
        Some(text.to_owned())
    }
}
