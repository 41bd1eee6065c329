//! Locks of a cache: waited for, but not for ever.
//!
//! Whoever may read a file can lock it, and a body may read what it was lent. Those who made the cache
//! hold its locks for as long as names change.

use std::os::fd::BorrowedFd;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::io::Errno;

use crate::error::{CacheError, failed};
use spec::path::escape;
use sys::lock::{try_claim_file, try_share_file};

/// How long: the removal of a large tree is over by then.
const PATIENCE: Duration = Duration::from_secs(30);
/// flock(2) knows no time limit, so it is asked again.
const ASKED_EVERY: Duration = Duration::from_millis(5);

/// Takes the whole file, which lies at `path`.
///
/// # Errors
/// [`CacheError::Locked`] where somebody keeps it, [`CacheError::Call`].
pub(super) fn claim(file: BorrowedFd<'_>, path: &Path) -> Result<(), CacheError> {
    wait(path, PATIENCE, || try_claim_file(file))
}

/// Takes the file together with all others who share it.
///
/// # Errors
/// As for a file that is taken alone.
pub fn share(file: BorrowedFd<'_>, path: &Path) -> Result<(), CacheError> {
    wait(path, PATIENCE, || try_share_file(file))
}

fn wait(
    path: &Path,
    patience: Duration,
    mut ask: impl FnMut() -> Result<bool, Errno>,
) -> Result<(), CacheError> {
    let started = Instant::now();
    while !ask().map_err(failed("flock", path))? {
        if patience <= started.elapsed() {
            return Err(CacheError::Locked {
                path: escape(path.as_os_str().as_encoded_bytes()),
            });
        }
        std::thread::sleep(ASKED_EVERY);
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
        // And shared it is for others, but not free.
        let other = open();
        share(other.as_fd(), directory.path()).expect("shared");
        let ask = || try_claim_file(other.as_fd());
        assert!(wait(Path::new("/kept"), Duration::ZERO, ask).is_err());
    }
}
