//! Locks of files (flock(2)) with a timeout.
//!
//! Every process that can open a file can lock it. A body can open the files of its read-only mounts
//! and keep such a lock until it ends.

use std::os::fd::BorrowedFd;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::io::Errno;

use crate::error::{CacheError, failed};
use spec::path::escape_path;
use sys::lock::{try_claim_file, try_share_file};

/// Longer than the removal of a large tree; eviction locks the names for each tree anew.
const TIMEOUT: Duration = Duration::from_secs(30);
/// Interval between attempts: flock(2) has no timeout.
const INTERVAL: Duration = Duration::from_millis(5);

/// Locks `file` exclusively; `path` is for errors.
///
/// # Errors
/// [`CacheError::Locked`]: it is still locked after the timeout; [`CacheError::Call`].
pub(super) fn lock(file: BorrowedFd<'_>, path: &Path) -> Result<(), CacheError> {
    wait(path, TIMEOUT, || try_claim_file(file))
}

/// Locks `file` shared; `path` is for errors.
///
/// # Errors
/// [`CacheError::Locked`]: it is still locked exclusively after the timeout;
/// [`CacheError::Call`].
pub fn lock_shared(file: BorrowedFd<'_>, path: &Path) -> Result<(), CacheError> {
    wait(path, TIMEOUT, || try_share_file(file))
}

fn wait(
    path: &Path,
    timeout: Duration,
    mut attempt: impl FnMut() -> Result<bool, Errno>,
) -> Result<(), CacheError> {
    let started = Instant::now();
    while !attempt().map_err(failed("flock", path))? {
        if started.elapsed() >= timeout {
            return Err(CacheError::Locked {
                path: escape_path(path),
            });
        }
        std::thread::sleep(INTERVAL);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd as _;

    #[test]
    fn waiting_for_a_lock_times_out_with_its_path() {
        let directory = tempfile::tempdir().expect("a directory");
        let open = || std::fs::File::open(directory.path()).expect("opened");
        let (locked, second) = (open(), open());
        rustix::fs::flock(&locked, rustix::fs::FlockOperation::LockExclusive).expect("locked");
        let attempt = || try_share_file(second.as_fd());
        let error = wait(Path::new("/locked\n"), Duration::ZERO, attempt).expect_err("locked");
        assert!(
            error.to_string().contains("/locked\\x0a is locked"),
            "{error}"
        );
        drop(locked);
        wait(Path::new("/locked"), Duration::ZERO, attempt).expect("free");
        // A shared lock admits other readers but is not free.
        let third = open();
        lock_shared(third.as_fd(), directory.path()).expect("shared");
        let attempt = || try_claim_file(third.as_fd());
        assert!(wait(Path::new("/locked"), Duration::ZERO, attempt).is_err());
    }
}
