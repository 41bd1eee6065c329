//! Errors of workspace sources.

use archive::UnpackError;
use sources::oci::error::OciError;
use spec::oci::reference::ReferenceError;

/// Why a workspace source is unavailable. Texts in it are escaped.
#[derive(Debug, thiserror::Error)]
#[error("workspace source {id} ({reference}): {problem}")]
pub(crate) struct SourceError {
    pub(in crate::run) id: String,
    pub(in crate::run) reference: String,
    #[source]
    pub(in crate::run) problem: SourceProblem,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum SourceProblem {
    #[error(transparent)]
    Reference(#[from] ReferenceError),
    /// A tag is not a fixed version.
    #[error("it is named by a tag, not by a digest")]
    Tag {
        /// Whether the host forbids it (`require_pin`).
        by_host: bool,
    },
    /// The pull failed, or the artifact is not a source.
    #[error(transparent)]
    Artifact(Box<OciError>),
    #[error("`{subpath}` is {found} its snapshot, expected a directory")]
    Subpath {
        subpath: String,
        /// `a file in`, or `missing from`.
        found: &'static str,
        /// Directories of the snapshot with a similar name.
        near: Vec<String>,
    },
    #[error("a run can have at most {most} sources that are writable or contain mount points")]
    TooMany { most: usize },
    /// A copy failed, because the writable space is full or for another reason.
    #[error("it cannot be copied into the writable space")]
    Copy(#[source] UnpackError),
}

impl From<OciError> for SourceProblem {
    fn from(error: OciError) -> Self {
        Self::Artifact(Box::new(error))
    }
}

impl SourceProblem {
    /// Whether an optional source is skipped for this problem. Errors of the manifest and of the host
    /// are refused.
    pub(super) fn is_skippable(&self) -> bool {
        matches!(self, Self::Artifact(_) | Self::Subpath { .. })
    }
}

impl SourceError {
    /// Whether the request is refused; otherwise the host or the network failed.
    #[must_use]
    pub(in crate::run) fn is_refusal(&self) -> bool {
        match &self.problem {
            SourceProblem::Artifact(error) => !error.is_temporary(),
            SourceProblem::Copy(error) => error.is_refusal(),
            _ => true,
        }
    }

    #[must_use]
    pub(in crate::run) fn code(&self) -> &'static str {
        match &self.problem {
            SourceProblem::Reference(_) => "source_reference_invalid",
            SourceProblem::Tag { .. } => "source_tag_refused",
            SourceProblem::Artifact(error) => error.code(),
            SourceProblem::Subpath { .. } => "source_subpath_missing",
            SourceProblem::TooMany { .. } => "sources_too_many",
            SourceProblem::Copy(_) => "source_not_copied",
        }
    }

    #[must_use]
    pub(in crate::run) fn hint(&self) -> Option<String> {
        match &self.problem {
            SourceProblem::Reference(error) => error.hint(),
            SourceProblem::Tag { by_host } => Some(
                if *by_host {
                    "append its digest, @sha256:…; this host accepts no tags (require_pin)"
                } else {
                    "append its digest, @sha256:…, or accept the tag with --allow-tags"
                }
                .to_owned(),
            ),
            SourceProblem::Artifact(error) => error.hint(),
            SourceProblem::Subpath { near, .. } if !near.is_empty() => {
                Some(format!("did you mean {}?", near.join(" or ")))
            }
            SourceProblem::Subpath { .. } => {
                Some("`runner source inspect` lists what is in it".to_owned())
            }
            SourceProblem::TooMany { .. } => {
                Some("combine several of them into one source".to_owned())
            }
            SourceProblem::Copy(_) => {
                Some("raise unpack.unpacked in the host configuration".to_owned())
            }
        }
    }
}
