//! Creates and opens files and directories of the writable space.

use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use crate::run::error::RunError;
use sys::file::open_beneath;

/// Writes the input document to `/runner/input.json`. The body's file ids must be assumed.
pub(in crate::run) fn write_input(space: BorrowedFd<'_>, text: &[u8]) -> Result<(), RunError> {
    let mode = Mode::from_raw_mode(0o444);
    write_new(space, b"runner/input.json", mode, text)
        .map_err(RunError::host("write /runner/input.json"))
}

/// Creates a file in the writable space. The body's file ids must be assumed.
///
/// # Errors
/// The errno of openat2(2) or write(2).
pub(in crate::run) fn write_new(
    space: BorrowedFd<'_>,
    path: &[u8],
    mode: Mode,
    bytes: &[u8],
) -> Result<(), Errno> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL;
    let file = open_beneath(space, path, flags, mode)?;
    let mut rest = bytes;
    while !rest.is_empty() {
        let count = rustix::io::write(&file, rest)?;
        rest = &rest[count..];
    }
    Ok(())
}

/// Opens the directory `path` of the writable space and creates missing parents. The body's file
/// ids must be assumed.
///
/// # Errors
/// The errno of openat2(2) or mkdirat(2); ELOOP if a component is a link.
pub(in crate::run) fn make_directories(
    space: BorrowedFd<'_>,
    path: &str,
) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY;
    let mut above = open_beneath(space, b".", flags, Mode::empty())?;
    for name in path.split('/') {
        match rustix::fs::mkdirat(&above, name, Mode::from_raw_mode(0o755)) {
            Ok(()) | Err(Errno::EXIST) => (),
            Err(errno) => return Err(errno),
        }
        above = open_beneath(above.as_fd(), name.as_bytes(), flags, Mode::empty())?;
    }
    Ok(above)
}

pub(in crate::run) fn open_directory(
    space: BorrowedFd<'_>,
    name: &str,
) -> Result<OwnedFd, RunError> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY;
    open_beneath(space.as_fd(), name.as_bytes(), flags, Mode::empty())
        .map_err(RunError::host(format!("open {name} of the writable space")))
}
