//! The stable code and the hint of each error.

use std::borrow::Cow;

use rustix::io::Errno;

use crate::error::{BundleError, FollowProblem};
use crate::origin::{SourceKind, SourceOrigin};
use crate::outputs::OTHER_KIND;
use sources::github::RefShape;
use spec::manifest::ManifestError;

const LINK_HINT: &str = "replace the link by a relative one to a file or directory of the bundle, \
                         or copy what it points to with --symlinks=follow";

impl BundleError {
    /// Returns the stable name of the cause, in snake case.
    #[must_use]
    pub fn code(&self) -> &'static str {
        self.code_and_hint().0
    }

    /// Returns advice for the user, if any.
    #[must_use]
    pub fn hint(&self) -> Option<String> {
        let hint = self.code_and_hint().1;
        Some(hint.into_owned()).filter(|hint| !hint.is_empty())
    }

    #[expect(clippy::too_many_lines, reason = "a table")]
    fn code_and_hint(&self) -> (&'static str, Cow<'static, str>) {
        let (code, hint) = match self {
            Self::At { at, error } => return error.code_and_hint_at(at),

            Self::Workspace { .. } => ("workspace_unreadable", "give a directory with --workspace"),
            Self::ManifestMissing { .. } => (
                "manifest_missing",
                "give a manifest, a folder with one, or --workspace DIR and a name",
            ),
            Self::ManifestOutside { .. } => (
                "manifest_outside_workspace",
                "give a folder above the manifest with --workspace",
            ),
            Self::ManifestUnreadable(unread) if unread.is_denied() => {
                ("manifest_unreadable", "check the permissions of the file")
            }
            Self::ManifestUnreadable(_) => (
                "manifest_unreadable",
                "a manifest is a .yaml, .json or .md file of at most 1 MiB",
            ),
            Self::Manifest(errors) => {
                let code = errors.first().map_or("manifest", ManifestError::code);
                let hint = errors.first().and_then(ManifestError::hint);
                return (code, hint.unwrap_or_default().into());
            }
            Self::WorkspaceNotFound {
                suggestion: Some(name),
                ..
            } => {
                return (
                    "workspace_not_found",
                    format!("did you mean `{name}`?").into(),
                );
            }
            Self::WorkspaceNotFound { .. } => (
                "workspace_not_found",
                "give the path of a manifest or of a folder with one, or a known name",
            ),

            Self::ReferenceNotFolder { .. } => (
                "source_not_directory",
                "a `ref` names the folder of a code-workspace",
            ),
            Self::ReferenceIsLink { .. } => (
                "source_not_directory",
                "name the folder that the link points to",
            ),
            Self::NoManifest { .. } => (
                "source_missing",
                "a `ref` names the folder of a code-workspace",
            ),
            Self::NotCodeWorkspace { .. } => (
                "source_not_code_workspace",
                "write `kind: code-workspace` in it, or name its files with `local`",
            ),
            Self::Cycle { .. } => ("code_cycle", "remove one of the `ref` sources"),
            Self::Depth { .. } => ("code_depth", "remove one of the `ref` sources"),
            Self::TooManySources { .. } => ("code_too_many_sources", ""),

            Self::Missing { .. } => (
                "source_missing",
                "paths of `code` are relative to the workspace: --workspace DIR names it",
            ),
            Self::NoMatch { .. } => (
                "source_missing",
                "`*` stays within one folder; `**/` passes through folders",
            ),
            Self::NotDirectory {
                found: "a symlink", ..
            } => (
                "source_not_directory",
                "name the target of the link, or copy the target with --symlinks=follow",
            ),
            Self::NotDirectory { .. } => (
                "source_not_directory",
                "leave out the `/` at the end for a file",
            ),
            Self::Outside { .. } => (
                "path_refused",
                "name a folder that contains both as the workspace: --workspace DIR",
            ),
            Self::SpecialFile { .. } => (
                "source_special_file",
                "remove it, or select other files with `glob`",
            ),
            Self::Pattern { .. } => (
                "source_pattern",
                "allowed are `*`, `?`, `[a-z]`, `[!a-z]`, and `**` as a whole segment",
            ),
            Self::Unmatched { .. } => (
                "source_unmatched",
                "use fewer patterns in ignore files and `glob`, or bundle a smaller folder",
            ),
            Self::IgnoreFile { .. } => (
                "source_ignore_file",
                "it must have the syntax of a .gitignore: UTF-8, one pattern per line",
            ),
            Self::CredentialList(_) => ("credential_list", ""),
            Self::Link { error, .. } => (error.code(), LINK_HINT),
            Self::Follow { why, .. } => (
                match why {
                    FollowProblem::Escapes => "symlink_escapes",
                    FollowProblem::Dangling => "symlink_dangling",
                    FollowProblem::Loop => "symlink_loop",
                },
                "remove the link, or let it point to a file of the workspace",
            ),
            Self::ThroughLink { .. } => ("symlink_through_link", LINK_HINT),
            Self::Reserved { .. } => ("path_refused", ""),
            Self::Path { .. } => ("path_too_long", ""),
            Self::TooDeep { .. } => ("path_too_deep", ""),
            Self::Conflict { .. } => (
                "bundle_path_conflict",
                "give one of the two another path with `as`",
            ),
            Self::Changed { .. } => (
                "source_changed",
                "run it again when nothing writes to the workspace",
            ),
            Self::Unreadable { source, .. } if source.errno == Errno::ACCESS => (
                "source_unreadable",
                "check the permissions of the file, or select others with `glob`",
            ),
            Self::Unreadable { .. } => ("source_unreadable", ""),
            Self::TooManyFiles { .. } => ("source_too_many_files", ""),
            Self::Size { .. } => (
                "bundle_size",
                "leave out what the body does not need, or raise the key in the host's configuration",
            ),

            Self::PinRequired {
                repository, shape, ..
            } => {
                let abbreviated = match shape {
                    RefShape::Abbreviated => "; fewer digits name no commit",
                    _ => "",
                };
                let hint = format!(
                    "write the commit: `git ls-remote` of {repository} shows it{abbreviated}"
                );
                return ("pin_required", hint.into());
            }
            Self::Token { .. } => (
                "github_setting",
                "correct `github.token` of the host's configuration, or the variable or file that it names",
            ),
            Self::GitHub(error) => return (error.code(), error.hint().unwrap_or_default().into()),

            Self::Lock(error) => return ("lock_invalid", error.hint().into()),
            Self::LockUnreadable(_) => ("lock_invalid", "write one: leave out --locked"),
            Self::Drift { .. } => ("lock_drift", "write a new lock file: leave out --locked"),
            Self::SourceTag { .. } => (
                "source_tag_refused",
                "append its digest, @sha256:…: `runner source inspect` prints it",
            ),
            Self::Output { source, .. } => match source.errno {
                Errno::NOSPC => (
                    "output_no_space",
                    "free space there, or write to another file system with -o",
                ),
                Errno::PIPE => ("output_unwritable", "the reader closed the pipe too early"),
                Errno::NOENT => (
                    "output_unwritable",
                    "create the directory first, or give another path",
                ),
                _ => ("output_unwritable", "give a path that you may write to"),
            },
            Self::OutputRefused { found, .. } if *found == OTHER_KIND => (
                "output_refused",
                "remove it first if you do not need it, or give another name",
            ),
            Self::OutputRefused { .. } => ("output_refused", "give another name"),
            Self::Json(_) => ("internal", ""),

            Self::SourceDirectory { .. } => {
                ("source_unreadable", "give a directory that you may read")
            }
            Self::SourceName {
                is_default: true, ..
            } => (
                "source_name",
                "the name of the directory is the default: give another one with --name",
            ),
            Self::SourceName { .. } => (
                "source_name",
                "it is a part of NAME:VERSION; a version may begin with `_` too",
            ),
            Self::SourceVersion { .. } => ("source_version_missing", "give one with --version"),
            Self::SourceTextTooLong { .. } => ("source_config_too_long", "make it shorter"),
            Self::SourcePath { .. } => (
                "source_missing",
                "paths are relative to the directory that is built",
            ),
            Self::SparseEmpty { .. } => (
                "source_sparse_empty",
                "it is empty, or everything in it is excluded: see .staxignore and `git status`",
            ),
            Self::NoSubmodules { .. } => ("source_no_submodules", "leave out --submodules"),
            Self::Strict(_) => (
                "source_left_out",
                "name them in .staxignore, remove them, add files that are no credentials with \
                 --include, or leave out --strict",
            ),
            Self::SnapshotSize { .. } => (
                "source_size",
                "exclude files with .staxignore or --sparse, or raise the key in the host's \
                 configuration",
            ),
            Self::GitMissing { .. } => (
                "source_git_missing",
                "install git, or build a plain directory with --no-git",
            ),
            Self::GitDirectory(_) => (
                "source_git_failed",
                "set TMPDIR to a directory that you may write to",
            ),
            Self::GitFailed { .. } | Self::GitUnread { .. } => (
                "source_git_failed",
                "see the output of `git status` there, or build a plain directory with --no-git",
            ),
        };
        (code, hint.into())
    }

    /// Like [`Self::code_and_hint`], for a known source.
    fn code_and_hint_at(&self, at: &SourceOrigin) -> (&'static str, Cow<'static, str>) {
        let is_snapshot = at.kind == SourceKind::Snapshot;
        let hint: Cow<'static, str> = match self {
            Self::Missing { .. } if at.file.contains('/') && !is_snapshot => format!(
                "paths of `code` are relative to the workspace, not to `{}`; --workspace DIR names \
                 another",
                at.file
            )
            .into(),
            Self::Unreadable { source, .. } if is_snapshot && source.errno == Errno::ACCESS => {
                "check the permissions of the file, or name it in .staxignore".into()
            }
            Self::Changed { .. } if is_snapshot => {
                "run it again when nothing writes to the directory".into()
            }
            Self::Missing { .. } if is_snapshot => "".into(),
            other => return other.code_and_hint(),
        };
        (self.code(), hint)
    }
}
