//! Init of a sandbox that stays and whose supervisor was killed. It dies by its death signal, unless a command has taken
//! it over and cleared that. It has the record locked, which alone would say that the sandbox is alive.

use std::os::fd::{AsFd as _, OwnedFd};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{CWD, Mode, OFlags};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use serde::{Deserialize, Serialize};

/// For the end of a killed process and its namespaces.
const PATIENCE_S: i64 = 5;

/// The byte of its record that the supervisor of a sandbox that stays has locked, and init has not.
pub(super) const SUPERVISOR_BYTE: u64 = 0;

/// Init of a sandbox that stays. A pid alone may have become another process's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Init {
    pid: u32,
    /// Clock ticks after the boot.
    start_ticks: u64,
}

impl Init {
    /// Fails with ESRCH if it has ended.
    pub(super) fn of(pid: i32) -> Result<Self, Errno> {
        let pid = u32::try_from(pid).map_err(|_range| Errno::SRCH)?;
        let ticks = sys::proc::start_ticks(open_proc()?.as_fd(), pid)?;
        let start_ticks = ticks.ok_or(Errno::SRCH)?;
        Ok(Self { pid, start_ticks })
    }

    /// Kills it and waits for its end. In another pid namespace it is not found, and nothing is killed.
    pub(super) fn end(self) -> Result<(), Errno> {
        let Some(pid) = i32::try_from(self.pid).ok().and_then(Pid::from_raw) else {
            return Ok(());
        };
        let init = match pidfd_open(pid, PidfdFlags::empty()) {
            Ok(init) => init,
            Err(Errno::SRCH) => return Ok(()),
            Err(errno) => return Err(errno),
        };
        // After that, since the descriptor names the same process from now on.
        if sys::proc::start_ticks(open_proc()?.as_fd(), self.pid)? != Some(self.start_ticks) {
            return Ok(());
        }
        match pidfd_send_signal(&init, Signal::KILL) {
            Err(Errno::SRCH) => Ok(()),
            Ok(()) => wait_for_end(&init),
            Err(errno) => Err(errno),
        }
    }
}

fn open_proc() -> Result<OwnedFd, Errno> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    rustix::fs::openat(CWD, c"/proc", flags, Mode::empty())
}

fn wait_for_end(process: &OwnedFd) -> Result<(), Errno> {
    let patience = Timespec {
        tv_sec: PATIENCE_S,
        tv_nsec: 0,
    };
    let mut ended = [PollFd::new(process, PollFlags::IN)];
    match poll(&mut ended, Some(&patience)) {
        // Whoever calls tries the lock, which says it.
        Ok(_) | Err(Errno::INTR) => Ok(()),
        Err(errno) => Err(errno),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Child, Command};

    fn sleeper() -> Child {
        Command::new("sleep").arg("600").spawn().expect("started")
    }

    fn has_ended(child: &mut Child) -> bool {
        child.try_wait().expect("waited").is_some()
    }

    #[test]
    fn only_the_process_that_was_recorded_is_killed() {
        let mut child = sleeper();
        let init = Init::of(child.id().try_into().expect("a pid")).expect("it runs");
        let reused = Init {
            start_ticks: init.start_ticks + 1,
            ..init
        };
        reused.end().expect("another process");
        assert!(!has_ended(&mut child));
        init.end().expect("killed");
        assert!(has_ended(&mut child));
        init.end().expect("it has ended before");
    }
}
