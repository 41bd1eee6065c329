//! Why a file was not staged, synced, kept or removed: a stable code, a message, a hint.

use rustix::io::Errno;

use spec::path::PathError;
use spec::report::ErrorReport;
use spec::units::limit;

/// Why a file was not staged, synced, kept or removed. Its texts are escaped. Paths of inputs, outputs
/// and temporary files are relative to the workspace.
#[derive(Debug, thiserror::Error)]
pub enum ScratchError {
    /// A declared input cannot be staged; the run must not start.
    #[error("input `{key}`: `{path}` in the workspace {cause}")]
    Input {
        key: String,
        path: String,
        #[source]
        cause: Unfit,
    },
    /// The body's file for a declared output cannot be copied.
    #[error("output `{key}` (for `{path}`): the file in the scratch directory {cause}")]
    Output {
        /// Its name in the scratch directory.
        key: String,
        /// Its destination.
        path: String,
        #[source]
        cause: Unfit,
    },
    /// A declared output cannot be written to its destination.
    #[error("output `{key}`: destination `{path}` in {directory} {cause}")]
    Destination {
        key: String,
        /// The workspace, or the directory for outputs, as the caller named it.
        directory: String,
        path: String,
        #[source]
        cause: Unwritable,
    },
    /// Other programs execute the destination later, and it is not granted.
    #[error("destination `{path}`: {reason}")]
    DestinationRefused { path: String, reason: Refusal },
    /// Two outputs would overwrite each other.
    #[error("outputs `{first}` and `{second}` both write to `{path}` or below it")]
    OutputsOverlap {
        first: String,
        second: String,
        path: String,
    },
    /// A key is not a file name.
    #[error("key `{key}` {reason}; a key is one file name")]
    KeyRefused { key: String, reason: &'static str },
    #[error("key `{key}` is declared twice")]
    KeyTwice { key: String },
    #[error("{found} files are declared, {limit} are accepted")]
    TooManyFiles {
        found: usize,
        /// [`crate::staging::FileLimits::files`].
        limit: usize,
    },
    /// A link on the way to the workspace is neither the caller's nor root's.
    #[error(
        "the directory `{path}` cannot be used: the link `{link}` on the way belongs to uid {uid}"
    )]
    WorkspaceLink {
        path: String,
        link: String,
        uid: u32,
    },
    /// The workspace cannot be opened or locked.
    #[error("workspace {path}: {call}: {errno}")]
    WorkspaceUnusable {
        path: String,
        call: &'static str,
        #[source]
        errno: Errno,
    },
    /// The lock file of the runtime directory cannot be opened.
    #[error("workspaces cannot be locked while outputs are written to them: {error}")]
    LocksUnusable {
        #[source]
        error: std::io::Error,
    },
    /// Another run held the lock of the workspace for too long.
    #[error("{path} is locked by another run that writes its outputs; waited {waited_ms} ms")]
    WorkspaceBusy { path: String, waited_ms: u128 },
    /// The staged copy of an input cannot be written.
    #[error("input `{key}`: {call} in the scratch directory: {errno}")]
    ScratchUnwritable {
        key: String,
        call: &'static str,
        #[source]
        errno: Errno,
    },
    /// The kernel refused the body's file ids.
    #[error("file ids of the body (setfsuid, setfsgid): {errno}")]
    FileIds {
        #[source]
        errno: Errno,
    },
    #[error("run id `{found}` is not 1 to 64 lower-case letters and digits")]
    RunIdRefused { found: String },
    /// A recorded name is not one that [`crate::staging::sync`] makes.
    #[error("`{path}` is not a temporary file of the runner: {reason}")]
    TemporaryNotOurs { path: String, reason: &'static str },
    /// A temporary file of an earlier run cannot be removed.
    #[error("temporary file `{path}`: {call}: {errno}")]
    TemporaryStuck {
        path: String,
        call: &'static str,
        #[source]
        errno: Errno,
    },
    /// A directory tree cannot be copied any further.
    #[error("{call} `{object}`: {errno}")]
    Tree {
        call: &'static str,
        object: String,
        #[source]
        errno: Errno,
    },
}

