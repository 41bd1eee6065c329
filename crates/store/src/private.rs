//! A directory that is nobody else's: what is kept for later runs lies in one.

use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, Mode, OFlags};
use rustix::io::Errno;

use crate::error::{CacheError, failed};
use crate::files::make_directory;
use crate::identity::path_of;
use spec::path::escape;
use sys::credentials::is_ours_or_roots;

const PRIVATE_MODE: u32 = 0o700;
const FOR_ALL_AND_STICKY: u32 = 0o1002;
const FOR_ALL: u32 = 0o0002;

/// Opens a directory, making it and what is missing above it, and returns its path
/// free of links.
///
/// # Errors
/// [`CacheError::Unsafe`] where it is not a directory of this uid's with mode 0700, or somebody else
/// may replace it or a directory above it; [`CacheError::Call`].
pub(crate) fn open_private(directory: &Path) -> Result<(OwnedFd, PathBuf), CacheError> {
    let opened = match open(CWD, directory) {
        Err(Errno::NOENT) => {
            make(directory)?;
            open(CWD, directory)
        }
        other => other,
    };
    let opened = private(opened, directory)?;
    let path = path_of(&opened)?;
    for above in path.ancestors().skip(1) {
        let status = rustix::fs::stat(above).map_err(failed("stat", above))?;
        let is_open = status.st_mode & FOR_ALL_AND_STICKY == FOR_ALL;
        if is_open || !is_ours_or_roots(status.st_uid) {
            return Err(CacheError::Unsafe {
                path: escape(above.as_os_str().as_encoded_bytes()),
                found: format!(
                    "a directory of uid {} with mode {:04o} above it",
                    status.st_uid,
                    status.st_mode & 0o7777
                ),
                expected: "one of root's or of this user's that not everybody may write to, or a sticky one",
            });
        }
    }
    Ok((opened, path))
}

/// The same for the directory `name` in `parent`, which [`open_private`] has opened, or which lies in
/// one that it has: what is above was looked at. `path` is its path, free of links.
///
/// # Errors
/// As [`open_private`].
pub(super) fn open_private_in(
    parent: &OwnedFd,
    name: &str,
    path: &Path,
) -> Result<OwnedFd, CacheError> {
    let opened = match open(parent.as_fd(), Path::new(name)) {
        Err(Errno::NOENT) => {
            make_directory(parent, name, path)?;
            open(parent.as_fd(), Path::new(name))
        }
        other => other,
    };
    private(opened, path)
}

/// What was opened, where it is a directory of this uid's that nobody else may enter.
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
            // EEXIST: another run was faster, or it is a link to nothing; looked at afterwards.
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
