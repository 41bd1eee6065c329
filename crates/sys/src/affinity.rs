//! CPU affinity: sched_setaffinity(2).
//!
//! The scheduler may keep a new child on its parent's CPU until the parent sleeps. Then the two do
//! not run in parallel.

use rustix::io::Errno;
use rustix::process::Pid;
use rustix::thread::{CpuSet, sched_getaffinity, sched_getcpu, sched_setaffinity};

/// Returns the CPUs that this thread may run on; `None` for a single one or more than 1,024.
#[must_use]
pub fn allowed_cpus() -> Option<CpuSet> {
    sched_getaffinity(None).ok().filter(|all| 1 < all.count())
}

/// Moves the child `pid` to the CPUs of `all` except the caller's, until [`restore`]. Returns
/// whether it was moved. A failure only costs time.
pub fn move_to_other_cpus(pid: i32, all: &CpuSet) -> bool {
    let mut others = *all;
    others.unset(sched_getcpu());
    // Fails if the cpuset has shrunk or an outer filter refuses the call.
    Pid::from_raw(pid).is_some_and(|child| sched_setaffinity(Some(child), &others).is_ok())
}

/// Lets this thread run on the CPUs `all` again (sched_setaffinity(2)).
pub fn restore(all: &CpuSet) -> Result<(), Errno> {
    sched_setaffinity(None, all)
}
