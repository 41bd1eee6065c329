//! Questions to the host that change nothing.

use std::ffi::CStr;

use rustix::io::Errno;

/// Effective user id of this process, as its user namespace names it.
#[must_use]
pub fn effective_uid() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// Effective group id of this process.
#[must_use]
pub fn effective_gid() -> u32 {
    rustix::process::getegid().as_raw()
}

/// What is at a path, without following a last link.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Found {
    /// Nothing.
    Nothing,
    /// A directory.
    Directory,
    /// A link and its target.
    Link(Vec<u8>),
    /// Anything else.
    File,
}

/// What is at `path`, without following a last link.
///
/// # Errors
/// The errno of lstat(2) or readlink(2), but for those that mean "nothing there".
pub fn look(path: &CStr) -> Result<Found, Errno> {
    match rustix::fs::lstat(path) {
        Err(Errno::NOENT | Errno::NOTDIR) => Ok(Found::Nothing),
        Err(errno) => Err(errno),
        Ok(status) => match rustix::fs::FileType::from_raw_mode(status.st_mode) {
            rustix::fs::FileType::Directory => Ok(Found::Directory),
            rustix::fs::FileType::Symlink => rustix::fs::readlink(path, Vec::new())
                .map(|target| Found::Link(target.into_bytes())),
            _ => Ok(Found::File),
        },
    }
}
