//! Opens the directory of a store, and refuses one that other users can access, change or replace.

use std::os::fd::{AsFd as _, OwnedFd};
use std::path::Path;

use rustix::fs::{CWD, Mode, Stat};
use rustix::io::Errno;

use crate::error::{CacheError, failed};
use crate::files::OpenDirectory;
use crate::identity::path_of;
use spec::path::escape_path;
use sys::credentials::is_ours_or_roots;
use sys::file::open_directory;

const PRIVATE_MODE: u32 = 0o700;
const OTHERS_WRITE: u32 = 0o0002;
const STICKY: u32 = 0o1000;

/// Opens a directory of a store. Creates it and its parents if they are missing.
///
/// # Errors
/// [`CacheError::Unsafe`]: not a directory of this uid with mode 0700, or another user can replace
/// it or a directory above it. [`CacheError::Call`].
pub(crate) fn open_private(directory: &Path) -> Result<OpenDirectory, CacheError> {
    let opened = match open_directory(CWD, directory) {
        Err(Errno::NOENT) => {
            create_with_parents(directory)?;
            open_directory(CWD, directory)
        }
        other => other,
    };
    check_place(check_private(opened, directory)?)
}

/// As [`open_private`], but creates nothing; `None` if the directory is missing.
///
/// # Errors
/// As [`open_private`].
pub(crate) fn open_existing_private(directory: &Path) -> Result<Option<OpenDirectory>, CacheError> {
    match open_directory(CWD, directory) {
        Err(Errno::NOENT) => Ok(None),
        opened => check_place(check_private(opened, directory)?).map(Some),
    }
}

fn check_place(opened: OwnedFd) -> Result<OpenDirectory, CacheError> {
    let path = path_of(&opened)?;
    if let Some((above, status)) = replaceable_above(&path)? {
        return Err(CacheError::Unsafe {
            path: escape_path(above),
            found: format!(
                "a parent directory of uid {} with mode {:04o}",
                status.st_uid,
                status.st_mode & 0o7777
            ),
            expected: "a directory of root or this user that others cannot write to, or a sticky one",
        });
    }
    Ok(OpenDirectory::new(opened, path))
}

/// Finds a directory above `path` in which any other user can replace a component of the path.
///
/// Ignores the write permission of the group: with a umask of 002 most directories have it, also below
/// the home of a user whose group has no other member.
pub(crate) fn replaceable_above(path: &Path) -> Result<Option<(&Path, Stat)>, CacheError> {
    for above in path.ancestors().skip(1) {
        let status = rustix::fs::stat(above).map_err(failed("stat", above))?;
        let others_may_replace = status.st_mode & (OTHERS_WRITE | STICKY) == OTHERS_WRITE;
        if others_may_replace || !is_ours_or_roots(status.st_uid) {
            return Ok(Some((above, status)));
        }
    }
    Ok(None)
}

/// As [`open_private`], for `name` in a directory whose parents were checked.
///
/// # Errors
/// As [`open_private`].
pub(crate) fn open_private_in(
    parent: &OpenDirectory,
    name: &str,
) -> Result<OpenDirectory, CacheError> {
    let path = parent.path().join(name);
    let opened = match open_directory(parent.as_fd(), name) {
        Err(Errno::NOENT) => {
            parent.make_directory(name)?;
            open_directory(parent.as_fd(), name)
        }
        other => other,
    };
    Ok(OpenDirectory::new(check_private(opened, &path)?, path))
}

/// Checks that the opened file is a directory of this uid that no other user may enter.
fn check_private(opened: Result<OwnedFd, Errno>, directory: &Path) -> Result<OwnedFd, CacheError> {
    let opened = opened.map_err(|errno| match errno {
        Errno::LOOP | Errno::NOTDIR => not_private(directory, "a link or a file".to_owned()),
        Errno::ACCESS => not_private(directory, "not accessible for this user".to_owned()),
        errno => failed("open", directory)(errno),
    })?;
    let status = rustix::fs::fstat(&opened).map_err(failed("fstat", directory))?;
    let (uid, mode) = (status.st_uid, status.st_mode & 0o7777);
    if uid != rustix::process::geteuid().as_raw() || mode != PRIVATE_MODE {
        return Err(not_private(
            directory,
            format!("a directory of uid {uid} with mode {mode:04o}"),
        ));
    }
    Ok(opened)
}

fn create_with_parents(directory: &Path) -> Result<(), CacheError> {
    let missing = directory.ancestors().take_while(|above| !above.exists());
    let mut missing: Vec<&Path> = missing.collect();
    missing.reverse();
    for path in missing {
        match rustix::fs::mkdir(path, Mode::from_raw_mode(PRIVATE_MODE)) {
            // EEXIST: another process was faster, or it is a dangling link. Opening it checks that.
            Ok(()) | Err(Errno::EXIST) => (),
            Err(errno) => return Err(failed("mkdir", path)(errno)),
        }
    }
    Ok(())
}

fn not_private(path: &Path, found: String) -> CacheError {
    CacheError::Unsafe {
        path: escape_path(path),
        found,
        expected: "a directory of this user with mode 0700; remove it or configure another",
    }
}
