//! Why no bundle is made: the manifest, one of its sources, its size, or where it was to be written.

use rustix::io::Errno;

use crate::bundle::links::LinkError;
use crate::compose::github::{GitHubError, RefShape};
use crate::compose::origin::SourceOrigin;
use crate::kernel::file::CallError;
use crate::spec::manifest::ManifestError;
use crate::spec::path::{PathError, RelPath};

/// Why no bundle is made. All but [`ComposeError::Source`] with `source_changed`, the last two
/// classes and [`ComposeError::Output`] are found before a byte is written.
#[derive(Debug, thiserror::Error)]
pub enum ComposeError {
    /// The workspace cannot be opened.
    #[error("the workspace `{workspace}` cannot be opened")]
    Workspace {
        /// As it was given, escaped.
        workspace: String,
        /// The kernel's answer.
        #[source]
        source: CallError,
    },
    /// There is no manifest.
    #[error("`{path}` {problem}")]
    ManifestMissing {
        /// Where it was looked for, escaped.
        path: String,
        /// What is wrong with it: completes the sentence.
        problem: String,
    },
    /// The manifest lies elsewhere.
    #[error("the manifest `{manifest}` lies outside the workspace `{workspace}`")]
    ManifestOutside {
        /// The manifest, escaped.
        manifest: String,
        /// The workspace, escaped.
        workspace: String,
    },
    /// A manifest or a block that a manifest refers to cannot be read.
    #[error("`{file}` {problem}")]
    Unreadable {
        /// Relative to the workspace, escaped.
        file: String,
        /// What is wrong with it: completes the sentence.
        problem: &'static str,
        /// The kernel's answer, where there is one.
        #[source]
        source: Option<CallError>,
    },
    /// Manifests that are refused: everything that is wrong with the first of them.
    #[error("{}", lines(.0))]
    Manifest(Vec<ManifestError>),
    /// None of the convention folders has it.
    #[error("`{workspace}` has no code-workspace `{name}`; {}", known_words(.known))]
    WorkspaceNotFound {
        /// The name that was asked for, escaped.
        name: String,
        /// Where, escaped.
        workspace: String,
        /// What there is, escaped.
        known: Vec<String>,
        /// What was probably meant, escaped.
        near: Option<String>,
    },
    /// One source is refused or cannot be had.
    #[error("{at}: {problem}")]
    Source {
        /// Which.
        at: Box<SourceOrigin>,
        /// Why.
        problem: Box<SourceProblem>,
    },
    /// A link is refused in view of the whole bundle.
    #[error("{at}: `{path}` {error}")]
    Link {
        /// The source that it comes from.
        at: Box<SourceOrigin>,
        /// Where it is in the bundle.
        path: RelPath,
        /// Why.
        error: Box<LinkError>,
    },
    /// The bundle is too large.
    #[error("`{entry}` makes the bundle too large: {what}")]
    BundleSize {
        /// The entry that crossed the limit.
        entry: String,
        /// Which limit.
        what: SizeLimit,
    },
    /// The bundle cannot be written.
    #[error("the bundle cannot be written to `{file}`")]
    Output {
        /// As it was given, escaped.
        file: String,
        /// The kernel's answer.
        #[source]
        source: CallError,
    },
    /// The bundle must not be written there.
    #[error("the bundle cannot be written to `{file}`: it is {found}; expected {expected}")]
    OutputRefused {
        /// As it was given, escaped.
        file: String,
        /// What it is.
        found: &'static str,
        /// What would be accepted.
        expected: &'static str,
    },
}

/// A limit of the host policy that a bundle crosses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SizeLimit {
    /// Entries.
    #[error("more than {limit} files, directories and links (unpack.entries)")]
    Entries {
        /// The limit.
        limit: u64,
    },
    /// Bytes of all files.
    #[error("{bytes} bytes in all files up to it, expected at most {limit} (unpack.unpacked)")]
    Unpacked {
        /// Bytes up to and with the entry.
        bytes: u64,
        /// The limit.
        limit: u64,
    },
    /// Bytes of the compressed archive.
    #[error("the archive has more than {limit} bytes (unpack.archive)")]
    Archive {
        /// The limit.
        limit: u64,
    },
    /// Bytes of all names.
    #[error("more than {limit} bytes in all names, 160 for each of unpack.entries")]
    Names {
        /// The limit.
        limit: u64,
    },
}

