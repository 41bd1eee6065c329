//! Copies a tree out of the cache, for a kernel without a usable overlayfs.

use std::os::fd::{AsFd as _, BorrowedFd};

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use archive::target::{Target, failed, file_bits};
use archive::{Entry, Tree, UnpackError};
use sys::credentials::{AssumedFileIds, HostIds};
use sys::file::open_beneath;

const COPY_BYTES: usize = 1 << 30;

/// Copies `tree` from the directory `from` into the empty directory `into`. Reads with the rights
/// of this process; the copies belong to `ids`, if given.
///
/// # Errors
/// [`UnpackError::Target`], such as ENOSPC.
pub fn copy_into(
    tree: &Tree,
    from: BorrowedFd<'_>,
    into: BorrowedFd<'_>,
    ids: Option<HostIds>,
) -> Result<(), UnpackError> {
    let mut target = Target::new(into, ids);
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW;
    for (path, entry) in tree.iter() {
        match entry {
            Entry::Directory => target.create_directory(path)?,
            Entry::Symlink { target: to } => target.create_symlink(path, to)?,
            Entry::File { executable, bytes } => {
                let source = open_beneath(from, path.as_bytes(), flags, Mode::empty())
                    .map_err(|errno| failed("openat2", path, errno))?;
                let file = target.create_file(path, file_bits(*executable))?;
                let _ids =
                    AssumedFileIds::assume(ids).map_err(|errno| failed("setfsuid", path, errno))?;
                let mut left = *bytes;
                while left > 0 {
                    let at_once = usize::try_from(left).unwrap_or(COPY_BYTES).min(COPY_BYTES);
                    match rustix::fs::sendfile(file.as_fd(), source.as_fd(), None, at_once) {
                        Ok(0) => return Err(failed("sendfile", path, Errno::IO)),
                        Ok(count) => left = left.saturating_sub(count as u64),
                        Err(Errno::INTR) => (),
                        Err(errno) => return Err(failed("sendfile", path, errno)),
                    }
                }
            }
        }
    }
    Ok(())
}