/// Why a file cannot be copied. The message continues the file's name.
#[derive(Debug, thiserror::Error)]
pub enum Unfit {
    #[error("does not exist")]
    Missing,
    #[error("is a symbolic link; links are never followed")]
    Link,
    /// A directory on the way is a link, or the path leads out of the directory.
    #[error("leads through a link or out of the directory ({0})")]
    Escapes(#[source] Errno),
    #[error("is {0}, not a regular file")]
    NotRegular(&'static str),
    #[error("has more than one hard link")]
    HardLinked,
    #[error("cannot be read: {0}")]
    Unreadable(#[source] Errno),
    #[error("has mode {0:04o}: its owner cannot read it")]
    ModeUnreadable(u32),
    #[error("has {bytes} bytes, {} are accepted for one file", limit(.limit_bytes))]
    TooLarge {
        bytes: u64,
        /// [`crate::staging::FileLimits::file_bytes`].
        limit_bytes: u64,
    },
    #[error("has {bytes} bytes, and {left_bytes} of {} for all files are left", limit(.limit_bytes))]
    TotalTooLarge {
        bytes: u64,
        left_bytes: u64,
        /// [`crate::staging::FileLimits::total_bytes`].
        limit_bytes: u64,
    },
    /// It grew, shrank or was replaced while it was copied.
    #[error("{0} while it was being copied")]
    Changed(&'static str),
}

/// Why a destination cannot be written. The message continues the destination's name.
#[derive(Debug, thiserror::Error)]
pub enum Unwritable {
    #[error("is a directory; a file does not replace it")]
    Directory,
    /// A directory on the way is a link, or the path leads out of the workspace.
    #[error("leads through a link or out of that directory ({0})")]
    Escapes(#[source] Errno),
    /// After mkdir(2) another directory has the name.
    #[error("lies below a directory that was replaced while it was being made")]
    Replaced,
    #[error("leaves no room for a temporary name beside it: the path {0}")]
    NameTooLong(#[source] PathError),
    #[error("has files beside it under every temporary name that was tried")]
    NamesTaken,
    #[error("was not touched: the temporary name could not be recorded: {0}")]
    Journal(#[source] std::io::Error),
    /// A system call failed; the old file is as it was.
    #[error("cannot be written: {call}: {errno}{}", Left(.left_behind.as_ref()))]
    Call {
        call: &'static str,
        #[source]
        errno: Errno,
        /// Why the temporary file could not be removed.
        left_behind: Option<Errno>,
    },
    #[error("has the new file, but fsync of its directory failed: {0}")]
    NotDurable(#[source] Errno),
}

struct Left<'error>(Option<&'error Errno>);

impl std::fmt::Display for Left<'_> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.map_or(Ok(()), |errno| {
            write!(formatter, "; the temporary file beside it stays: {errno}")
        })
    }
}

/// The rule by which a destination is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// Version control, an editor, a forge, ssh or the runner acts on files of this directory.
    #[error("files below such a directory are executed or obeyed later, outside the sandbox")]
    ObeyedDirectory,
    /// A file that another program reads, such as `.npmrc`.
    #[error("programs execute or obey a file of that name, outside the sandbox")]
    ObeyedFile,
    /// A file that shells read when they start or end.
    #[error("shells execute a file of that name, outside the sandbox")]
    ShellFile,
    /// A name of the form that only the runner makes and removes.
    #[error("names of the form .runner-….tmp belong to the runner")]
    OwnTemporary,
}

impl ScratchError {
    /// The stable error code of the report.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::Input { cause, .. } => match cause {
                Unfit::Missing => "input_missing",
                Unfit::Link | Unfit::Escapes(_) => "input_escapes",
                Unfit::NotRegular(_) => "input_not_regular",
                Unfit::HardLinked => "input_hard_linked",
                Unfit::Unreadable(_) | Unfit::ModeUnreadable(_) => "input_unreadable",
                Unfit::TooLarge { .. } | Unfit::TotalTooLarge { .. } => "input_too_large",
                Unfit::Changed(_) => "input_changed",
            },
            Self::Output { cause, .. } => match cause {
                Unfit::Missing => "output_missing",
                Unfit::Link => "output_is_link",
                Unfit::Escapes(_) => "output_escapes",
                Unfit::NotRegular(_) => "output_not_regular",
                Unfit::HardLinked => "output_hard_linked",
                Unfit::Unreadable(_) | Unfit::ModeUnreadable(_) => "output_unreadable",
                Unfit::TooLarge { .. } | Unfit::TotalTooLarge { .. } => "output_too_large",
                Unfit::Changed(_) => "output_changed",
            },
            Self::Destination { cause, .. } => match cause {
                Unwritable::Directory => "destination_is_directory",
                Unwritable::Escapes(_) | Unwritable::Replaced => "destination_escapes",
                Unwritable::Call {
                    errno: Errno::NOSPC | Errno::DQUOT,
                    ..
                } => "destination_full",
                Unwritable::NameTooLong(_) => "destination_name_too_long",
                Unwritable::NotDurable(_) => "destination_not_durable",
                Unwritable::NamesTaken | Unwritable::Journal(_) | Unwritable::Call { .. } => {
                    "destination_unwritable"
                }
            },
            Self::DestinationRefused { .. } => "destination_refused",
            Self::OutputsOverlap { .. } => "outputs_overlap",
            Self::KeyRefused { .. } => "key_refused",
            Self::KeyTwice { .. } => "key_twice",
            Self::TooManyFiles { .. } => "too_many_files",
            Self::WorkspaceUnusable { .. } => "workspace_unusable",
            Self::WorkspaceLink { .. } => "workspace_link",
            Self::LocksUnusable { .. } => "locks_unusable",
            Self::WorkspaceBusy { .. } => "workspace_busy",
            Self::ScratchUnwritable {
                errno: Errno::NOSPC | Errno::DQUOT,
                ..
            } => "scratch_full",
            Self::ScratchUnwritable { .. } => "scratch_unwritable",
            Self::FileIds { .. } => "file_ids_refused",
            Self::RunIdRefused { .. } => "run_id_refused",
            Self::TemporaryNotOurs { .. } => "temporary_not_ours",
            Self::TemporaryStuck { .. } => "temporary_stuck",
            Self::Tree { .. } => "tree_unusable",
        }
    }

    /// What to do about it.
    #[must_use]
    pub fn hint(&self) -> Option<&'static str> {
        Some(match self.code() {
            "input_missing" => "make the file, or correct the path; it is relative to --workspace",
            "input_escapes" => "declare the file itself, inside the workspace, not a link to it",
            "input_not_regular" | "output_not_regular" => "only regular files are copied",
            "input_unreadable" => "give the user who starts the runner the right to read it",
            "input_too_large" => "make the file smaller, or give the body its directory with --ro",
            "output_too_large" => "make the file smaller, or give the body a directory with --rw",
            "input_changed" => "start the run when nothing else writes the file",
            "output_is_link" | "output_hard_linked" | "output_escapes" => {
                "the body should write a regular file of its own under that name"
            }
            "output_unreadable" => "the body should leave the file readable by its owner",
            "output_changed" => "nothing should write to the scratch directory after the outcome",
            "destination_is_directory" => "choose the path of a file, or remove the directory",
            "destination_escapes" => "replace the link on the way with a directory",
            "destination_full" => "free space there",
            "destination_name_too_long" => "choose a shorter path",
            "destination_not_durable" => "look at the kernel log for an error of the disk",
            "destination_unwritable" => {
                "give the user who starts the runner the right to write there"
            }
            "destination_refused" if self.is_never_granted() => "choose another path",
            "destination_refused" => "grant it with --grant outputs, or choose another path",
            "outputs_overlap" | "key_twice" => "give each output a path and a key of its own",
            "key_refused" => {
                "rename the key: one name, at most 255 bytes, no `/`, no control character, not beginning with `-`"
            }
            "too_many_files" => "declare fewer files; let the body pack them into one archive",
            "workspace_unusable" => "give --workspace a directory that you may read",
            "workspace_link" => {
                "name the directory itself, or make the link as the user who starts the runner"
            }
            "locks_unusable" => "name a directory of your own with RUNNER_OPT_RUNTIME_DIRECTORY",
            "workspace_busy" => "wait until the other run has ended; its sync holds the lock",
            "scratch_full" => "raise --disk, or stage smaller files",
            "temporary_not_ours" | "temporary_stuck" => "look at the file and remove it by hand",
            _ => return None,
        })
    }

    fn is_never_granted(&self) -> bool {
        let Self::DestinationRefused { reason, .. } = self else {
            return false;
        };
        *reason == Refusal::OwnTemporary
    }
}

impl From<&ScratchError> for ErrorReport {
    fn from(error: &ScratchError) -> Self {
        Self {
            hint: error.hint().map(str::to_owned),
            ..Self::new(error.code(), error.to_string())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_grant_is_suggested_only_for_a_destination_that_can_be_granted() {
        for (reason, can_be_granted) in [
            (Refusal::ShellFile, true),
            (Refusal::ObeyedDirectory, true),
            (Refusal::ObeyedFile, true),
            (Refusal::OwnTemporary, false),
        ] {
            let path = "x".to_owned();
            let hint = ScratchError::DestinationRefused { path, reason }.hint();
            assert_eq!(
                hint.is_some_and(|hint| hint.contains("--grant")),
                can_be_granted
            );
        }
    }
}