/// Why one source is refused or cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum SourceProblem {
    /// Nothing lies there.
    #[error("`{path}` is not there{}", near_words(.near.as_ref()))]
    Missing {
        /// Where, in the workspace or the repository.
        path: RelPath,
        /// A neighbour that looks alike, escaped.
        near: Option<String>,
    },
    /// A pattern that no file matches.
    #[error("`{path}` matches no file")]
    NoMatch {
        /// The pattern.
        path: RelPath,
    },
    /// A directory was asked for.
    #[error("`{path}` is {found}; expected a directory")]
    NotDirectory {
        /// Where.
        path: RelPath,
        /// What it is.
        found: &'static str,
    },
    /// A folder without a manifest.
    #[error("`{path}` holds no manifest; expected one of {names}")]
    NoManifest {
        /// Where.
        path: RelPath,
        /// What was looked for.
        names: String,
    },
    /// A manifest of another kind.
    #[error("`{path}` is {found}; expected a code-workspace")]
    NotCodeWorkspace {
        /// The manifest.
        path: RelPath,
        /// What it is: completes the sentence.
        found: &'static str,
    },
    /// Something that no bundle holds.
    #[error("`{path}` is {found}; a bundle holds files, directories and relative links")]
    SpecialFile {
        /// Where.
        path: RelPath,
        /// What it is.
        found: &'static str,
    },
    /// A pattern that cannot be read.
    #[error("the pattern `{pattern}` cannot be read: {reason}")]
    Pattern {
        /// The pattern, escaped.
        pattern: String,
        /// Why.
        reason: String,
    },
    /// A link that is not kept.
    #[error("`{path}` {error}")]
    Link {
        /// Where.
        path: RelPath,
        /// Why.
        error: LinkError,
    },
    /// A link that is to be followed and leads nowhere.
    #[error("`{path}` is a symlink to `{target}`, {why}")]
    Follow {
        /// Where.
        path: RelPath,
        /// What it holds, escaped.
        target: String,
        /// Where it leads.
        why: FollowProblem,
    },
    /// A path through a link.
    #[error("`{path}` passes through the symlink `{link}`")]
    ThroughLink {
        /// The path.
        path: RelPath,
        /// The link.
        link: RelPath,
    },
    /// A path that no bundle holds.
    #[error("`{path}` {reason}")]
    Reserved {
        /// In the bundle.
        path: String,
        /// Why: completes the sentence.
        reason: &'static str,
    },
    /// A path that becomes too long, or too deep.
    #[error("`{path}` {error}")]
    Path {
        /// As far as it goes, escaped.
        path: String,
        /// Why.
        error: PathError,
    },
    /// A path with too many segments.
    #[error("`{path}` has {segments} segments, expected at most {limit}")]
    TooDeep {
        /// In the bundle.
        path: RelPath,
        /// How many.
        segments: usize,
        /// Most that are accepted.
        limit: usize,
    },
    /// A file where another source has a directory.
    #[error("`{path}` is {here}, but `{there_path}` is {there} of {other}")]
    Conflict {
        /// In the bundle.
        path: RelPath,
        /// What it is here.
        here: &'static str,
        /// What is in its way.
        there_path: RelPath,
        /// What that is.
        there: &'static str,
        /// Where that comes from.
        other: Box<SourceOrigin>,
    },
    /// It changed meanwhile.
    #[error("`{path}` changed while it was read")]
    Changed {
        /// Where.
        path: RelPath,
    },
    /// It cannot be read.
    #[error("`{path}` cannot be read")]
    Unreadable {
        /// Where, escaped.
        path: String,
        /// The kernel's answer.
        #[source]
        source: CallError,
    },
    /// Code-workspaces that refer to each other in a circle.
    #[error("code-workspaces refer to each other in a circle: {}", .chain.join(" → "))]
    Cycle {
        /// The folders, first and last the same.
        chain: Vec<String>,
    },
    /// Too many code-workspaces below each other.
    #[error("code-workspaces lie more than {limit} deep: {}", .chain.join(" → "))]
    Depth {
        /// The folders.
        chain: Vec<String>,
        /// Most that may lie below each other.
        limit: usize,
    },
    /// Too many sources.
    #[error("more than {limit} sources, those of all code-workspaces counted")]
    TooManySources {
        /// The limit.
        limit: usize,
    },
    /// Too many files, those that others replace counted.
    #[error("more than {limit} files in all sources, those that others replace counted")]
    TooManyFiles {
        /// The limit.
        limit: u64,
    },
    /// One entry too many; becomes [`ComposeError::BundleSize`].
    #[error("`{entry}` makes the bundle too large: {what}")]
    Size {
        /// The entry that crossed the limit.
        entry: RelPath,
        /// Which limit.
        what: SizeLimit,
    },
    /// A reference that can be moved, where only commits are accepted.
    #[error("{repository}: `{reference}` is {shape}; expected a commit, 40 hexadecimal digits")]
    PinRequired {
        /// `owner/name`.
        repository: String,
        /// As the manifest has it, escaped.
        reference: String,
        /// What it looks like.
        shape: RefShape,
    },
    /// The repository.
    #[error(transparent)]
    GitHub(GitHubError),
}

