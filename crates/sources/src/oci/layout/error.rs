//! Errors of OCI layouts; each names the file.

use spec::digest::Digest;
use sys::file::CallError;

/// Error while reading or writing an OCI layout.
#[derive(Debug, thiserror::Error)]
pub enum LayoutError {
    #[error("{} cannot be {act}", describe(.directory, .file))]
    Unusable {
        directory: String,
        /// Path in the layout; `.` for the layout itself.
        file: String,
        /// `opened`, `read`, `created` or `written`.
        act: &'static str,
        #[source]
        source: CallError,
    },
    #[error("the layout `{directory}`: the content of a new blob cannot be read")]
    Source {
        directory: String,
        #[source]
        source: std::io::Error,
    },
    #[error("{} {problem}", describe(.directory, .file))]
    Invalid {
        directory: String,
        file: String,
        /// Completes the sentence: what was found and what is expected.
        problem: String,
    },
    /// No manifest of that name, or several and no name.
    #[error("the layout `{directory}` has {found}; it has {known}")]
    NotFound {
        directory: String,
        /// `no manifest NAME` or `3 manifests, expected one`.
        found: String,
        /// Names, or the number of manifests without a name.
        known: String,
    },
    #[error("the layout `{directory}` has no manifests")]
    Empty { directory: String },
    #[error("the layout `{directory}`: `{file}` has the digest {found}, expected {expected}")]
    WrongDigest {
        directory: String,
        file: String,
        found: Digest,
        expected: Digest,
    },
    /// The target exists and is not a layout.
    #[error("the layout `{directory}` cannot be written: {found}")]
    Occupied {
        directory: String,
        found: &'static str,
    },
}

fn describe(directory: &str, file: &str) -> String {
    match file {
        "." => format!("the layout `{directory}`"),
        file => format!("the layout `{directory}`: `{file}`"),
    }
}

impl LayoutError {
    /// Returns the stable name of the cause, in snake case.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::Unusable { .. } | Self::Source { .. } => "layout_unusable",
            Self::Invalid { .. } => "layout_invalid",
            Self::NotFound { .. } | Self::Empty { .. } => "layout_not_found",
            Self::WrongDigest { .. } => "layout_wrong_digest",
            Self::Occupied { .. } => "layout_occupied",
        }
    }

    /// Returns advice for the user, if any.
    #[must_use]
    pub fn hint(&self) -> Option<String> {
        let text = match self {
            Self::NotFound { .. } => {
                "name one of them: oci:DIRECTORY:NAME or oci:DIRECTORY@sha256:HEX"
            }
            Self::Occupied { .. } => {
                "name a layout, an empty directory, or a directory that does not exist"
            }
            _ => return None,
        };
        Some(text.to_owned())
    }
}
