//! Signals: the mask of this thread, signalfd(2), dispositions.

use std::os::fd::{FromRawFd, OwnedFd};

use rustix::io::Errno;

use super::process::{check, last_errno};

/// A set of signal numbers, 1 to 64.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SignalSet(u64);

impl SignalSet {
    /// Every signal.
    pub const ALL: Self = Self(u64::MAX);
    /// No signal.
    pub const NONE: Self = Self(0);

    /// Creates the set of `signals`.
    #[must_use]
    pub fn of(signals: &[i32]) -> Self {
        Self(
            signals
                .iter()
                .fold(0, |set, signal| set | 1_u64 << (signal - 1)),
        )
    }
}

/// Replaces the signal mask of this thread (rt_sigprocmask(2)).
pub fn set_mask(blocked: SignalSet) -> Result<(), Errno> {
    let before = std::ptr::null_mut::<u64>();
    // SAFETY: the kernel's set is 64 bits, the size that is passed.
    check(unsafe {
        libc::syscall(
            libc::SYS_rt_sigprocmask,
            libc::SIG_SETMASK,
            &raw const blocked.0,
            before,
            size_of::<u64>(),
        )
    })
    .map(|_zero| ())
}

/// Whether one of `signals`, which must be blocked, is pending (rt_sigpending(2)). Ignored signals
/// never are.
pub fn is_pending(signals: SignalSet) -> Result<bool, Errno> {
    let mut waiting = 0_u64;
    // SAFETY: the kernel writes the passed number of bytes, the size of `waiting`.
    check(unsafe { libc::syscall(libc::SYS_rt_sigpending, &raw mut waiting, size_of::<u64>()) })?;
    Ok(waiting & signals.0 != 0)
}

/// A blocked signal that requests the end of a run and is pending (rt_sigpending(2)); it stays so.
pub fn pending_end() -> Result<Option<i32>, Errno> {
    if !is_pending(SignalSet::of(&ENDING))? {
        return Ok(None);
    }
    for number in ENDING {
        if is_pending(SignalSet::of(&[number]))? {
            return Ok(Some(number));
        }
    }
    Ok(None)
}

/// Creates a signalfd for `signals`, which must be blocked (signalfd4(2)).
pub fn descriptor(signals: SignalSet) -> Result<OwnedFd, Errno> {
    let flags = libc::SFD_CLOEXEC | libc::SFD_NONBLOCK;
    // SAFETY: the kernel's set is 64 bits, the size that is passed; -1 creates a new descriptor.
    let fd = check(unsafe {
        libc::syscall(
            libc::SYS_signalfd4,
            -1,
            &raw const signals.0,
            size_of::<u64>(),
            flags,
        )
    })?;
    let fd = i32::try_from(fd).map_err(|_range| Errno::BADF)?;
    // SAFETY: the kernel just made this descriptor; it has no other owner.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

const ENDING: [i32; 4] = [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGQUIT];
/// Signals that are forwarded to the body. By default they end a process.
const FORWARDED: [i32; 9] = [
    libc::SIGUSR1,
    libc::SIGUSR2,
    libc::SIGALRM,
    libc::SIGVTALRM,
    libc::SIGPROF,
    libc::SIGIO,
    libc::SIGPWR,
    libc::SIGSTKFLT,
    libc::SIGXCPU,
];

/// Signals that the supervisor reads from its [`descriptor`]: those that end a run, SIGWINCH, and
/// those that it forwards to the body, including real-time signals.
#[must_use]
pub fn of_a_run() -> SignalSet {
    let real_time = libc::SIGRTMIN()..=libc::SIGRTMAX();
    let all: Vec<i32> = ENDING
        .into_iter()
        .chain(FORWARDED)
        .chain([libc::SIGWINCH])
        .chain(real_time)
        .collect();
    SignalSet::of(&all)
}

/// Whether a signal requests the end of a run.
#[must_use]
pub fn ends_a_run(number: i32) -> bool {
    ENDING.contains(&number)
}

/// Reads one pending signal from a [`descriptor`] (read(2)); `None` if none is pending.
pub fn take(descriptor: std::os::fd::BorrowedFd<'_>) -> Result<Option<i32>, Errno> {
    let mut bytes = [0_u8; size_of::<libc::signalfd_siginfo>()];
    match rustix::io::read(descriptor, &mut bytes) {
        Ok(count) if count == bytes.len() => {
            // ssi_signo is the first field.
            Ok(Some(i32::from_ne_bytes([
                bytes[0], bytes[1], bytes[2], bytes[3],
            ])))
        }
        Ok(_) => Err(Errno::IO),
        Err(Errno::AGAIN | Errno::INTR) => Ok(None),
        Err(errno) => Err(errno),
    }
}

/// Sets SIGCHLD to default, because children of a process that ignores it leave no status
/// (sigaction(2)). Ignores SIGPIPE and SIGXFSZ, so that writing to a closed pipe returns EPIPE, and
/// beyond RLIMIT_FSIZE EFBIG.
pub fn own_dispositions() -> Result<(), Errno> {
    for (signal, handler) in [
        (libc::SIGCHLD, libc::SIG_DFL),
        (libc::SIGPIPE, libc::SIG_IGN),
        (libc::SIGXFSZ, libc::SIG_IGN),
    ] {
        // SAFETY: no handler function is installed, only one of the two constants.
        if unsafe { libc::signal(signal, handler) } == libc::SIG_ERR {
            return Err(last_errno());
        }
    }
    Ok(())
}

/// Sets every signal to default, because ignored signals stay ignored across clone(2) and
/// execve(2), even with `CLONE_CLEAR_SIGHAND` (rt_sigaction(2)). Allocates nothing.
pub fn default_dispositions() -> Result<(), Errno> {
    // The kernel's struct sigaction; all zero is SIG_DFL without flags.
    let default = [0_u64; 4];
    let before = std::ptr::null_mut::<u64>();
    for signal in 1..=64 {
        if signal == libc::SIGKILL || signal == libc::SIGSTOP {
            continue;
        }
        // SAFETY: the structure lives across the call and is as large as the kernel's.
        check(unsafe {
            libc::syscall(
                libc::SYS_rt_sigaction,
                signal,
                default.as_ptr(),
                before,
                size_of::<u64>(),
            )
        })?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writing_beyond_a_limit_or_to_a_closed_pipe_is_an_error_and_no_signal() {
        own_dispositions().expect("set");
        let status = std::fs::read_to_string("/proc/self/status").expect("read");
        let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
        let ignored = u64::from_str_radix(mask.expect("a mask").trim(), 16).expect("hexadecimal");
        for (signal, is_ignored) in [
            (libc::SIGPIPE, true),
            (libc::SIGXFSZ, true),
            (libc::SIGCHLD, false),
        ] {
            let bit = SignalSet::of(&[signal]).0;
            assert_eq!(ignored & bit != 0, is_ignored, "signal {signal}");
        }
    }
}