/// Where a link leads that cannot be followed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum FollowProblem {
    /// Out of the workspace.
    #[error("which leaves the workspace")]
    Escapes,
    /// To nothing.
    #[error("which is not there")]
    Dangling,
    /// In a circle.
    #[error("which leads back to where it came from")]
    Loop,
}

/// The classes of errors that AIP-26 tells apart, and where the bundle goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ErrorClass {
    /// A manifest is not accepted.
    Manifest,
    /// A source is not accepted or cannot be had.
    Source,
    /// The bundle is too large.
    BundleSize,
    /// The bundle cannot be written.
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

fn near_words(near: Option<&String>) -> String {
    near.map_or_else(String::new, |near| format!("; did you mean `{near}`?"))
}

impl ComposeError {
    /// `problem` of the source `at`.
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

    /// Which class of errors it is.
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

    /// Stable name of the cause, in snake case.
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

    /// What to do about it, where something can be said.
    #[must_use]
    pub fn hint(&self) -> Option<String> {
        let text = match self {
            Self::Workspace { .. } => "give a directory with --workspace",
            Self::ManifestMissing { .. } => {
                "give a manifest, a folder that holds one, or --workspace DIR and a name"
            }
            Self::ManifestOutside { .. } => "give a folder above the manifest with --workspace",
            Self::Manifest(errors) => return errors.first().and_then(ManifestError::hint),
            Self::WorkspaceNotFound { near, .. } => {
                return near.as_ref().map(|near| format!("did you mean `{near}`?"));
            }
            Self::Source { problem, .. } => return problem.hint(),
            Self::Link { .. } => LINK_HINT,
            Self::BundleSize { .. } => {
                "leave out what the body does not need, or raise the key in the host's \
                 configuration"
            }
            Self::Output { source, .. } if source.errno == Errno::NOSPC => {
                "make room there, or write it elsewhere with -o"
            }
            Self::Unreadable { .. } | Self::Output { .. } | Self::OutputRefused { .. } => {
                return None;
            }
        };
        Some(text.to_owned())
    }
}

const LINK_HINT: &str = "replace the link by a relative one to a file or directory of the bundle, \
                         or copy what it points to with --symlinks=follow";

impl SourceProblem {
    /// Stable name of the cause, in snake case.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::Missing { .. } | Self::NoMatch { .. } | Self::NoManifest { .. } => {
                "source_missing"
            }
            Self::NotDirectory { .. } => "source_not_directory",
            Self::NotCodeWorkspace { .. } => "source_not_code_workspace",
            Self::SpecialFile { .. } => "source_special_file",
            Self::Pattern { .. } => "source_pattern",
            Self::Link { error, .. } => error.code(),
            Self::Follow { why, .. } => match why {
                FollowProblem::Escapes => "symlink_escapes",
                FollowProblem::Dangling => "symlink_dangling",
                FollowProblem::Loop => "symlink_loop",
            },
            Self::ThroughLink { .. } => "symlink_through_link",
            Self::Reserved { .. } => "path_refused",
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

    /// What to do about it, where something can be said.
    #[must_use]
    pub fn hint(&self) -> Option<String> {
        let text = match self {
            Self::Missing { .. } => {
                "paths of `code` are relative to the workspace, which --workspace names"
            }
            Self::NoMatch { .. } => "`*` stays within one folder; `**/` passes through folders",
            Self::NotDirectory { .. } => "leave out the `/` at the end for a file",
            Self::NoManifest { .. } => "a `ref` names the folder of a code-workspace",
            Self::NotCodeWorkspace { .. } => {
                "write `kind: code-workspace` there, or take its files with `local`"
            }
            Self::SpecialFile { .. } => "remove it, or name the files beside it with `glob`",
            Self::Pattern { .. } => "known are `*`, `?`, `[a-z]`, `[!a-z]` and `**` between `/`",
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
            Self::Reserved { .. }
            | Self::Path { .. }
            | Self::TooDeep { .. }
            | Self::Unreadable { .. }
            | Self::TooManySources { .. }
            | Self::TooManyFiles { .. }
            | Self::Size { .. } => return None,
        };
        Some(text.to_owned())
    }
}
