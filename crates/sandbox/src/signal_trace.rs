//! Signals of a traced body to process 1 of its sandbox, from the arguments of a call that waits.

use std::io::Read as _;
use std::os::fd::BorrowedFd;

use filter::{SignalArguments, SignalTarget};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use spec::merged::Merged;
use sys::memory::read_of_thread;
use sys::seccomp::Waiting;

use crate::path_want::lower;

/// The highest signal that kill(2) takes.
const NUMBER_MAX: u32 = 64;
/// PIDFD_SIGNAL_THREAD and PIDFD_SIGNAL_THREAD_GROUP: of process 1 both are the process. With more flags than
/// one, the call fails with EINVAL.
const OF_PROCESS: [u32; 3] = [0, 1, 2];
/// PIDFD_SIGNAL_PROCESS_GROUP: succeeds if one process of the group gets it.
const OF_GROUP: u32 = 4;
/// What the kernel reads of a siginfo_t.
const INFO_BYTES: usize = 48;
/// The values of si_code that a process may use for others (SI_QUEUE to SI_DETHREAD), but SI_TKILL.
const CODES: std::ops::RangeInclusive<i32> = -7..=-1;
const TKILL: i32 = -6;
/// More than a pidfd has.
const FDINFO_BYTES_MAX: u64 = 4_096;

/// A signal to process 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct InitSignal {
    pub number: u32,
    /// The registers alone do not decide: another thread can change the memory or the descriptor.
    pub is_inferred: bool,
}

/// The signals to process 1.
#[derive(Debug, Default)]
pub struct InitSignals {
    pub sent: Merged<InitSignal>,
    /// Calls of which it is not known whether process 1 is signalled.
    pub unknown: u64,
}

impl InitSignals {
    pub(crate) fn add(&mut self, found: Result<Option<InitSignal>, Errno>, now_ms: u64) {
        match found {
            Ok(None) => (),
            Ok(Some(signal)) => {
                self.sent.add(signal, now_ms);
            }
            Err(_) => self.unknown += 1,
        }
    }
}

/// The signal of a call; `None`: it is not to process 1, or the call fails for another reason.
///
/// # Errors
/// It cannot be told.
pub(crate) fn signal_to_init(
    proc: BorrowedFd<'_>,
    waiting: &Waiting,
    signal: &SignalArguments,
) -> Result<Option<InitSignal>, Errno> {
    let arguments = &waiting.call.arguments;
    let number = lower(arguments, signal.number);
    // EINVAL.
    if number > NUMBER_MAX {
        return Ok(None);
    }
    let is_of_pidfd = match signal.target {
        // The filter has compared them.
        SignalTarget::Ids(_) => false,
        SignalTarget::Pidfd { descriptor, flags } => {
            let descriptor = lower(arguments, descriptor);
            match lower(arguments, flags) {
                flags if flags & OF_GROUP == 0 && !OF_PROCESS.contains(&flags) => return Ok(None),
                _ if !is_of_first_process(proc, waiting.thread, descriptor)? => return Ok(None),
                flags if OF_PROCESS.contains(&flags) => true,
                _ => return Err(Errno::OPNOTSUPP),
            }
        }
    };
    let address = signal.info.map(|info| arguments[usize::from(info)]);
    let is_sent = match address {
        None => true,
        // As kill(2).
        Some(0) if is_of_pidfd => true,
        Some(address) => {
            let mut info = [0; INFO_BYTES];
            match read_of_thread(waiting.thread, address, &mut info) {
                Ok(INFO_BYTES) => is_sent_with(&info, is_of_pidfd.then_some(number))?,
                Ok(_) | Err(Errno::FAULT) => false,
                Err(errno) => return Err(errno),
            }
        }
    };
    Ok(is_sent.then_some(InitSignal {
        number,
        is_inferred: is_of_pidfd || address.is_some(),
    }))
}

/// Whether the kernel sends a signal with this siginfo_t to another process. `number`: it must have it.
///
/// # Errors
/// A code that this module does not know.
fn is_sent_with(info: &[u8; INFO_BYTES], number: Option<u32>) -> Result<bool, Errno> {
    let [a, b, c, d, _, _, _, _, e, f, g, h, ..] = *info;
    if number.is_some_and(|number| number != u32::from_ne_bytes([a, b, c, d])) {
        return Ok(false);
    }
    match i32::from_ne_bytes([e, f, g, h]) {
        0.. | TKILL => Ok(false),
        code if CODES.contains(&code) => Ok(true),
        _ => Err(Errno::OPNOTSUPP),
    }
}

/// Whether `descriptor` of `thread` is a pidfd of process 1 of the sandbox. It is no descriptor: no.
fn is_of_first_process(proc: BorrowedFd<'_>, thread: u32, descriptor: u32) -> Result<bool, Errno> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    let path = format!("{thread}/fdinfo/{descriptor}");
    let opened = match rustix::fs::openat(proc, path, flags, Mode::empty()) {
        Ok(opened) => opened,
        Err(Errno::NOENT) => return Ok(false),
        Err(errno) => return Err(errno),
    };
    let mut text = Vec::new();
    std::fs::File::from(opened)
        .take(FDINFO_BYTES_MAX)
        .read_to_end(&mut text)
        .map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
    Ok(names_first_process(&text))
}

/// Whether the process of a pidfd has the id 1 in the namespace below this one. No body makes a further one.
fn names_first_process(fdinfo: &[u8]) -> bool {
    let mut lines = fdinfo.split(|byte| *byte == b'\n');
    let ids = lines.find_map(|line| line.strip_prefix(b"NSpid:\t"));
    ids.is_some_and(|ids| {
        let ids: Vec<&[u8]> = ids.split(|byte| *byte == b'\t').collect();
        matches!(ids[..], [_, b"1"])
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pidfd_is_of_process_1_only_in_the_namespace_of_the_body() {
        let of = |ids: &str| format!("pos:\t0\nflags:\t02000002\nPid:\t71\nNSpid:\t{ids}\n");
        assert!(names_first_process(of("71\t1").as_bytes()));
        for ids in ["1", "71\t2", "71\t11", "71\t5\t1", "71\t1\t1", "-1", ""] {
            assert!(!names_first_process(of(ids).as_bytes()), "{ids}");
        }
        assert!(!names_first_process(b"pos:\t0\nflags:\t02\n"));
        assert!(!names_first_process(b""));
    }

    #[test]
    fn a_code_of_the_kernel_is_no_signal_to_another_process() {
        let info = |number: i32, code: i32| {
            let mut info = [0; INFO_BYTES];
            info[..4].copy_from_slice(&number.to_ne_bytes());
            info[8..12].copy_from_slice(&code.to_ne_bytes());
            info
        };
        for (code, expected) in [
            (-1, Ok(true)),
            (-7, Ok(true)),
            (TKILL, Ok(false)),
            (0, Ok(false)),
            (0x80, Ok(false)),
            (i32::MAX, Ok(false)),
            (-8, Err(Errno::OPNOTSUPP)),
            (i32::MIN, Err(Errno::OPNOTSUPP)),
        ] {
            assert_eq!(is_sent_with(&info(15, code), None), expected, "{code}");
            assert_eq!(is_sent_with(&info(15, code), Some(15)), expected, "{code}");
            assert_eq!(is_sent_with(&info(15, code), Some(14)), Ok(false));
        }
    }
}
