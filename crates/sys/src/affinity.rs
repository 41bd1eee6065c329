//! Processors that a process may run on: sched_setaffinity(2).
//!
//! A child that was just cloned first runs when its parent sleeps, where the scheduler leaves it on
//! the parent's processor; some kernels for virtual machines do so on purpose. Work that is meant
//! to be done beside the parent's then waits for it.

use rustix::io::Errno;
use rustix::process::Pid;
use rustix::thread::{CpuSet, sched_getaffinity, sched_getcpu, sched_setaffinity};

/// The processors of this thread; `None` where it has only one, or more than 1,024 exist and
/// cannot be written down here.
#[must_use]
pub fn choice() -> Option<CpuSet> {
    sched_getaffinity(None).ok().filter(|all| 1 < all.count())
}

/// Moves the child `pid` to processors of `all` other than the one that the caller is on, where it
/// stays until [`release`]. Only time depends on it: where the kernel refuses, it starts later.
/// Whether it was moved.
pub fn move_beside(pid: i32, all: &CpuSet) -> bool {
    let mut others = *all;
    others.unset(sched_getcpu());
    // The group's own list of processors may have become shorter, or a filter around us refuses.
    Pid::from_raw(pid).is_some_and(|child| sched_setaffinity(Some(child), &others).is_ok())
}

/// Gives this thread the processors `all` back.
///
/// # Errors
/// The errno of sched_setaffinity(2).
pub fn release(all: &CpuSet) -> Result<(), Errno> {
    sched_setaffinity(None, all)
}
