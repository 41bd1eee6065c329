//! The workspace: opened once, so that a later rename does not redirect it.

use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use crate::staging::error::ScratchError;
use spec::path::{escape, escape_path};
use sys::credentials::HostIds;
use sys::lock::try_claim_byte;
use sys::trusted_links::{self, Unopened};

/// Time between two attempts to lock.
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
    /// Opens the directory at `path`, which the caller gave. Links of the caller and of root are
    /// followed; a link of another user would redirect what is written with the caller's rights.
    ///
    /// # Errors
    /// [`ScratchError::WorkspaceLink`] for a link of another user.
    /// [`ScratchError::WorkspaceUnusable`] with the errno of open(2), fstat(2), or of reading
    /// `/proc/self/uid_map`.
    pub fn open(path: &Path) -> Result<Self, ScratchError> {
        let shown = escape_path(path);
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
        // Not O_PATH: fsync(2) refuses such descriptors.
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let directory =
            rustix::fs::openat(&found, ".", flags, Mode::empty()).map_err(failed("open"))?;
        let stat = rustix::fs::fstat(&directory).map_err(failed("fstat"))?;
        let owner = can_set_owners().map_err(failed("/proc/self/uid_map"))?;
        Ok(Self {
            directory,
            owner: owner.then_some(HostIds {
                uid: stat.st_uid,
                gid: stat.st_gid,
            }),
            shown,
        })
    }

    #[must_use]
    pub fn as_fd(&self) -> BorrowedFd<'_> {
        self.directory.as_fd()
    }

    /// The path as the caller gave it, escaped, for messages.
    #[must_use]
    pub fn shown(&self) -> &str {
        &self.shown
    }

    /// Who gets outputs and new directories: the owner of the workspace if we are root, else `None`.
    #[must_use]
    pub fn owner(&self) -> Option<HostIds> {
        self.owner
    }

    /// Locks the workspace until the guard is dropped.
    ///
    /// Locks one byte of `locks`, chosen by device and inode of the directory: nothing is left behind,
    /// and the kernel releases the lock of a killed process. Not flock(2) on the directory, which
    /// every process may hold that can read it, such as a body with a mount of it. Runs with another
    /// runtime directory, which are those of other users, have another lock file and are not waited
    /// for.
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
        let byte = lock_byte(stat.st_dev, stat.st_ino);
        let start = Instant::now();
        loop {
            match try_claim_byte(locks.as_fd(), byte) {
                Ok(true) => return Ok(WorkspaceLock { _locks: locks }),
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

/// The lock of a workspace, released on drop.
#[derive(Debug)]
pub(super) struct WorkspaceLock {
    _locks: OwnedFd,
}

/// The byte for one directory. Directories that share a byte wait for each other.
fn lock_byte(device: u64, inode: u64) -> u64 {
    // Odd, so that no inode of a device is lost. The shift makes a valid file offset of 64 bits.
    const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;
    inode.wrapping_add(device.wrapping_mul(SPREAD)) >> 1
}

/// Whether we are root and can give files to another user. Root of a user namespace that maps a single
/// id cannot.
fn can_set_owners() -> Result<bool, Errno> {
    if !rustix::process::geteuid().is_root() {
        return Ok(false);
    }
    let map = std::fs::read_to_string("/proc/self/uid_map")
        .map_err(|error| sys::file::errno_of(&error))?;
    Ok(mapped_ids(&map) > 1)
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
    fn the_ids_of_a_map_are_counted() {
        assert_eq!(mapped_ids("         0       1000          1\n"), 1);
        assert_eq!(
            mapped_ids("         0          0 4294967295\n"),
            4_294_967_295
        );
        assert_eq!(mapped_ids("0 1000 1\n1 100000 65536\n"), 65_537);
    }
}
