//! A bundle that is still coming in must not keep the runner from hearing that it is to end.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::FileType;
use rustix::io::Errno;

use crate::bundle::AHEAD_FROM_BYTES;
use crate::kernel::signal;

/// Reads a file; a signal that cancels the run ends the reading.
#[derive(Debug)]
pub(super) struct Interruptible<'run> {
    source: File,
    signals: Option<BorrowedFd<'run>>,
    /// The signal that ended it.
    pub(super) cancelled_by: Option<i32>,
}

impl<'run> Interruptible<'run> {
    /// Reads `source`; `signals` is the descriptor of the signals that cancel a run, `None` where they
    /// end the process by themselves.
    pub(super) fn new(source: File, signals: Option<BorrowedFd<'run>>) -> Self {
        Self {
            source,
            signals,
            cancelled_by: None,
        }
    }

    /// The inflated byte from which on a thread may read ahead: none of a pipe, whose writer could
    /// keep a refusal waiting that is known already.
    pub(super) fn ahead_from_bytes(&self) -> u64 {
        let status = rustix::fs::fstat(&self.source);
        let file_type = status.map(|status| FileType::from_raw_mode(status.st_mode));
        match file_type {
            Ok(FileType::RegularFile) => AHEAD_FROM_BYTES,
            _ => u64::MAX,
        }
    }

    fn wait(&mut self) -> Result<(), Errno> {
        loop {
            let mut ends = vec![PollFd::from_borrowed_fd(self.source.as_fd(), PollFlags::IN)];
            let signals = self.signals;
            ends.extend(signals.map(|signals| PollFd::from_borrowed_fd(signals, PollFlags::IN)));
            match poll(&mut ends, None) {
                Ok(_) | Err(Errno::INTR) => (),
                Err(errno) => return Err(errno),
            }
            let has_bytes = !ends[0].revents().is_empty();
            if let Some(signals) = signals {
                while let Some(number) = signal::take(signals)? {
                    if signal::ends_a_run(number) {
                        self.cancelled_by = Some(number);
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
