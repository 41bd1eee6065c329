//! Errors of a single source.

use crate::error::SizeLimit;
use crate::origin::SourceOrigin;
use archive::links::LinkError;
use sources::github::{GitHubError, RefShape};
use spec::path::{PathError, RelPath};
use sys::file::CallError;

pub(crate) const LINK_HINT: &str = "replace the link by a relative one to a file or directory of the bundle, \
                         or copy what it points to with --symlinks=follow";

/// Error of one source.
#[derive(Debug, thiserror::Error)]
pub enum SourceProblem {
    #[error("`{path}` is not there{}", near_words(.near.as_ref()))]
    Missing {
        path: RelPath,
        /// A similar existing name, escaped.
        near: Option<String>,
    },
    #[error("`{path}` matches no file")]
    NoMatch { path: RelPath },
    #[error("`{path}` is {found}; expected a directory")]
    NotDirectory { path: RelPath, found: &'static str },
    #[error("`{path}` is {found}; expected the folder of a code-workspace")]
    ReferenceNotFolder { path: RelPath, found: &'static str },
    #[error(
        "`{path}` is a symlink, which is not followed; expected the folder of a code-workspace"
    )]
    ReferenceIsLink { path: RelPath },
    #[error("`{path}`, seen from the folder `{folder}`, leaves the workspace")]
    Outside {
        path: String,
        /// The folder that it is relative to, in the workspace.
        folder: String,
    },
    #[error("`{path}` holds no manifest; expected one of {names}")]
    NoManifest { path: String, names: String },
    #[error("`{path}` is {found}; expected a code-workspace")]
    NotCodeWorkspace {
        path: RelPath,
        /// Completes the sentence.
        found: &'static str,
    },
    #[error("`{path}` is {found}; a bundle holds files, directories and relative links")]
    SpecialFile { path: RelPath, found: &'static str },
    #[error("the pattern `{pattern}` cannot be read: {reason}")]
    Pattern { pattern: String, reason: String },
    #[error("`{path}`{}: {reason}", line_words(*.line))]
    IgnoreFile {
        path: RelPath,
        /// Counted from 1.
        line: Option<usize>,
        reason: String,
    },
    #[error("the list of credential files: {0}")]
    CredentialList(String),
    #[error("`{path}` {error}")]
    Link { path: RelPath, error: LinkError },
    /// A link that cannot be followed.
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
    #[error("`{path}` is {here}, but `{there_path}` is {there} of {other}")]
    Conflict {
        path: RelPath,
        here: &'static str,
        there_path: RelPath,
        there: &'static str,
        other: Box<SourceOrigin>,
    },
    #[error("`{path}` changed while it was read")]
    Changed { path: RelPath },
    #[error("`{path}` cannot be read")]
    Unreadable {
        path: String,
        #[source]
        source: CallError,
    },
    /// Code-workspaces refer to each other in a cycle.
    #[error("code-workspaces refer to each other in a circle: {}", .chain.join(" → "))]
    Cycle {
        /// Folders; first and last are the same.
        chain: Vec<String>,
    },
    /// Code-workspaces are nested too deeply.
    #[error("code-workspaces lie more than {limit} deep: {}", .chain.join(" → "))]
    Depth {
        chain: Vec<String>,
        /// Deepest allowed nesting.
        limit: usize,
    },
    #[error("more than {limit} sources, those of all code-workspaces counted")]
    TooManySources { limit: usize },
    /// Counts replaced files too.
    #[error("more than {limit} files in all sources, those that others replace counted")]
    TooManyFiles { limit: u64 },
    /// Becomes [`crate::error::ComposeError::BundleSize`].
    #[error("`{entry}` makes the bundle too large: {what}")]
    Size {
        /// The entry that exceeds the limit.
        entry: RelPath,
        what: SizeLimit,
    },
    #[error("{repository}: `{reference}` is {shape}; expected a commit, 40 hexadecimal digits")]
    PinRequired {
        repository: String,
        reference: String,
        shape: RefShape,
    },
    #[error(transparent)]
    GitHub(GitHubError),
}

/// Why a link cannot be followed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum FollowProblem {
    #[error("which leaves the workspace")]
    Escapes,
    #[error("which is not there")]
    Dangling,
    #[error("which leads back to where it came from")]
    Loop,
}

fn line_words(line: Option<usize>) -> String {
    line.map_or_else(String::new, |line| format!(", line {line}"))
}

