//! The stable code and the hint of each error.

use std::borrow::Cow;

use rustix::io::Errno;

use crate::error::{BundleError, FollowProblem};
use crate::origin::{SourceKind, SourceOrigin};
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
                "give a manifest, a folder that holds one, or --workspace DIR and a name",
            ),
            Self::ManifestOutside { .. } => (
                "manifest_outside_workspace",
                "give a folder above the manifest with --workspace",
            ),
            Self::ManifestUnreadable(unread) if unread.is_denied() => {
                ("manifest_unreadable", "give yourself the right to read it")
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
                near: Some(near), ..
            } => {
                return (
                    "workspace_not_found",
                    format!("did you mean `{near}`?").into(),
                );
            }
            Self::WorkspaceNotFound { .. } => (
                "workspace_not_found",
                "give the path of a manifest or of a folder that holds one, or a name that is there",
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
                "write `kind: code-workspace` there, or take its files with `local`",
            ),
            Self::Cycle { .. } => ("code_cycle", "remove one of the `ref` sources"),
            Self::Depth { .. } => ("code_depth", "remove one of the `ref` sources"),
            Self::TooManySources { .. } => ("code_too_many_sources", ""),

            Self::Missing { .. } => (
                "source_missing",
                "paths of `code` are relative to the workspace, which --workspace names",
            ),
            Self::NoMatch { .. } => (
                "source_missing",
                "`*` stays within one folder; `**/` passes through folders",
            ),
            Self::NotDirectory {
                found: "a symlink", ..
            } => (
                "source_not_directory",
                "name what the link points to, or copy that with --symlinks=follow",
            ),
            Self::NotDirectory { .. } => (
                "source_not_directory",
                "leave out the `/` at the end for a file",
            ),
            Self::Outside { .. } => (
                "path_refused",
                "name the folder above both as the workspace: --workspace DIR",
            ),
            Self::SpecialFile { .. } => (
                "source_special_file",
                "remove it, or name the files beside it with `glob`",
            ),
            Self::Pattern { .. } => (
                "source_pattern",
                "known are `*`, `?`, `[a-z]`, `[!a-z]` and `**` between `/`",
            ),
            Self::IgnoreFile { .. } => (
                "source_ignore_file",
                "it is text with the patterns of a .gitignore, one a line",
            ),
            Self::CredentialList(_) => ("credential_list", ""),
            Self::Link { error, .. } => (error.code(), LINK_HINT),
            Self::Follow { why, .. } => (
                match why {
                    FollowProblem::Escapes => "symlink_escapes",
                    FollowProblem::Dangling => "symlink_dangling",
                    FollowProblem::Loop => "symlink_loop",
                },
                "remove the link, or let it point into the workspace",
            ),
            Self::ThroughLink { .. } => ("symlink_through_link", LINK_HINT),
            Self::Reserved { .. } => ("path_refused", ""),
            Self::Path { .. } => ("path_too_long", ""),
            Self::TooDeep { .. } => ("path_too_deep", ""),
            Self::Conflict { .. } => (
                "bundle_path_conflict",
                "give one of the two another place with `as`",
            ),
            Self::Changed { .. } => (
                "source_changed",
                "run it again once nothing writes to the workspace",
            ),
            Self::Unreadable { source, .. } if source.errno == Errno::ACCESS => (
                "source_unreadable",
                "give yourself the right to read it, or name the files beside it with `glob`",
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
                "correct `github.token` of the host's configuration, or what it names",
            ),
            Self::GitHub(error) => return (error.code(), error.hint().unwrap_or_default().into()),

            Self::Lock(error) => return ("lock_invalid", error.hint().into()),
            Self::LockUnreadable(_) => ("lock_invalid", "write one: leave out --locked"),
            Self::Drift { .. } => ("lock_drift", "write the lock file anew: leave out --locked"),
            Self::SourceTag { .. } => (
                "source_tag_refused",
                "write its digest behind it, @sha256:…: `runner source inspect` prints it",
            ),
            Self::Output { source, .. } => match source.errno {
                Errno::NOSPC => (
                    "output_no_space",
                    "make room there, or write it elsewhere with -o",
                ),
                Errno::PIPE => ("output_unwritable", "the reader closed it too early"),
                Errno::NOENT => (
                    "output_unwritable",
                    "make the directory first, or give another place",
                ),
                _ => ("output_unwritable", "give a place that you may write to"),
            },
            Self::OutputRefused { found, .. } if found.contains("lost") => (
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
                "it is empty, or all of it is left out: see .staxignore, and `git status`",
            ),
            Self::NoSubmodules { .. } => ("source_no_submodules", "leave out --submodules"),
            Self::Strict(_) => (
                "source_left_out",
                "name them in .staxignore, remove them, take what is no credential with --include, \
                 or leave out --strict",
            ),
            Self::SnapshotSize { .. } => (
                "source_size",
                "leave files out with .staxignore or --sparse, or raise the key in the host's \
                 configuration",
            ),
            Self::GitMissing { .. } => (
                "source_git_missing",
                "install git, or take the directory as it is with --no-git",
            ),
            Self::GitDirectory(_) => (
                "source_git_failed",
                "set TMPDIR to a directory that you may write to",
            ),
            Self::GitFailed { .. } => (
                "source_git_failed",
                "see what `git status` says there, or take the directory as it is with --no-git",
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
                "give yourself the right to read it, or name it in .staxignore".into()
            }
            Self::Changed { .. } if is_snapshot => "run it again once nothing writes there".into(),
            Self::Missing { .. } if is_snapshot => "".into(),
            other => return other.code_and_hint(),
        };
        (self.code(), hint)
    }
}
