//! Errors of building a source artifact.

use crate::error::{ComposeError, SizeLimit, SourceProblem};
use crate::filter::{AllLeftOut, entries, told};
use crate::source::git::GitError;
use spec::path::{RelPath, escape};
use spec::units;
use spec::units::limit;
use sys::file::CallError;

/// Error while building a source artifact.
#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    #[error("`{directory}` cannot be opened")]
    Directory {
        directory: String,
        #[source]
        source: CallError,
    },
    #[error(
        "found the {what} `{}`, expected at most 128 letters, digits, `.`, `_` and `-`",
        escape(.found.as_bytes())
    )]
    Name {
        what: &'static str,
        found: String,
        is_default: bool,
    },
    #[error("`{directory}` is {found}, which gives no version")]
    VersionMissing {
        directory: String,
        found: &'static str,
    },
    /// A text above the limit of a config.
    #[error("the {what} has {bytes} bytes, expected at most {}", limit(.bytes_max))]
    TooLong {
        what: &'static str,
        bytes: usize,
        bytes_max: usize,
    },
    #[error("{flag} names `{path}`, which is not there")]
    NotThere { flag: &'static str, path: RelPath },
    #[error("--sparse names `{path}`, of which no file is in the snapshot")]
    SparseEmpty { path: RelPath },
    /// Submodules are requested without a checkout.
    #[error("--submodules is for checkouts of git, and `{directory}` is taken as a directory")]
    NoSubmodules { directory: String },
    /// Under `--strict`: entries would be left out without a request.
    #[error("{} cannot be in a snapshot: {}", entries(.0.count), told(.0, usize::MAX))]
    Strict(AllLeftOut),
    #[error("`{entry}` makes the snapshot too large: {}", size_words(*.what))]
    Size {
        /// The entry that exceeds the limit.
        entry: String,
        what: SizeLimit,
    },
    #[error(transparent)]
    Compose(ComposeError),
    #[error(transparent)]
    Git(#[from] GitError),
    /// The built-in list of credential files is invalid.
    #[error("the list of credential files cannot be read: {0}")]
    CredentialList(String),
    #[error("the artifact's documents cannot be written")]
    Json(#[from] serde_json::Error),
}

impl From<ComposeError> for BuildError {
    fn from(error: ComposeError) -> Self {
        match error {
            ComposeError::BundleSize { entry, what } => Self::Size { entry, what },
            other => Self::Compose(other),
        }
    }
}

impl BuildError {
    /// Returns the stable name of the cause, in snake case.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::Directory { .. } => "source_unreadable",
            Self::Name { .. } => "source_name",
            Self::VersionMissing { .. } => "source_version_missing",
            Self::TooLong { .. } => "source_config_too_long",
            Self::NotThere { .. } => "source_missing",
            Self::SparseEmpty { .. } => "source_sparse_empty",
            Self::NoSubmodules { .. } => "source_no_submodules",
            Self::Strict(_) => "source_left_out",
            Self::Size { .. } => "source_size",
            Self::Compose(error) => error.code(),
            Self::Git(error) => error.code(),
            Self::CredentialList(_) | Self::Json(_) => "source_internal",
        }
    }

    /// Returns advice for the user, if any.
    #[must_use]
    pub fn hint(&self) -> Option<String> {
        let text = match self {
            Self::Directory { .. } => "give a directory that you may read",
            Self::Name {
                is_default: true, ..
            } => "the name of the directory is the default: give another one with --name",
            Self::Name { .. } => {
                "it is what stands in NAME:VERSION; a version may begin with `_` too"
            }
            Self::VersionMissing { .. } => "give one with --version",
            Self::TooLong { .. } => "make it shorter",
            Self::NotThere { .. } => "paths are relative to the directory that is built",
            Self::SparseEmpty { .. } => {
                "it is empty, or all of it is left out: see .staxignore, and `git status`"
            }
            Self::NoSubmodules { .. } => "leave out --submodules",
            Self::Strict(_) => {
                "name them in .staxignore, remove them, take what is no credential with --include, \
                 or leave out --strict"
            }
            Self::Size { .. } => {
                "leave files out with .staxignore or --sparse, or raise the key in the host's \
                 configuration"
            }
            Self::Compose(ComposeError::Source { problem, .. }) => match problem.as_ref() {
                SourceProblem::Unreadable { source, .. }
                    if source.errno == rustix::io::Errno::ACCESS =>
                {
                    "give yourself the right to read it, or name it in .staxignore"
                }
                SourceProblem::Changed { .. } => "run it again once nothing writes there",
                SourceProblem::Missing { .. } => return None,
                other => return other.hint(),
            },
            Self::Compose(error) => return error.hint(),
            Self::Git(error) => error.hint(),
            Self::CredentialList(_) | Self::Json(_) => return None,
        };
        Some(text.to_owned())
    }
}

fn size_words(what: SizeLimit) -> String {
    match what {
        SizeLimit::Entries { limit } => {
            format!("more than {limit} files and directories (oci.entries)")
        }
        SizeLimit::Unpacked { bytes, limit } => {
            format!(
                "{bytes} bytes in all files up to it, expected at most {} (oci.unpacked)",
                units::bytes(limit)
            )
        }
        SizeLimit::Archive { limit } => {
            format!(
                "the archive has more than {} (oci.layer)",
                units::bytes(limit)
            )
        }
        SizeLimit::Names { limit } => {
            format!("more than {limit} bytes in all names, 160 for each of oci.entries")
        }
    }
}
