//! The workspace: opened once, so that a later rename does not redirect it.

use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use crate::staging::error::ScratchError;
use spec::path::escape;
use sys::credentials::HostIds;
use sys::lock::try_claim_byte;
use sys::trusted_links::{self, Unopened};

/// Interval between two attempts to take the lock.
const LOCK_POLL: Duration = Duration::from_millis(20);

/// The host directory that inputs come from and outputs go back to, open.
#[derive(Debug)]
pub struct Workspace {
    directory: OwnedFd,
    shown: String,
    /// Owner of the outputs; `None` if they stay with the caller.
    owner: Option<HostIds>,
}

impl Workspace {
    /// Opens the directory at `path`, which is the caller's own word: links in it are followed that
    /// the caller or root laid. Those of others would say where the caller's rights write.
    ///
    /// # Errors
    /// [`ScratchError::WorkspaceLink`] for a link of somebody else's.
    /// [`ScratchError::WorkspaceUnusable`] with the errno of open(2), fstat(2), or of reading
    /// `/proc/self/uid_map`.
    pub fn open(path: &Path) -> Result<Self, ScratchError> {
        let shown = escape(path.as_os_str().as_bytes());
        let failed = |call| {
            let path = shown.clone();
            move |errno| ScratchError::WorkspaceUnusable { path, call, errno }
        };
        let found =
            trusted_links::open(path.as_os_str().as_bytes()).map_err(
                |unopened| match unopened {
                    Unopened::Link { link, uid } => ScratchError::WorkspaceLink {
                        path: shown.clone(),
                        link: escape(&link),
                        uid,
                    },
                    Unopened::Call(errno) => failed("open")(errno),
                },
            )?;
        // Not O_PATH: fsync(2) needs a descriptor that is really open.
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let directory =
            rustix::fs::openat(&found, ".", flags, Mode::empty()).map_err(failed("open"))?;
        let stat = rustix::fs::fstat(&directory).map_err(failed("fstat"))?;
        let owner = gives_files_away().map_err(failed("/proc/self/uid_map"))?;
        Ok(Self {
            directory,
            owner: owner.then_some(HostIds {
                uid: stat.st_uid,
                gid: stat.st_gid,
            }),
            shown,
        })
    }

    /// The open directory.
    #[must_use]
    pub fn as_fd(&self) -> BorrowedFd<'_> {
        self.directory.as_fd()
    }

    /// The path as the caller named it, escaped: for messages only.
    #[must_use]
    pub fn shown(&self) -> &str {
        &self.shown
    }

    /// To whom outputs and new directories are given: the owner of the workspace where we are
    /// root, nobody else where we are not.
    #[must_use]
    pub fn owner(&self) -> Option<HostIds> {
        self.owner
    }

    /// Holds the lock of the workspace until the guard is dropped.
    ///
    /// A byte of `locks`, chosen by device and inode of the directory: nothing is left behind, and
    /// the kernel lets go when a holder is killed. Never flock(2) on the directory itself, which
    /// anyone may hold who may read it, such as a body that it was lent to. Who else uses the
    /// same file of locks is waited for: runs with other runtime directories, which are those of
    /// other users, are not.
    pub(super) fn lock(
        &self,
        locks: OwnedFd,
        wait: Duration,
    ) -> Result<WorkspaceLock, ScratchError> {
        let failed = |call| {
            move |errno| ScratchError::WorkspaceUnusable {
                path: self.shown.clone(),
                call,
                errno,
            }
        };
        let stat = rustix::fs::fstat(&self.directory).map_err(failed("fstat"))?;
        let byte = byte_of(stat.st_dev, stat.st_ino);
        let start = Instant::now();
        loop {
            match try_claim_byte(locks.as_fd(), byte) {
                Ok(true) => return Ok(WorkspaceLock { _held: locks }),
                Ok(false) if start.elapsed() < wait => std::thread::sleep(LOCK_POLL),
                Ok(false) => {
                    return Err(ScratchError::WorkspaceBusy {
                        path: self.shown.clone(),
                        waited_ms: start.elapsed().as_millis(),
                    });
                }
                Err(errno) => return Err(failed("fcntl")(errno)),
            }
        }
    }
}

/// The lock of a workspace, held until it is dropped.
#[derive(Debug)]
pub(super) struct WorkspaceLock {
    _held: OwnedFd,
}

/// The byte for one directory. Directories that share a byte only wait for each other.
fn byte_of(device: u64, inode: u64) -> u64 {
    // Odd, so that no inode of a device is lost; what is left of 64 bits is an offset of a file.
    const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;
    inode.wrapping_add(device.wrapping_mul(SPREAD)) >> 1
}

/// Whether we are root and can give files to somebody else. Root of a user namespace that maps
/// a single id cannot: for chown(2) nobody else exists there.
fn gives_files_away() -> Result<bool, Errno> {
    if !rustix::process::geteuid().is_root() {
        return Ok(false);
    }
    let map = std::fs::read_to_string("/proc/self/uid_map")
        .map_err(|error| sys::file::errno_of(&error))?;
    Ok(1 < mapped_ids(&map))
}

fn mapped_ids(map: &str) -> u64 {
    map.lines()
        .filter_map(|line| line.split_whitespace().nth(2)?.parse::<u64>().ok())
        .sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_map_of_one_id_is_told_from_a_map_of_many() {
        assert_eq!(mapped_ids("         0       1000          1\n"), 1);
        assert_eq!(
            mapped_ids("         0          0 4294967295\n"),
            4_294_967_295
        );
        assert_eq!(mapped_ids("0 1000 1\n1 100000 65536\n"), 65_537);
    }
}
