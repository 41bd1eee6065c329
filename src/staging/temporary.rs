//! Temporary files beside a destination: their name, record and removal.

use std::os::fd::{AsFd as _, OwnedFd};
use std::path::Path;

use rustix::fs::{AtFlags, FileType, Mode, OFlags};
use rustix::io::Errno;

use crate::staging::error::{ScratchError, Unwritable};
use crate::staging::workspace::Workspace;
use spec::path::{RelPath, escape};
use sys::file::{open_beneath, remove_tree};
use sys::probe::effective_uid;

const PREFIX: &[u8] = b".runner-";
const SUFFIX: &[u8] = b".tmp";
/// Of the names of directories: those of copies, and of git in `runner source build`. Digits follow.
pub(crate) const COPY_PREFIX: &str = ".runner-cp-";
pub(crate) const GIT_PREFIX: &str = "runner-source-";
/// As [`sys::process::random_digits`] makes them.
const DIRECTORY_DIGITS: usize = 16;
const RUN_ID_BYTES_MAX: usize = 64;
const NUMBER_DIGITS_MAX: usize = 10;

/// The path of a temporary file, relative to the workspace: `<parents>/.runner-<run id>-<n>.tmp`.
///
/// The run id makes it hard to guess. A later start recognises the form, so it can remove what a
/// SIGKILL left and never anything else.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TemporaryName(RelPath);

/// Steps of the sync of one output, for tests that end the process at each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SyncStep {
    /// The temporary file was made, empty.
    Made,
    /// It holds all bytes.
    Copied,
    /// Its owner and mode are set.
    Owned,
    /// Its bytes are on the disk.
    FileSynced,
    /// It has the name of the destination.
    Renamed,
    /// The name is on the disk.
    DirectorySynced,
}

/// What a sync needs of the runtime directory: a record of temporary names that outlives the process,
/// and a lock file that no body reaches.
pub trait Journal {
    /// Opens the lock file once more. A sync locks one byte of it for its workspace.
    ///
    /// # Errors
    /// No output is written then.
    fn locks(&mut self) -> Result<OwnedFd, std::io::Error>;

    /// Called before a file of that name is made.
    ///
    /// # Errors
    /// The file is not made, and the output not written.
    fn record(&mut self, temporary: &TemporaryName) -> Result<(), std::io::Error>;

    /// Called when the file is gone. A journal may keep the name: removing a missing file is no error.
    fn forget(&mut self, temporary: &TemporaryName);

    /// Called after each step of each output.
    fn reached(&mut self, _step: SyncStep) {}
}

impl TemporaryName {
    /// Name number `number` of run `run_id` in the directory `parent` of the workspace.
    pub(super) fn new(
        parent: Option<&RelPath>,
        run_id: &str,
        number: u32,
    ) -> Result<Self, Unwritable> {
        let name = format!(".runner-{run_id}-{number}.tmp");
        RelPath::parse_in(parent, name.as_bytes())
            .map(Self)
            .map_err(Unwritable::NameTooLong)
    }

    /// Reads a path from a record.
    ///
    /// # Errors
    /// [`ScratchError::TemporaryNotOurs`] if the last segment has another form.
    pub fn parse(path: RelPath) -> Result<Self, ScratchError> {
        if is_temporary_name(path.file_name()) {
            return Ok(Self(path));
        }
        Err(ScratchError::TemporaryNotOurs {
            path: path.to_string(),
            reason: "its name does not have the form .runner-<run id>-<number>.tmp",
        })
    }

    /// The path, relative to the workspace.
    #[must_use]
    pub fn path(&self) -> &RelPath {
        &self.0
    }
}

/// Refuses run ids that would give names of another form.
pub(super) fn check_run_id(run_id: &str) -> Result<(), ScratchError> {
    if is_run_id(run_id.as_bytes()) {
        return Ok(());
    }
    Err(ScratchError::RunIdRefused {
        found: escape(run_id.as_bytes()),
    })
}

pub(super) fn is_temporary_name(name: &[u8]) -> bool {
    let parts = name
        .strip_prefix(PREFIX)
        .and_then(|rest| rest.strip_suffix(SUFFIX))
        .and_then(|middle| {
            let cut = middle.iter().position(|byte| *byte == b'-')?;
            Some((&middle[..cut], &middle[cut + 1..]))
        });
    parts.is_some_and(|(run_id, number)| {
        is_run_id(run_id)
            && (1..=NUMBER_DIGITS_MAX).contains(&number.len())
            && number.iter().all(u8::is_ascii_digit)
    })
}

fn is_run_id(bytes: &[u8]) -> bool {
    (1..=RUN_ID_BYTES_MAX).contains(&bytes.len())
        && bytes
            .iter()
            .all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'z'))
}

