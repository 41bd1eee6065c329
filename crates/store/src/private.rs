//! Opens the directory of a store and checks that no other user can change or replace it.

use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::fs::{CWD, Mode, OFlags, Stat};
use rustix::io::Errno;

use crate::error::{CacheError, failed};
use crate::files::OpenDirectory;
use crate::identity::path_of;
use spec::path::escape;
use sys::credentials::is_ours_or_roots;

const PRIVATE_MODE: u32 = 0o700;
const FOR_ALL_AND_STICKY: u32 = 0o1002;
const FOR_ALL: u32 = 0o0002;

/// Opens a directory and makes it with its parents if they are missing.
///
/// # Errors
/// [`CacheError::Unsafe`]: not a directory of this uid with mode 0700, or another user can replace
/// it or a directory above it. [`CacheError::Call`].
pub(crate) fn open_private(directory: &Path) -> Result<OpenDirectory, CacheError> {
    let opened = match open(CWD, directory) {
        Err(Errno::NOENT) => {
            make(directory)?;
            open(CWD, directory)
        }
        other => other,
    };
    let opened = private(opened, directory)?;
    let path = path_of(&opened)?;
    if let Some((above, status)) = replaceable_above(&path)? {
        return Err(CacheError::Unsafe {
            path: escape(above.as_os_str().as_encoded_bytes()),
            found: format!(
                "a directory of uid {} with mode {:04o} above it",
                status.st_uid,
                status.st_mode & 0o7777
            ),
            expected: "one of root or this user that is not writable for others, or a sticky one",
        });
    }
    Ok(OpenDirectory::new(opened, path))
}

/// Finds a directory above `path` in which another user can replace a component of the path.
pub(crate) fn replaceable_above(path: &Path) -> Result<Option<(&Path, Stat)>, CacheError> {
    for above in path.ancestors().skip(1) {
        let status = rustix::fs::stat(above).map_err(failed("stat", above))?;
        let is_open = status.st_mode & FOR_ALL_AND_STICKY == FOR_ALL;
        if is_open || !is_ours_or_roots(status.st_uid) {
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
    let opened = match open(parent.as_fd(), Path::new(name)) {
        Err(Errno::NOENT) => {
            parent.make_directory(name)?;
            open(parent.as_fd(), Path::new(name))
        }
        other => other,
    };
    Ok(OpenDirectory::new(private(opened, &path)?, path))
}

/// Checks that the opened file is a directory of this uid that no other user may enter.
fn private(opened: Result<OwnedFd, Errno>, directory: &Path) -> Result<OwnedFd, CacheError> {
    let opened = opened.map_err(|errno| match errno {
        Errno::LOOP | Errno::NOTDIR => not_safe(directory, "a link or a file".to_owned()),
        Errno::ACCESS => not_safe(directory, "closed to this user".to_owned()),
        errno => failed("open", directory)(errno),
    })?;
    let status = rustix::fs::fstat(&opened).map_err(failed("fstat", directory))?;
    let (uid, mode) = (status.st_uid, status.st_mode & 0o7777);
    if uid != rustix::process::geteuid().as_raw() || mode != PRIVATE_MODE {
        return Err(not_safe(
            directory,
            format!("a directory of uid {uid} with mode {mode:04o}"),
        ));
    }
    Ok(opened)
}

fn open(at: BorrowedFd<'_>, directory: &Path) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::openat(at, directory, flags, Mode::empty())
}

fn make(directory: &Path) -> Result<(), CacheError> {
    let missing = directory.ancestors().take_while(|above| !above.exists());
    let mut missing: Vec<&Path> = missing.collect();
    missing.reverse();
    for one in missing {
        match rustix::fs::mkdir(one, Mode::from_raw_mode(PRIVATE_MODE)) {
            // EEXIST: another process was faster, or it is a dangling link; checked when opened.
            Ok(()) | Err(Errno::EXIST) => (),
            Err(errno) => return Err(failed("mkdir", one)(errno)),
        }
    }
    Ok(())
}

fn not_safe(path: &Path, found: String) -> CacheError {
    CacheError::Unsafe {
        path: escape(path.as_os_str().as_encoded_bytes()),
        found,
        expected: "a directory of this user's with mode 0700: remove it, or name another in the configuration",
    }
}
