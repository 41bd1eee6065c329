//! The signals of a run.

use std::os::fd::OwnedFd;

use rustix::io::Errno;

use sys::{process, signal};

/// Blocks the signals of a run in this thread and returns a signalfd for them (rt_sigprocmask(2),
/// signalfd4(2)).
pub fn listen_for_signals() -> Result<OwnedFd, Errno> {
    let set = signal::of_a_run();
    signal::own_dispositions()?;
    signal::set_mask(set)?;
    process::close_on_exec_from(3)?;
    signal::descriptor(set)
}
