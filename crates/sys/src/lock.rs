//! Locks of an open file description: flock(2) and byte ranges (fcntl(2)).
//!
//! A descriptor inherited over fork keeps the lock. The kernel releases it when the last such
//! descriptor is closed.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use rustix::fs::FlockOperation;
use rustix::io::{Errno, retry_on_intr};

use super::process::last_errno;

/// Locks the whole file exclusively and waits for it (flock(2)). Retries on EINTR.
pub fn claim_file(file: BorrowedFd<'_>) -> Result<(), Errno> {
    retry_on_intr(|| rustix::fs::flock(file, FlockOperation::LockExclusive))
}

/// Locks the whole file exclusively without waiting (flock(2)); `false` if it is locked.
pub fn try_claim_file(file: BorrowedFd<'_>) -> Result<bool, Errno> {
    try_flock(file, FlockOperation::NonBlockingLockExclusive)
}

/// Locks the whole file shared without waiting; `false` if it is locked exclusively.
///
/// Downgrading an exclusive lock is not atomic in flock(2): a waiter may get the lock in between.
pub fn try_share_file(file: BorrowedFd<'_>) -> Result<bool, Errno> {
    try_flock(file, FlockOperation::NonBlockingLockShared)
}

/// Ends the lock of the whole file (flock(2)).
///
/// Closing the descriptor is not enough where other threads fork: their child has a copy of it for a while.
pub fn release_file(file: BorrowedFd<'_>) -> Result<(), Errno> {
    rustix::fs::flock(file, FlockOperation::Unlock)
}

fn try_flock(file: BorrowedFd<'_>, operation: FlockOperation) -> Result<bool, Errno> {
    match retry_on_intr(|| rustix::fs::flock(file, operation)) {
        Ok(()) => Ok(true),
        Err(Errno::WOULDBLOCK) => Ok(false),
        Err(errno) => Err(errno),
    }
}

/// Locks the byte at `offset` (F_OFD_SETLK, fcntl(2), Linux 3.15) of a file that is open for
/// writing; `false` if another description holds it.
///
/// Two locks through the same description do not exclude each other. Fails with EOVERFLOW for an
/// offset beyond `off_t`.
pub fn try_claim_byte(file: BorrowedFd<'_>, offset: u64) -> Result<bool, Errno> {
    let range = byte(offset)?;
    // SAFETY: F_OFD_SETLK reads one `struct flock` that lives across the call; the descriptor is
    // borrowed and stays open.
    let result = unsafe {
        libc::fcntl(
            file.as_fd().as_raw_fd(),
            libc::F_OFD_SETLK,
            std::ptr::from_ref(&range),
        )
    };
    if result == 0 {
        return Ok(true);
    }
    match last_errno() {
        Errno::AGAIN | Errno::ACCESS => Ok(false),
        errno => Err(errno),
    }
}

/// Whether another description holds a lock of the byte at `offset` (F_OFD_GETLK). Locks nothing.
pub fn is_byte_claimed(file: BorrowedFd<'_>, offset: u64) -> Result<bool, Errno> {
    let mut range = byte(offset)?;
    // SAFETY: F_OFD_GETLK reads and writes one `struct flock` that lives across the call; the
    // descriptor is borrowed and stays open.
    let result = unsafe {
        libc::fcntl(
            file.as_fd().as_raw_fd(),
            libc::F_OFD_GETLK,
            std::ptr::from_mut(&mut range),
        )
    };
    match result {
        0 => Ok(libc::c_int::from(range.l_type) != libc::F_UNLCK),
        _ => Err(last_errno()),
    }
}

/// The exclusive lock of one byte.
fn byte(offset: u64) -> Result<libc::flock, Errno> {
    Ok(libc::flock {
        l_type: i16::try_from(libc::F_WRLCK).map_err(|_wide| Errno::INVAL)?,
        l_whence: i16::try_from(libc::SEEK_SET).map_err(|_wide| Errno::INVAL)?,
        l_start: libc::off_t::try_from(offset).map_err(|_wide| Errno::OVERFLOW)?,
        l_len: 1,
        // OFD commands require 0, else EINVAL.
        l_pid: 0,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn opened(path: &std::path::Path) -> std::fs::File {
        std::fs::File::options()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(path)
            .expect("opened")
    }

    #[test]
    fn a_byte_is_claimed_once_and_free_again_when_its_last_holder_closed() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("uids");
        let (first, second) = (opened(&path), opened(&path));
        assert_eq!(try_claim_byte(first.as_fd(), 70_000), Ok(true));
        assert_eq!(try_claim_byte(second.as_fd(), 70_000), Ok(false));
        assert_eq!(try_claim_byte(second.as_fd(), 70_001), Ok(true));
        let inherited = first.try_clone().expect("a second descriptor");
        drop(first);
        assert_eq!(try_claim_byte(second.as_fd(), 70_000), Ok(false));
        drop(inherited);
        assert_eq!(try_claim_byte(second.as_fd(), 70_000), Ok(true));
    }

    #[test]
    fn a_reader_sees_whether_a_byte_is_claimed() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("record");
        let first = opened(&path);
        let reader = std::fs::File::open(&path).expect("opened");
        assert_eq!(is_byte_claimed(reader.as_fd(), 0), Ok(false));
        assert_eq!(try_claim_byte(first.as_fd(), 0), Ok(true));
        assert_eq!(is_byte_claimed(reader.as_fd(), 0), Ok(true));
        assert_eq!(is_byte_claimed(reader.as_fd(), 1), Ok(false));
        drop(first);
        assert_eq!(is_byte_claimed(reader.as_fd(), 0), Ok(false));
    }

    #[test]
    fn a_shared_file_cannot_be_claimed_until_its_last_sharer_closes() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("entry");
        let (first, second, third) = (opened(&path), opened(&path), opened(&path));
        assert_eq!(try_share_file(first.as_fd()), Ok(true));
        assert_eq!(try_share_file(second.as_fd()), Ok(true));
        drop(first);
        assert_eq!(try_claim_file(third.as_fd()), Ok(false));
        drop(second);
        assert_eq!(try_claim_file(third.as_fd()), Ok(true));
    }

    #[test]
    fn a_file_is_claimed_once_and_free_again_when_its_last_holder_closed() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("record");
        let (first, second) = (opened(&path), opened(&path));
        claim_file(first.as_fd()).expect("claimed");
        assert_eq!(try_claim_file(second.as_fd()), Ok(false));
        drop(first);
        assert_eq!(try_claim_file(second.as_fd()), Ok(true));
    }
}