/// Removes a temporary file that a killed run left; `false` if there is none.
///
/// Removes only a regular file with one hard link, reached without a symbolic link: the record may be
/// old, and others can write in the workspace.
///
/// # Errors
/// [`ScratchError::WorkspaceUnusable`], [`ScratchError::TemporaryNotOurs`] if something else has that
/// name, [`ScratchError::TemporaryStuck`] with the errno of the call that failed.
pub fn remove_temporary(
    workspace_directory: &Path,
    temporary: &TemporaryName,
) -> Result<bool, ScratchError> {
    let workspace = match Workspace::open(workspace_directory) {
        Err(ScratchError::WorkspaceUnusable {
            errno: Errno::NOENT,
            ..
        }) => return Ok(false),
        other => other?,
    };
    let path = temporary.path();
    let stuck = |call| {
        move |errno| ScratchError::TemporaryStuck {
            path: path.to_string(),
            call,
            errno,
        }
    };
    let not_ours = |reason| ScratchError::TemporaryNotOurs {
        path: path.to_string(),
        reason,
    };
    let opened = path.parent().map(|parent| {
        let flags = OFlags::PATH | OFlags::DIRECTORY;
        open_beneath(workspace.as_fd(), parent.as_bytes(), flags, Mode::empty())
    });
    let parent = match opened.transpose() {
        Err(Errno::NOENT | Errno::NOTDIR) => return Ok(false),
        Err(Errno::LOOP | Errno::XDEV) => {
            return Err(not_ours("its directory has become a link"));
        }
        other => other.map_err(stuck("openat2"))?,
    };
    let here = parent.as_ref().map_or(workspace.as_fd(), |fd| fd.as_fd());
    let name = path.file_name();
    let stat = match rustix::fs::statat(here, name, AtFlags::SYMLINK_NOFOLLOW) {
        Err(Errno::NOENT) => return Ok(false),
        other => other.map_err(stuck("fstatat"))?,
    };
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return Err(not_ours("it is not a regular file"));
    }
    if stat.st_nlink != 1 {
        return Err(not_ours("it has more than one hard link"));
    }
    match rustix::fs::unlinkat(here, name, AtFlags::empty()) {
        Err(Errno::NOENT) => Ok(false),
        other => other.map(|()| true).map_err(stuck("unlinkat")),
    }
}

/// Whether a temporary directory outside of a run has such a name.
#[must_use]
pub(crate) fn is_directory_name(name: &[u8]) -> bool {
    let mut prefixes = [COPY_PREFIX, GIT_PREFIX].into_iter();
    prefixes.any(|prefix| {
        name.strip_prefix(prefix.as_bytes()).is_some_and(|digits| {
            let is_digit = |byte: &u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
            digits.len() == DIRECTORY_DIGITS && digits.iter().all(is_digit)
        })
    })
}

/// Removes a temporary directory that a killed process left; `false` if there is none.
///
/// Removes only a directory of this user with such a name, and follows no link to it or below it.
///
/// # Errors
/// As [`remove_temporary`].
pub(crate) fn remove_temporary_directory(above: &Path, name: &[u8]) -> Result<bool, ScratchError> {
    let path = || escape(name);
    let not_ours = |reason| ScratchError::TemporaryNotOurs {
        path: path(),
        reason,
    };
    let stuck = |call| {
        move |errno| ScratchError::TemporaryStuck {
            path: path(),
            call,
            errno,
        }
    };
    if !is_directory_name(name) {
        return Err(not_ours("it is not the name of a temporary directory"));
    }
    let above = match Workspace::open(above) {
        Err(ScratchError::WorkspaceUnusable {
            errno: Errno::NOENT | Errno::NOTDIR,
            ..
        }) => return Ok(false),
        other => other?,
    };
    let stat = match rustix::fs::statat(above.as_fd(), name, AtFlags::SYMLINK_NOFOLLOW) {
        Err(Errno::NOENT) => return Ok(false),
        other => other.map_err(stuck("fstatat"))?,
    };
    if FileType::from_raw_mode(stat.st_mode) != FileType::Directory {
        return Err(not_ours("it is not a directory"));
    }
    if stat.st_uid != effective_uid() {
        return Err(not_ours("it belongs to another user"));
    }
    remove_tree(above.as_fd(), name).map_err(stuck("unlinkat"))?;
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::symlink;

    const NAME: &str = ".runner-cp-0123456789abcdef";

    #[test]
    fn only_names_of_the_program_are_those_of_temporary_directories() {
        for (name, expected) in [
            (NAME, true),
            ("runner-source-0123456789abcdef", true),
            (".runner-source-0123456789abcdef", false),
            (".runner-cp-0123456789abcde", false),
            (".runner-cp-0123456789abcdeg", false),
            (".runner-cp-0123456789abcdef0", false),
            (".runner-cp-", false),
            (".runner-cp-../../../../../ab", false),
            ("home", false),
            ("", false),
        ] {
            assert_eq!(is_directory_name(name.as_bytes()), expected, "{name}");
        }
    }

    #[test]
    fn a_temporary_directory_is_removed_and_nothing_else_under_its_name() {
        let ground = tempfile::tempdir().expect("made");
        let remove = || remove_temporary_directory(ground.path(), NAME.as_bytes());
        let place = ground.path().join(NAME);
        let outside = ground.path().join("outside");
        fs::create_dir(&outside).expect("made");
        fs::write(outside.join("file"), "kept").expect("written");
        assert!(!remove().expect("nothing there"));
        fs::create_dir_all(place.join("below")).expect("made");
        fs::write(place.join("below/file"), "x").expect("written");
        symlink(&outside, place.join("link")).expect("linked");
        assert!(remove().expect("removed"));
        assert!(!place.exists());
        symlink(&outside, &place).expect("linked");
        remove().expect_err("a link");
        fs::remove_file(&place).expect("removed");
        fs::write(&place, "x").expect("written");
        remove().expect_err("a file");
        assert!(outside.join("file").exists() && place.exists());
        remove_temporary_directory(ground.path(), b"outside").expect_err("another name");
        let gone = remove_temporary_directory(&ground.path().join("gone"), NAME.as_bytes());
        assert!(!gone.expect("nothing there"));
    }
}