fn near_words(near: Option<&String>) -> String {
    near.map_or_else(String::new, |near| format!("; did you mean `{near}`?"))
}

impl SourceProblem {
    /// Returns the stable name of the cause, in snake case.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::Missing { .. } | Self::NoMatch { .. } | Self::NoManifest { .. } => {
                "source_missing"
            }
            Self::NotDirectory { .. }
            | Self::ReferenceNotFolder { .. }
            | Self::ReferenceIsLink { .. } => "source_not_directory",
            Self::NotCodeWorkspace { .. } => "source_not_code_workspace",
            Self::SpecialFile { .. } => "source_special_file",
            Self::Pattern { .. } => "source_pattern",
            Self::IgnoreFile { .. } => "source_ignore_file",
            Self::CredentialList(_) => "credential_list",
            Self::Link { error, .. } => error.code(),
            Self::Follow { why, .. } => match why {
                FollowProblem::Escapes => "symlink_escapes",
                FollowProblem::Dangling => "symlink_dangling",
                FollowProblem::Loop => "symlink_loop",
            },
            Self::ThroughLink { .. } => "symlink_through_link",
            Self::Reserved { .. } | Self::Outside { .. } => "path_refused",
            Self::Path { .. } => "path_too_long",
            Self::TooDeep { .. } => "path_too_deep",
            Self::Conflict { .. } => "bundle_path_conflict",
            Self::Changed { .. } => "source_changed",
            Self::Unreadable { .. } => "source_unreadable",
            Self::Cycle { .. } => "code_cycle",
            Self::Depth { .. } => "code_depth",
            Self::TooManySources { .. } => "code_too_many_sources",
            Self::TooManyFiles { .. } => "source_too_many_files",
            Self::Size { .. } => "bundle_size",
            Self::PinRequired { .. } => "pin_required",
            Self::GitHub(error) => error.code(),
        }
    }

    /// Returns advice for the user, if any.
    #[must_use]
    pub fn hint(&self) -> Option<String> {
        let text = match self {
            Self::Missing { .. } => {
                "paths of `code` are relative to the workspace, which --workspace names"
            }
            Self::NoMatch { .. } => "`*` stays within one folder; `**/` passes through folders",
            Self::NotDirectory {
                found: "a symlink", ..
            } => "name what the link points to, or copy that with --symlinks=follow",
            Self::NotDirectory { .. } => "leave out the `/` at the end for a file",
            Self::ReferenceIsLink { .. } => "name the folder that the link points to",
            Self::Outside { .. } => "name the folder above both as the workspace: --workspace DIR",
            Self::NoManifest { .. } | Self::ReferenceNotFolder { .. } => {
                "a `ref` names the folder of a code-workspace"
            }
            Self::NotCodeWorkspace { .. } => {
                "write `kind: code-workspace` there, or take its files with `local`"
            }
            Self::SpecialFile { .. } => "remove it, or name the files beside it with `glob`",
            Self::Pattern { .. } => "known are `*`, `?`, `[a-z]`, `[!a-z]` and `**` between `/`",
            Self::IgnoreFile { .. } => "it is text with the patterns of a .gitignore, one a line",
            Self::Link { .. } | Self::ThroughLink { .. } => LINK_HINT,
            Self::Follow { .. } => "remove the link, or let it point into the workspace",
            Self::Conflict { .. } => "give one of the two another place with `as`",
            Self::Changed { .. } => "run it again once nothing writes to the workspace",
            Self::Cycle { .. } | Self::Depth { .. } => "remove one of the `ref` sources",
            Self::PinRequired {
                repository, shape, ..
            } => {
                let abbreviated = match shape {
                    RefShape::Abbreviated => "; fewer digits name no commit",
                    _ => "",
                };
                return Some(format!(
                    "write the commit: `git ls-remote` of {repository} shows it{abbreviated}"
                ));
            }
            Self::GitHub(error) => return error.hint(),
            Self::Unreadable { source, .. } if source.errno == rustix::io::Errno::ACCESS => {
                "give yourself the right to read it, or name the files beside it with `glob`"
            }
            Self::Reserved { .. }
            | Self::Path { .. }
            | Self::TooDeep { .. }
            | Self::Unreadable { .. }
            | Self::TooManySources { .. }
            | Self::TooManyFiles { .. }
            | Self::CredentialList(_)
            | Self::Size { .. } => return None,
        };
        Some(text.to_owned())
    }
}
