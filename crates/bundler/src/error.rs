//! The errors of this crate; `advice.rs` has the code and the hint of each.

use crate::left_out::LeftOut;
use crate::manifests::Unread;
use crate::origin::SourceOrigin;
use archive::Refusal;
use sources::github::{GitHubError, RefShape};
use spec::lock::{LockDifference, LockError};
use spec::manifest::ManifestError;
use spec::path::{PathError, RelPath, escape};
use spec::report::with_causes;
use spec::units;
use sys::file::CallError;

/// No bundle or source artifact was created. Found before the first byte is written, except
/// `Changed`, the size of the archive and errors of the output.
#[derive(Debug, thiserror::Error)]
pub enum BundleError {
    /// An error of one source.
    #[error("{at}: {}", with_causes(.error.as_ref()))]
    At {
        at: Box<SourceOrigin>,
        error: Box<BundleError>,
    },

    // Workspace and manifest.
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
    #[error(transparent)]
    ManifestUnreadable(Unread),
    /// All errors of the first invalid manifest.
    #[error("{}", lines(.0))]
    Manifest(Vec<ManifestError>),
    /// Not in any convention folder.
    #[error("`{workspace}` has no code-workspace `{name}`; {}", known_names(.known))]
    WorkspaceNotFound {
        name: String,
        workspace: String,
        known: Vec<String>,
        suggestion: Option<String>,
    },

