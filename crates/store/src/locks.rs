//! Locks with a time limit.
//!
//! Every process that can read a file can lock it, and a body can read its read-only mounts. A
//! process of the runner holds a lock while it changes names.

use std::os::fd::BorrowedFd;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::io::Errno;

use crate::error::{CacheError, failed};
use spec::path::escape;
use sys::lock::{try_claim_file, try_share_file};

/// Longer than the removal of a large tree takes.
const TIME_LIMIT: Duration = Duration::from_secs(30);
/// Interval between attempts: flock(2) has no time limit.
const TRIED_EVERY: Duration = Duration::from_millis(5);

/// Locks the whole file at `path` exclusively.
///
/// # Errors
/// [`CacheError::Locked`]: another process keeps it; [`CacheError::Call`].
pub(super) fn claim(file: BorrowedFd<'_>, path: &Path) -> Result<(), CacheError> {
    wait(path, TIME_LIMIT, || try_claim_file(file))
}

/// Locks the whole file at `path` shared.
///
/// # Errors
/// [`CacheError::Locked`]: another process keeps it; [`CacheError::Call`].
pub fn share(file: BorrowedFd<'_>, path: &Path) -> Result<(), CacheError> {
    wait(path, TIME_LIMIT, || try_share_file(file))
}

fn wait(
    path: &Path,
    time_limit: Duration,
    mut attempt: impl FnMut() -> Result<bool, Errno>,
) -> Result<(), CacheError> {
    let started = Instant::now();
    while !attempt().map_err(failed("flock", path))? {
        if started.elapsed() >= time_limit {
            return Err(CacheError::Locked {
                path: escape(path.as_os_str().as_encoded_bytes()),
            });
        }
        std::thread::sleep(TRIED_EVERY);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd as _;

    #[test]
    fn a_lock_that_somebody_keeps_is_given_up_and_named() {
        let directory = tempfile::tempdir().expect("a directory");
        let open = || std::fs::File::open(directory.path()).expect("opened");
        let (keeper, asker) = (open(), open());
        rustix::fs::flock(&keeper, rustix::fs::FlockOperation::LockExclusive).expect("locked");
        let ask = || try_share_file(asker.as_fd());
        let error = wait(Path::new("/kept\n"), Duration::ZERO, ask).expect_err("kept");
        assert!(
            error.to_string().contains("/kept\\x0a is locked"),
            "{error}"
        );
        drop(keeper);
        wait(Path::new("/kept"), Duration::ZERO, ask).expect("free");
        // A shared lock admits other readers but is not free.
        let other = open();
        share(other.as_fd(), directory.path()).expect("shared");
        let ask = || try_claim_file(other.as_fd());
        assert!(wait(Path::new("/kept"), Duration::ZERO, ask).is_err());
    }
}
