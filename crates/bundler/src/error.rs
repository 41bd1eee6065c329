//! Errors of bundling.

use rustix::io::Errno;

use crate::origin::SourceOrigin;
use crate::source_problem::LINK_HINT;
pub use crate::source_problem::{FollowProblem, SourceProblem};
use archive::links::LinkError;
use spec::manifest::ManifestError;
use spec::path::RelPath;
use spec::report::with_causes;
use spec::units;
use sys::file::CallError;

/// Error while making a bundle. Found before the first byte is written, except `source_changed`,
/// [`ComposeError::BundleSize`] and output errors.
#[derive(Debug, thiserror::Error)]
pub enum ComposeError {
    #[error("the workspace `{workspace}` cannot be opened")]
    Workspace {
        workspace: String,
        #[source]
        source: CallError,
    },
    #[error("`{path}` {problem}")]
    ManifestMissing {
        path: String,
        /// Completes the sentence.
        problem: String,
    },
    #[error("the manifest `{manifest}` lies outside the workspace `{workspace}`")]
    ManifestOutside { manifest: String, workspace: String },
    #[error("`{file}` {problem}")]
    Unreadable {
        file: String,
        problem: &'static str,
        #[source]
        source: Option<CallError>,
    },
    /// All errors of the first invalid manifest.
    #[error("{}", lines(.0))]
    Manifest(Vec<ManifestError>),
    /// Not in any convention folder.
    #[error("`{workspace}` has no code-workspace `{name}`; {}", known_words(.known))]
    WorkspaceNotFound {
        name: String,
        workspace: String,
        known: Vec<String>,
        near: Option<String>,
    },
    #[error("{at}: {}", with_causes(.problem.as_ref()))]
    Source {
        at: Box<SourceOrigin>,
        problem: Box<SourceProblem>,
    },
    #[error("{at}: `{path}` {error}")]
    Link {
        at: Box<SourceOrigin>,
        /// In the bundle.
        path: RelPath,
        error: Box<LinkError>,
    },
    #[error("`{entry}` makes the bundle too large: {what}")]
    BundleSize {
        /// The entry that exceeds the limit.
        entry: String,
        what: SizeLimit,
    },
    #[error("`{file}` cannot be written")]
    Output {
        file: String,
        #[source]
        source: CallError,
    },
    /// The path is not allowed for the bundle or its lock file.
    #[error("`{file}` cannot be written: it is {found}; expected {expected}")]
    OutputRefused {
        file: String,
        found: &'static str,
        expected: &'static str,
    },
}

/// Size limit of the host policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SizeLimit {
    #[error("more than {limit} files, directories and links (unpack.entries)")]
    Entries { limit: u64 },
    #[error("{bytes} bytes in all files up to it, expected at most {} (unpack.unpacked)", units::limit(.limit))]
    Unpacked {
        /// Up to and including the entry.
        bytes: u64,
        limit: u64,
    },
    #[error("the archive has more than {} (unpack.archive)", units::limit(.limit))]
    Archive { limit: u64 },
    #[error("more than {limit} bytes in all names, 160 for each of unpack.entries")]
    Names { limit: u64 },
}

/// Error classes of AIP-26, and one for the output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ErrorClass {
    Manifest,
    Source,
    BundleSize,
    Output,
}

fn lines(errors: &[ManifestError]) -> String {
    let lines: Vec<String> = errors.iter().map(ToString::to_string).collect();
    lines.join("\n")
}

fn known_words(known: &[String]) -> String {
    match known {
        [] => "there is none below .code-workspaces and .code".to_owned(),
        _ => format!("there are {}", known.join(", ")),
    }
}

impl ComposeError {
    /// Creates the error for `problem` of the source `at`.
    #[must_use]
    pub fn of_source(at: &SourceOrigin, problem: SourceProblem) -> Self {
        match problem {
            SourceProblem::Size { entry, what } => Self::BundleSize {
                entry: entry.to_string(),
                what,
            },
            problem => Self::Source {
                at: Box::new(at.clone()),
                problem: Box::new(problem),
            },
        }
    }

    /// Adds the file name to a write error.
    #[must_use]
    pub fn at(self, file: &str) -> Self {
        match self {
            Self::Output { source, .. } => Self::Output {
                file: file.to_owned(),
                source: CallError::new(source.call, file, source.errno),
            },
            other => other,
        }
    }

