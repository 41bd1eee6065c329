//! Prefork: a child that is cloned before anything is known of the run, and makes its namespaces
//! meanwhile.
//!
//! The network namespace alone costs more than everything that the supervisor does before it knows
//! what to run. Nothing of the run is in it: no id of the host, no group, no path, no stream.
//! Dropped, it is killed and reaped, and the host never saw more of it than a process.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use crate::child;
use crate::error::SandboxError;
use sys::affinity;
use sys::arena::Arena;
use sys::link;
use sys::namespace::kind;
use sys::process::{self, Forked};
use sys::signal;

/// Address space for the plan: more than execve(2) takes of arguments and environment together.
const ARENA_BYTES: usize = 16 << 20;
/// Stack of the body's first process until its exec.
const STACK_BYTES: usize = 256 << 10;

/// How long a dropped child may take to die, seconds.
const DROP_PATIENCE_S: i64 = 5;

/// A child of ours, killed and reaped when it is dropped.
#[derive(Debug)]
pub struct Child {
    pid: i32,
    pidfd: OwnedFd,
    reaped: bool,
}

impl Child {
    /// Its pid as this process sees it.
    #[must_use]
    pub fn pid(&self) -> i32 {
        self.pid
    }

    /// Readable once it has ended.
    #[must_use]
    pub fn pidfd(&self) -> BorrowedFd<'_> {
        self.pidfd.as_fd()
    }

    /// SIGKILL. That it has ended already is fine.
    ///
    /// # Errors
    /// The errno of pidfd_send_signal(2).
    pub fn kill(&self) -> Result<(), Errno> {
        match process::signal_pidfd(self.pidfd.as_fd(), libc::SIGKILL) {
            Err(Errno::SRCH) => Ok(()),
            other => other,
        }
    }

    /// Waits for its end; with it everything in its pid namespace has ended.
    ///
    /// # Errors
    /// The errno of wait4(2).
    pub fn reap(&mut self) -> Result<process::Ended, Errno> {
        let ended = process::wait(self.pid, true)?.ok_or(Errno::CHILD)?;
        self.reaped = true;
        Ok(ended)
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        if !self.reaped {
            // Until it is reaped its pid is nobody else's. Where neither is let through it dies with us.
            let killed = self
                .kill()
                .or_else(|_errno| process::kill(self.pid, libc::SIGKILL));
            if killed.is_err() {
                return;
            }
            // Not for ever: a frozen tree, or one in an uninterruptible wait, dies when it can,
            // and the record that stays tells the next start.
            let patience = Timespec {
                tv_sec: DROP_PATIENCE_S,
                tv_nsec: 0,
            };
            let mut ended = [PollFd::new(&self.pidfd, PollFlags::IN)];
            if matches!(poll(&mut ended, Some(&patience)), Ok(count) if 0 < count) {
                // Not so where whoever started us ignored SIGCHLD: the kernel has reaped it. Any other
                // that stays goes with us.
                self.reaped = process::wait(self.pid, true).is_ok();
            }
        }
    }
}

/// A child that makes its namespaces and then waits to be told who the body is.
#[derive(Debug)]
pub struct Prefork {
    pub(super) child: Child,
    pub(super) link: OwnedFd,
    pub(super) arena: Arena,
    /// When it was cloned, by the monotonic clock.
    pub(super) cloned_ns: u64,
}

impl Prefork {
    /// Clones the child.
    ///
    /// `into_cgroup` is an open directory of a version 2 group. The calling process must have one
    /// thread only, and that thread must outlive the run: the child dies with it.
    ///
    /// # Errors
    /// [`SandboxError`]; then nothing of the child is left.
    pub fn start(into_cgroup: Option<BorrowedFd<'_>>) -> Result<Self, SandboxError> {
        let supervisor = |act, object: &str| {
            let object = object.to_owned();
            move |errno| SandboxError::Supervisor { act, object, errno }
        };
        // A caller that ignores SIGCHLD would keep the child from ever hearing of the body.
        signal::own_dispositions().map_err(supervisor("set", "the signals"))?;
        let arena = Arena::new(ARENA_BYTES).map_err(supervisor("map", "memory for the plan"))?;
        let (ours, theirs) = link::pair().map_err(supervisor("make", "a socket pair"))?;
        let mut stack = vec![0_u8; STACK_BYTES];
        let processors = affinity::choice();
        let wanted = kind::USER | kind::MOUNT | kind::PID;
        let cloned_ns = process::monotonic_ns();
        #[expect(unsafe_code, reason = "the one place where a child is cloned")]
        // SAFETY: the caller has one thread only, as this function's contract says.
        let forked = unsafe { process::fork_into(wanted, into_cgroup) };
        match forked {
            Ok(Forked::Parent { pid, pidfd }) => {
                // Before the base plan is sent: the child gives itself all of them back after that.
                if let Some(all) = &processors {
                    affinity::move_beside(pid, all);
                }
                Ok(Self {
                    child: Child {
                        pid,
                        pidfd,
                        reaped: false,
                    },
                    link: ours,
                    arena,
                    cloned_ns,
                })
            }
            Ok(Forked::Child) => {
                // The other end would keep the link open after the supervisor's death.
                process::close_quietly(ours.as_raw_fd());
                child::run(&arena, &theirs, processors.as_ref(), &mut stack)
            }
            Err(errno) => Err(SandboxError::Clone { errno }),
        }
    }
}
