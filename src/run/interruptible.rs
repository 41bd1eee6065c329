//! A reader that a signal or the time limit interrupts, so that a slow bundle cannot block the runner.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::FileType;
use rustix::io::Errno;

use crate::run::error::RunError;
use archive::AHEAD_FROM_BYTES;
use reader::{Question, Refused, judge};
use sys::signal;

/// What ends a wait: the time limit, or a signal.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct WaitLimit<'run> {
    pub(super) time: Option<Duration>,
    /// Descriptor of the signals that cancel a run; `None` if they end this process.
    pub(super) signals: Option<BorrowedFd<'run>>,
}

impl<'run> WaitLimit<'run> {
    pub(super) fn reader(self, file: File) -> Interruptible<'run> {
        Interruptible::new(file, self.signals).within(self.time)
    }

    pub(super) fn validate(self, questions: &[Question<'_>]) -> Result<(), Refused> {
        judge(questions, self.time, self.signals)
    }
}

/// Reads a file until its end, a cancelling signal, or the time limit.
#[derive(Debug)]
pub(super) struct Interruptible<'run> {
    source: File,
    signals: Option<BorrowedFd<'run>>,
    until: Option<Instant>,
    ended: Option<Ended>,
}

/// Why the reading stopped before the end of the file.
#[derive(Debug, Clone, Copy)]
enum Ended {
    Signal(i32),
    Late,
}

impl<'run> Interruptible<'run> {
    /// Reads `source`; `signals` is the descriptor of the signals that cancel a run, `None` if they
    /// end the process.
    pub(super) fn new(source: File, signals: Option<BorrowedFd<'run>>) -> Self {
        Self {
            source,
            signals,
            until: None,
            ended: None,
        }
    }

    fn within(self, left: Option<Duration>) -> Self {
        // A limit beyond the clock's range is no limit.
        let until = left.and_then(|left| Instant::now().checked_add(left));
        Self { until, ..self }
    }

    /// The interruption as an error; `act` names the step.
    pub(super) fn check(&self, act: &'static str) -> Result<(), RunError> {
        match self.ended {
            None => Ok(()),
            Some(Ended::Signal(signal)) => Err(RunError::Cancelled { signal }),
            Some(Ended::Late) => Err(RunError::TimedOut { act }),
        }
    }

    /// The inflated byte from which a thread may read ahead; never for a pipe, whose writer could
    /// delay a refusal that is already known.
    pub(super) fn ahead_from_bytes(&self) -> u64 {
        let status = rustix::fs::fstat(&self.source);
        let file_type = status.map(|status| FileType::from_raw_mode(status.st_mode));
        match file_type {
            Ok(FileType::RegularFile) => AHEAD_FROM_BYTES,
            _ => u64::MAX,
        }
    }

    fn left(&mut self) -> Result<Option<Timespec>, Errno> {
        let Some(until) = self.until else {
            return Ok(None);
        };
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            self.ended = Some(Ended::Late);
            return Err(Errno::CANCELED);
        }
        // Beyond the kernel's range: wait without a limit.
        Ok(Timespec::try_from(left).ok())
    }

    fn wait(&mut self) -> Result<(), Errno> {
        loop {
            let left = self.left()?;
            let mut ends = vec![PollFd::from_borrowed_fd(self.source.as_fd(), PollFlags::IN)];
            let signals = self.signals;
            ends.extend(signals.map(|signals| PollFd::from_borrowed_fd(signals, PollFlags::IN)));
            match poll(&mut ends, left.as_ref()) {
                Ok(_) | Err(Errno::INTR) => (),
                Err(errno) => return Err(errno),
            }
            let has_bytes = !ends[0].revents().is_empty();
            if let Some(signals) = signals {
                while let Some(number) = signal::take(signals)? {
                    if signal::ends_a_run(number) {
                        self.ended = Some(Ended::Signal(number));
                        return Err(Errno::CANCELED);
                    }
                }
            }
            if has_bytes {
                return Ok(());
            }
        }
    }
}

impl Read for Interruptible<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.wait()?;
        self.source.read(buffer)
    }
}
