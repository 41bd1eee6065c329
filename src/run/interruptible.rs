//! A reader that a signal or the time limit interrupts, so that a slow bundle cannot block the runner.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Instant;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::FileType;
use rustix::io::Errno;

use crate::run::error::RunError;
use archive::{AHEAD_FROM_BYTES, Surveyed, UnpackLimits, Unpacked};
use reader::{Documents, ParseDocuments, SurveyTask, Target, UnpackFailure, UnpackTask};
use sources::progress::Progress;
use sys::signal;
use sys::worker::Sent;

pub(super) use reader::WaitLimit;

/// A signal that ended a reader may have been taken for an answer of it: no body is started then.
pub(super) fn check_pending_end() -> Result<(), RunError> {
    match signal::pending_end().map_err(RunError::host("look for signals"))? {
        Some(signal) => Err(RunError::Cancelled { signal }),
        None => Ok(()),
    }
}

/// Unpacks the archive `file` in a confined process.
pub(super) fn unpack(
    file: File,
    target: Target<'_>,
    limits: &UnpackLimits,
    documents: &ParseDocuments<'_>,
    wait_limit: WaitLimit<'_>,
) -> Result<(Unpacked, Documents), UnpackFailure> {
    let ahead_from_bytes = ahead_from_bytes(&file);
    let progress = Some(UnpackProgress::of(&file));
    send(&file, wait_limit, progress, |archive| {
        let task = UnpackTask {
            target,
            limits,
            ahead_from_bytes,
            documents,
        };
        reader::unpack(archive, task, wait_limit)
    })
}

/// Reads the archive `file` in a confined process. A signal ends this process.
pub(super) fn survey(
    file: &File,
    task: &SurveyTask<'_>,
) -> Result<(Surveyed, Documents), UnpackFailure> {
    let wait_limit = WaitLimit::default();
    send(file, wait_limit, None, |archive| {
        reader::survey(archive, task, wait_limit)
    })
}

fn send<Done>(
    file: &File,
    wait_limit: WaitLimit<'_>,
    progress: Option<UnpackProgress>,
    read: impl FnOnce(Sent<'_>) -> Result<Done, UnpackFailure>,
) -> Result<Done, UnpackFailure> {
    let source = rustix::io::fcntl_dupfd_cloexec(file, 3).map_err(UnpackFailure::Host)?;
    let mut source = Interruptible::new(File::from(source), wait_limit);
    source.progress = progress;
    let done = read(Sent {
        source: &mut source,
        descriptor: Some(file.as_fd()),
    });
    match source.ended {
        None => done,
        Some(Ended::Signal(signal)) => Err(UnpackFailure::Cancelled(signal)),
        Some(Ended::Late) => Err(UnpackFailure::TimedOut),
    }
}

/// The inflated byte from which a thread may read ahead; never for a pipe, whose writer could
/// delay a refusal that is already known.
fn ahead_from_bytes(file: &File) -> u64 {
    let status = rustix::fs::fstat(file);
    let file_type = status.map(|status| FileType::from_raw_mode(status.st_mode));
    match file_type {
        Ok(FileType::RegularFile) => AHEAD_FROM_BYTES,
        _ => u64::MAX,
    }
}

/// Reads a file until its end, a cancelling signal, or the time limit.
#[derive(Debug)]
pub(super) struct Interruptible<'run> {
    source: File,
    signals: Option<BorrowedFd<'run>>,
    until: Option<Instant>,
    ended: Option<Ended>,
    /// Shown while it is read.
    progress: Option<UnpackProgress>,
}

/// How much of the bundle's archive was read. Removes its line when it is dropped.
#[derive(Debug)]
struct UnpackProgress {
    bytes: u64,
    /// `None`: it is read from a pipe.
    of_bytes: Option<u64>,
}

impl UnpackProgress {
    fn of(file: &File) -> Self {
        let metadata = file.metadata().ok();
        let metadata = metadata.filter(std::fs::Metadata::is_file);
        Self {
            bytes: 0,
            of_bytes: metadata.map(|metadata| metadata.len()),
        }
    }

    fn add(&mut self, count: usize) {
        self.bytes += u64::try_from(count).unwrap_or_default();
        let (bytes, of_bytes) = (self.bytes, self.of_bytes);
        Progress::UnpackingBundle { bytes, of_bytes }.emit();
    }
}

impl Drop for UnpackProgress {
    fn drop(&mut self) {
        Progress::Done.emit();
    }
}

/// Why the reading stopped before the end of the file.
#[derive(Debug, Clone, Copy)]
enum Ended {
    Signal(i32),
    Late,
}

impl<'run> Interruptible<'run> {
    pub(super) fn new(file: File, wait_limit: WaitLimit<'run>) -> Self {
        Self {
            source: file,
            signals: wait_limit.signals,
            // A limit beyond the clock's range is no limit.
            until: wait_limit
                .time
                .and_then(|left| Instant::now().checked_add(left)),
            ended: None,
            progress: None,
        }
    }

    /// The interruption as an error; `act` names the step.
    pub(super) fn check(&self, act: &'static str) -> Result<(), RunError> {
        match self.ended {
            None => Ok(()),
            Some(Ended::Signal(signal)) => Err(RunError::Cancelled { signal }),
            Some(Ended::Late) => Err(RunError::TimedOut { act }),
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
        let count = self.source.read(buffer)?;
        if let Some(progress) = &mut self.progress {
            progress.add(count);
        }
        Ok(count)
    }
}
