//! Prefork: a child that creates its namespaces before anything is known about the run.
//!
//! Creating the network namespace takes longer than everything that the supervisor does before it
//! knows what to run. The child has no host ids, cgroup, paths or streams yet. Drop kills and reaps
//! it.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Signal, pidfd_send_signal};

use crate::child;
use crate::error::{RAISE, SandboxError};
use sys::affinity;
use sys::arena::Arena;
use sys::link;
use sys::namespace::kind;
use sys::process::{self, Forked, RaisedOomScore};
use sys::signal;

/// Address space for the plan: more than the execve(2) limit of arguments and environment.
const ARENA_BYTES: usize = 16 << 20;
const STACK_BYTES: usize = 256 << 10;

const DROP_PATIENCE_S: i64 = 5;

/// A child process, killed and reaped on drop.
#[derive(Debug)]
pub struct Child {
    pid: i32,
    pidfd: OwnedFd,
    reaped: bool,
}

impl Child {
    /// Its pid in this pid namespace.
    #[must_use]
    pub fn pid(&self) -> i32 {
        self.pid
    }

    /// Readable after it has ended.
    #[must_use]
    pub fn pidfd(&self) -> BorrowedFd<'_> {
        self.pidfd.as_fd()
    }

    /// Sends SIGKILL (pidfd_send_signal(2)). Does nothing if the child has ended.
    pub fn kill(&self) -> Result<(), Errno> {
        match pidfd_send_signal(&self.pidfd, Signal::KILL) {
            Err(Errno::SRCH) => Ok(()),
            other => other,
        }
    }

    /// Waits for its end (wait4(2)). Then everything in its pid namespace has ended.
    pub fn reap(&mut self) -> Result<process::Ended, Errno> {
        let ended = process::wait(self.pid, true)?.ok_or(Errno::CHILD)?;
        self.reaped = true;
        Ok(ended)
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        if !self.reaped {
            // The pid is not reused before it is reaped. If both calls fail, the child dies with
            // this process.
            let killed = self
                .kill()
                .or_else(|_errno| process::kill(self.pid, libc::SIGKILL));
            if killed.is_err() {
                return;
            }
            // Bounded, because a frozen or uninterruptible tree dies later. Then the next start
            // cleans up from the record.
            let patience = Timespec {
                tv_sec: DROP_PATIENCE_S,
                tv_nsec: 0,
            };
            let mut ended = [PollFd::new(&self.pidfd, PollFlags::IN)];
            if matches!(poll(&mut ended, Some(&patience)), Ok(count) if count > 0) {
                // Fails if SIGCHLD is ignored, because then the kernel reaped the child.
                self.reaped = process::wait(self.pid, true).is_ok();
            }
        }
    }
}

/// A child that creates its namespaces and waits for the base plan.
#[derive(Debug)]
pub struct Prefork {
    pub(super) child: Child,
    pub(super) link: OwnedFd,
    pub(super) arena: Arena,
    pub(super) cloned_ns: u64,
}

impl Prefork {
    /// Clones the child.
    ///
    /// `into_cgroup` is an open directory of a version 2 cgroup. The calling process must have one
    /// thread, which must outlive the run: the child dies with it. On failure nothing of the child
    /// is left.
    pub fn start(into_cgroup: Option<BorrowedFd<'_>>) -> Result<Self, SandboxError> {
        // If SIGCHLD is ignored, init cannot wait for the body.
        signal::own_dispositions().map_err(SandboxError::supervisor("set", "the signals"))?;
        let arena = Arena::new(ARENA_BYTES)
            .map_err(SandboxError::supervisor("map", "memory for the plan"))?;
        let (parent_end, child_end) =
            link::pair().map_err(SandboxError::supervisor("make", "a socket pair"))?;
        let mut stack = vec![0_u8; STACK_BYTES];
        let processors = affinity::allowed_cpus();
        let namespaces = kind::USER | kind::MOUNT | kind::PID;
        // If the host runs out of memory, the body must die before the supervisor, which reports it.
        // Raised here and not by the child: then a body of a privileged caller cannot lower it.
        let oom_score = RaisedOomScore::raise(300).map_err(SandboxError::supervisor(
            RAISE,
            "the OOM score of the sandbox",
        ))?;
        let restoring = SandboxError::supervisor("restore", "the OOM score of the supervisor");
        let cloned_ns = process::monotonic_ns();
        #[expect(unsafe_code, reason = "the one place where a child is cloned")]
        // SAFETY: the caller has one thread, as required by this function.
        let forked = unsafe { process::fork_into(namespaces, into_cgroup) };
        match forked {
            Ok(Forked::Parent { pid, pidfd }) => {
                let child = Child {
                    pid,
                    pidfd,
                    reaped: false,
                };
                // Before the base plan is sent: then the child restores its affinity.
                if let Some(all) = &processors {
                    affinity::move_to_other_cpus(pid, all);
                }
                oom_score.restore().map_err(restoring)?;
                arena
                    .keep_from_later_children()
                    .map_err(SandboxError::supervisor("keep", "memory for the plan"))?;
                Ok(Self {
                    child,
                    link: parent_end,
                    arena,
                    cloned_ns,
                })
            }
            Ok(Forked::Child) => {
                // Otherwise the link would stay open after the supervisor's death.
                drop((parent_end, oom_score));
                child::run(&arena, &child_end, processors.as_ref(), &mut stack)
            }
            Err(errno) => {
                oom_score.restore().map_err(restoring)?;
                Err(SandboxError::Clone { errno })
            }
        }
    }
}
