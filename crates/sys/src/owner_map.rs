//! User namespaces for idmapped mounts (mount_setattr(2)).

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use super::credentials::HostIds;
use super::namespace::kind;
use super::process::{self, Forked};

/// A user namespace without processes whose id maps an idmapped mount uses.
#[derive(Debug)]
pub struct OwnerMap(OwnedFd);

impl OwnerMap {
    /// Creates a map with which files of `owner` appear as files of `body`, and files that `body`
    /// creates are stored as files of `owner` (clone3(2), open(2), write(2)).
    ///
    /// The calling process must have one thread, and CAP_SETUID and CAP_SETGID over the
    /// initial ids.
    pub fn new(owner: HostIds, body: HostIds) -> Result<Self, Errno> {
        let parent = rustix::process::getpid();
        // SAFETY: the caller has one thread, and the child only waits to be killed.
        let forked = unsafe { process::fork_into(kind::USER, None) }?;
        let Forked::Parent { pid, pidfd } = forked else {
            // If the parent died before the death signal was set, the child would never end.
            if super::privileges::die_with_parent().is_err()
                || rustix::process::getppid() != Some(parent)
            {
                process::exit_now(1);
            }
            loop {
                // SAFETY: waits for a signal; accesses no memory.
                unsafe { libc::pause() };
            }
        };
        let made = Self::of_process(pid, owner, body);
        rustix::process::pidfd_send_signal(&pidfd, rustix::process::Signal::KILL)?;
        process::wait(pid, true)?;
        made
    }

    fn of_process(pid: i32, owner: HostIds, body: HostIds) -> Result<Self, Errno> {
        for (name, inside, outside) in [
            ("gid_map", owner.gid, body.gid),
            ("uid_map", owner.uid, body.uid),
        ] {
            let file = rustix::fs::open(
                format!("/proc/{pid}/{name}"),
                OFlags::WRONLY | OFlags::CLOEXEC,
                Mode::empty(),
            )?;
            rustix::io::write(&file, format!("{inside} {outside} 1\n").as_bytes())?;
        }
        let path = format!("/proc/{pid}/ns/user");
        rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).map(Self)
    }
}

impl AsFd for OwnerMap {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
