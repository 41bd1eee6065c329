//! Files of the operator that decide who may do what.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;

use rustix::fs::OFlags;

/// Opens a regular file of this user or of root; `None`: it is another one, or has one of the permission bits
/// `forbidden`.
///
/// # Errors
/// Those of open(2) and fstat(2).
pub fn open(path: &Path, flags: OFlags, forbidden: u32) -> io::Result<Option<File>> {
    // A FIFO would be waited for.
    let flags = (flags | OFlags::NONBLOCK).bits().cast_signed();
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(flags)
        .open(path)?;
    let metadata = file.metadata()?;
    let own = [0, rustix::process::geteuid().as_raw()].contains(&metadata.uid());
    let is_private = metadata.is_file() && own && metadata.mode() & forbidden == 0;
    Ok(is_private.then_some(file))
}