    /// Returns the error class.
    #[must_use]
    pub fn class(&self) -> ErrorClass {
        match self {
            Self::Workspace { .. }
            | Self::ManifestMissing { .. }
            | Self::ManifestOutside { .. }
            | Self::Unreadable { .. }
            | Self::Manifest(_)
            | Self::WorkspaceNotFound { .. } => ErrorClass::Manifest,
            Self::Source { .. } | Self::Link { .. } => ErrorClass::Source,
            Self::BundleSize { .. } => ErrorClass::BundleSize,
            Self::Output { .. } | Self::OutputRefused { .. } => ErrorClass::Output,
        }
    }

    /// Returns the stable name of the cause, in snake case.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::Workspace { .. } => "workspace_unreadable",
            Self::ManifestMissing { .. } => "manifest_missing",
            Self::ManifestOutside { .. } => "manifest_outside_workspace",
            Self::Unreadable { .. } => "manifest_unreadable",
            Self::Manifest(errors) => errors.first().map_or("manifest", ManifestError::code),
            Self::WorkspaceNotFound { .. } => "workspace_not_found",
            Self::Source { problem, .. } => problem.code(),
            Self::Link { error, .. } => error.code(),
            Self::BundleSize { .. } => "bundle_size",
            Self::Output { source, .. } if source.errno == Errno::NOSPC => "output_no_space",
            Self::Output { .. } => "output_unwritable",
            Self::OutputRefused { .. } => "output_refused",
        }
    }

    /// Returns advice for the user, if any.
    #[must_use]
    pub fn hint(&self) -> Option<String> {
        let text = match self {
            Self::Workspace { .. } => "give a directory with --workspace",
            Self::ManifestMissing { .. } => {
                "give a manifest, a folder that holds one, or --workspace DIR and a name"
            }
            Self::ManifestOutside { .. } => "give a folder above the manifest with --workspace",
            Self::Manifest(errors) => return errors.first().and_then(ManifestError::hint),
            Self::WorkspaceNotFound {
                near: Some(near), ..
            } => return Some(format!("did you mean `{near}`?")),
            Self::WorkspaceNotFound { .. } => {
                "give the path of a manifest or of a folder that holds one, or a name that is there"
            }
            Self::Source { at, problem } => match (problem.as_ref(), at.file.contains('/')) {
                (SourceProblem::Missing { .. }, true) => {
                    return Some(format!(
                        "paths of `code` are relative to the workspace, not to `{}`; --workspace \
                         DIR names another",
                        at.file
                    ));
                }
                (other, _) => return other.hint(),
            },
            Self::Link { .. } => LINK_HINT,
            Self::BundleSize { .. } => {
                "leave out what the body does not need, or raise the key in the host's \
                 configuration"
            }
            Self::Output { source, .. } if source.errno == Errno::NOSPC => {
                "make room there, or write it elsewhere with -o"
            }
            Self::Output { source, .. } if source.errno == Errno::PIPE => {
                "what reads it ended before it had everything"
            }
            Self::Output { source, .. } if source.errno == Errno::NOENT => {
                "make the directory first, or give another place"
            }
            Self::Output { .. } => "give a place that you may write to",
            Self::OutputRefused { found, .. } if found.contains("lost") => {
                "remove it first if you do not need it, or give another name"
            }
            Self::OutputRefused { .. } => "give another name",
            Self::Unreadable { source, .. } => match source.as_ref().map(|error| error.errno) {
                Some(Errno::ACCESS | Errno::PERM) => "give yourself the right to read it",
                _ => "a manifest is a .yaml, .json or .md file of at most 1 MiB",
            },
        };
        Some(text.to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::origin::SourceKind;

    #[test]
    fn what_cannot_be_read_is_told_with_its_cause_once() {
        let at = SourceOrigin {
            file: "m.yaml".to_owned(),
            pointer: "/code/sources/0".to_owned(),
            kind: SourceKind::Local,
            place: None,
        };
        let problem = SourceProblem::Unreadable {
            path: "src/key".to_owned(),
            source: CallError::new("openat2", "src/key", Errno::ACCESS),
        };
        let error = ComposeError::of_source(&at, problem);
        let text = error.to_string();
        assert_eq!(text.matches("Permission denied").count(), 1, "{text}");
        assert!(error.hint().is_some_and(|hint| hint.contains("right")));
    }
}
