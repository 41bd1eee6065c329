//! Opens the bundle argument once: hashing and unpacking use the same descriptor.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rustix::fs::{FileType, Mode, OFlags};
use rustix::io::Errno;

use crate::error::{UnpackError, shown};
use sys::file::{CallError, type_name};

/// An opened bundle.
#[derive(Debug)]
pub enum OpenedArchive {
    /// A regular file, for [`crate::unpack()`].
    File(File),
    /// A directory, for [`crate::unpack_directory`].
    Directory(OwnedFd),
}

/// Opens `path`, which must be a regular file or a directory, and not a symlink.
///
/// Non-blocking, so that a fifo does not block the open, and never as a controlling terminal.
///
/// # Errors
/// [`UnpackError::Open`] or [`UnpackError::NotAFile`].
pub fn open_archive(path: &Path) -> Result<OpenedArchive, UnpackError> {
    let name = || shown(path.as_os_str().as_bytes());
    let failed = |call, errno| UnpackError::Open {
        path: name(),
        source: CallError::new(call, name(), errno),
    };
    let not_a_file = |found| UnpackError::NotAFile {
        path: name(),
        found,
    };
    let flags =
        OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let opened = match rustix::fs::open(path, flags, Mode::empty()) {
        Ok(opened) => opened,
        // With O_NOFOLLOW (open(2)). A symlink loop in a parent gives the same errno.
        Err(Errno::LOOP) => return Err(not_a_file("a symlink")),
        Err(Errno::NXIO) => return Err(not_a_file("a socket or a device without a driver")),
        Err(errno) => return Err(failed("open", errno)),
    };
    let status = rustix::fs::fstat(&opened).map_err(|errno| failed("fstat", errno))?;
    match FileType::from_raw_mode(status.st_mode) {
        FileType::RegularFile => Ok(OpenedArchive::File(File::from(opened))),
        FileType::Directory => Ok(OpenedArchive::Directory(opened)),
        other => Err(not_a_file(type_name(other))),
    }
}