    // References to code-workspaces.
    #[error("`{path}` is {found}; expected the folder of a code-workspace")]
    ReferenceNotFolder { path: RelPath, found: &'static str },
    #[error(
        "`{path}` is a symlink, which is not followed; expected the folder of a code-workspace"
    )]
    ReferenceIsLink { path: RelPath },
    #[error("`{path}` holds no manifest; expected one of {names}")]
    NoManifest { path: String, names: String },
    #[error("`{path}` is {found}; expected a code-workspace")]
    NotCodeWorkspace {
        path: RelPath,
        /// Completes the sentence.
        found: &'static str,
    },
    /// The first and the last folder are the same.
    #[error("code-workspaces refer to each other in a cycle: {}", .chain.join(" → "))]
    Cycle { chain: Vec<String> },
    #[error("code-workspaces are nested more than {limit} deep: {}", .chain.join(" → "))]
    Depth { chain: Vec<String>, limit: usize },
    #[error("more than {limit} sources, including those of all code-workspaces")]
    TooManySources { limit: usize },

    // Files of sources.
    #[error("`{path}` is not there{}", suggestion_clause(.suggestion.as_ref()))]
    Missing {
        path: RelPath,
        /// A similar existing name, escaped.
        suggestion: Option<String>,
    },
    #[error("`{path}` matches no file")]
    NoMatch { path: RelPath },
    #[error("`{path}` is {found}; expected a directory")]
    NotDirectory { path: RelPath, found: &'static str },
    /// `folder` is the one that `path` is relative to.
    #[error("`{path}`, relative to the folder `{folder}`, leaves the workspace")]
    Outside { path: String, folder: String },
    #[error("`{path}` is {found}; a bundle contains files, directories and relative links")]
    SpecialFile { path: RelPath, found: &'static str },
    #[error("the pattern `{pattern}` cannot be read: {reason}")]
    Pattern { pattern: String, reason: String },
    #[error("the names in `{directory}` cannot be matched with patterns: {reason}")]
    Unmatched { directory: String, reason: String },
    #[error("`{path}`{}: {reason}", line_clause(*.line))]
    IgnoreFile {
        path: RelPath,
        /// Counted from 1.
        line: Option<usize>,
        reason: String,
    },
    #[error("the list of credential files: {0}")]
    CredentialList(String),
    #[error("`{path}` {error}")]
    Link { path: RelPath, error: Refusal },
    #[error("`{path}` is a symlink to `{target}`, {why}")]
    Follow {
        path: RelPath,
        target: String,
        why: FollowProblem,
    },
    #[error("`{path}` passes through the symlink `{link}`")]
    ThroughLink { path: RelPath, link: RelPath },
    #[error("`{path}` {reason}")]
    Reserved { path: String, reason: &'static str },
    #[error("`{path}` {error}")]
    Path {
        /// Truncated and escaped.
        path: String,
        error: PathError,
    },
    #[error("`{path}` has {segments} segments, expected at most {limit}")]
    TooDeep {
        path: RelPath,
        segments: usize,
        limit: usize,
    },
    #[error("`{path}` is {kind}, but `{other_path}` is {other_kind} of {other_source}")]
    Conflict {
        path: RelPath,
        kind: &'static str,
        other_path: RelPath,
        other_kind: &'static str,
        other_source: Box<SourceOrigin>,
    },
    #[error("`{path}` changed while it was read")]
    Changed { path: RelPath },
    #[error("`{path}` cannot be read")]
    Unreadable {
        path: String,
        #[source]
        source: CallError,
    },
    /// Counts replaced files too.
    #[error("more than {limit} files in all sources, including replaced ones")]
    TooManyFiles { limit: u64 },
    /// `entry` is the one that exceeds the limit.
    #[error("`{entry}` makes the bundle too large: {}", .exceeded.describe(["unpack.entries", "unpack.unpacked", "unpack.archive"]))]
    Size { entry: String, exceeded: SizeLimit },

    // Repositories.
    #[error("{repository}: `{reference}` is {shape}; expected a commit, 40 hexadecimal digits")]
    PinRequired {
        repository: String,
        reference: String,
        shape: RefShape,
    },
    #[error("github.token: {problem}")]
    Token { problem: String },
    #[error(transparent)]
    GitHub(#[from] GitHubError),

    // Lock file and output.
    #[error(transparent)]
    Lock(#[from] LockError),
    #[error("{file}: the bundle does not match the lock file:\n{}", lines(.differences))]
    Drift {
        file: String,
        differences: Vec<LockDifference>,
    },
    #[error("the lock file {0}")]
    LockUnreadable(#[source] Unread),
    #[error("workspace source {id}: `{reference}` names a tag, expected a digest")]
    SourceTag { id: String, reference: String },
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
    #[error("a JSON document cannot be written")]
    Json(#[from] serde_json::Error),

    // Source artifacts.
    #[error("`{directory}` cannot be opened")]
    SourceDirectory {
        directory: String,
        #[source]
        source: CallError,
    },
    #[error(
        "found the {what} `{}`, expected at most 128 letters, digits, `.`, `_` and `-`",
        escape(.found.as_bytes())
    )]
    SourceName {
        what: &'static str,
        found: String,
        is_default: bool,
    },
    #[error("`{directory}` is {found}, so there is no default version")]
    SourceVersion {
        directory: String,
        found: &'static str,
    },
    #[error("the {what} has {bytes} bytes, expected at most {}", units::limit(.bytes_max))]
    SourceTextTooLong {
        what: &'static str,
        bytes: usize,
        bytes_max: usize,
    },
    #[error("{flag} names `{path}`, which is not there")]
    SourcePath { flag: &'static str, path: RelPath },
    #[error("--sparse names `{path}`, but the snapshot has no file of it")]
    SparseEmpty { path: RelPath },
    #[error("--submodules needs a git checkout, and `{directory}` is built as a plain directory")]
    NoSubmodules { directory: String },
    /// Under `--strict`: entries would be left out that no ignore file excludes.
    #[error("{} cannot be in a snapshot: {}", units::count(.0.count, "entry"), .0.describe(usize::MAX))]
    Strict(LeftOut),
    #[error("`{entry}` makes the snapshot too large: {}", .exceeded.describe(["oci.entries", "oci.unpacked", "oci.layer"]))]
    SnapshotSize { entry: String, exceeded: SizeLimit },
    #[error("`{directory}` is in a git checkout, and `git` is not in PATH")]
    GitMissing { directory: String },
    #[error("a temporary directory for git cannot be created")]
    GitDirectory(#[source] std::io::Error),
    #[error("git {command} failed: {message}")]
    GitFailed {
        command: String,
        /// Escaped stderr, or the exit status if it is empty.
        message: String,
    },
    #[error("the git checkout cannot be read: {reason}")]
    GitUnread { reason: String },
}

/// A size limit of the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SizeLimit {
    Entries {
        limit: u64,
    },
    Unpacked {
        /// Up to and including the entry.
        bytes: u64,
        limit: u64,
    },
    Archive {
        limit: u64,
    },
    Names {
        limit: u64,
    },
}

impl SizeLimit {
    /// Describes the limit. The keys are those of the host's configuration.
    fn describe(self, [entries, unpacked, archive]: [&str; 3]) -> String {
        match self {
            Self::Entries { limit } => {
                format!("more than {limit} files, directories and links ({entries})")
            }
            Self::Unpacked { bytes, limit } => format!(
                "{bytes} bytes in all files up to it, expected at most {} ({unpacked})",
                units::bytes(limit)
            ),
            Self::Archive { limit } => {
                format!(
                    "the archive has more than {} ({archive})",
                    units::bytes(limit)
                )
            }
            Self::Names { limit } => {
                format!("more than {limit} bytes in all names; the limit grows with {entries}")
            }
        }
    }
}

/// Why a link cannot be followed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum FollowProblem {
    #[error("which leaves the workspace")]
    Escapes,
    #[error("which is not there")]
    Dangling,
    #[error("which leads back to itself")]
    Loop,
}

fn lines<Error: ToString>(errors: &[Error]) -> String {
    let lines: Vec<String> = errors.iter().map(ToString::to_string).collect();
    lines.join("\n")
}

fn known_names(known: &[String]) -> String {
    match known {
        [] => "none exists below .code-workspaces and .code".to_owned(),
        _ => format!("available: {}", known.join(", ")),
    }
}

fn line_clause(line: Option<usize>) -> String {
    line.map_or_else(String::new, |line| format!(", line {line}"))
}

fn suggestion_clause(suggestion: Option<&String>) -> String {
    suggestion.map_or_else(String::new, |name| format!("; did you mean `{name}`?"))
}

impl BundleError {
    /// Adds the source, unless the error already has a location or concerns several sources.
    pub(crate) fn at(self, at: &SourceOrigin) -> Self {
        match self {
            Self::Size { .. }
            | Self::At { .. }
            | Self::Manifest(_)
            | Self::ManifestUnreadable(_) => self,
            error => Self::At {
                at: Box::new(at.clone()),
                error: Box::new(error),
            },
        }
    }

    pub(crate) fn unreadable(path: &RelPath, source: CallError) -> Self {
        Self::Unreadable {
            path: path.to_string(),
            source,
        }
    }

    /// Names the size limits of snapshots instead of those of bundles.
    pub(crate) fn for_snapshot(self) -> Self {
        match self {
            Self::Size { entry, exceeded } => Self::SnapshotSize { entry, exceeded },
            error => error,
        }
    }

    /// Adds the file name to a write error.
    pub(crate) fn in_file(self, file: &str) -> Self {
        match self {
            Self::Output { source, .. } => Self::Output {
                file: file.to_owned(),
                source: CallError::new(source.call, file, source.errno),
            },
            error => error,
        }
    }

    /// Whether the output failed rather than the request.
    #[must_use]
    pub fn is_of_output(&self) -> bool {
        matches!(self, Self::Output { .. } | Self::OutputRefused { .. })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::origin::SourceKind;
    use rustix::io::Errno;

    #[test]
    fn an_unreadable_file_is_reported_with_its_cause_once() {
        let at = SourceOrigin {
            file: "m.yaml".to_owned(),
            pointer: "/code/sources/0".to_owned(),
            kind: SourceKind::Local,
            place: None,
        };
        let error = BundleError::Unreadable {
            path: "src/key".to_owned(),
            source: CallError::new("openat2", "src/key", Errno::ACCESS),
        };
        let error = error.at(&at);
        let text = error.to_string();
        assert_eq!(text.matches("Permission denied").count(), 1, "{text}");
        assert!(error.hint().is_some_and(|hint| hint.contains("permission")));
    }
}
