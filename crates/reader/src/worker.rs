//! Runs parsers of text in a process that opens no file.

use std::fs::File;
use std::io::Read;
use std::os::fd::RawFd;
use std::time::Duration;

use confinement::Role;
use rustix::io::Errno;
use spec::parse_permit::ParsePermit;
use sys::worker::{Answer, Sent, Work, WorkerError, WorkerLimits, run_in_child};

use crate::WaitLimit;
use crate::unpacking::NO_ANSWER;

/// A parent's word for an answer that no parser gives.
pub(crate) const MALFORMED: &str = "the answer of its reader is malformed";

/// A parser of text, which the child is sent or has in its copy of the memory.
pub(crate) struct TextWorker<'run> {
    /// Wall time at most; [`WaitLimit`] may have less.
    pub(crate) time_max: Duration,
    pub(crate) memory_bytes: u64,
    pub(crate) answer_bytes: usize,
    /// Runs in the child with the rights of the caller, before it reads anything.
    pub(crate) prepare: &'run dyn Fn() -> Result<(), Errno>,
    /// Parses in the child, from what it is sent, and returns its answer.
    pub(crate) run: &'run dyn Fn(&ParsePermit, File) -> Vec<u8>,
}

/// Why there is no answer.
pub(crate) enum NoAnswer {
    TimedOut(Duration),
    /// Out of memory or stack, or killed.
    Exited,
    TooLong,
    Cancelled(i32),
    Host(Errno),
}

impl TextWorker<'_> {
    /// Sends `source` to the child and returns its answer, which may be forged.
    pub(crate) fn answer(
        &self,
        source: &mut dyn Read,
        wait_limit: WaitLimit<'_>,
    ) -> Result<Vec<u8>, NoAnswer> {
        let time = wait_limit.time.unwrap_or(self.time_max).min(self.time_max);
        let limits = WorkerLimits {
            time: Some(time),
            memory_bytes: self.memory_bytes,
            file_bytes: 0,
            answer_bytes: self.answer_bytes,
        };
        let work = Work {
            confine: &|keep: &[RawFd]| {
                (self.prepare)()?;
                Role::Reader.enter(keep)
            },
            run: &|permit, source, _: &Answer<'_>| (self.run)(permit, source),
        };
        let sent = Sent {
            source,
            descriptor: None,
        };
        run_in_child(limits, wait_limit.signals, sent, &work).map_err(|error| match error {
            WorkerError::TimedOut => NoAnswer::TimedOut(time),
            WorkerError::Exited => NoAnswer::Exited,
            WorkerError::TooLong => NoAnswer::TooLong,
            WorkerError::Signal(signal) => NoAnswer::Cancelled(signal),
            WorkerError::Source(errno) | WorkerError::Host(errno) => NoAnswer::Host(errno),
        })
    }
}

impl NoAnswer {
    /// The reason as the end of a sentence.
    pub(crate) fn reason(&self) -> String {
        match self {
            Self::TimedOut(time) => format!("it takes longer than {time:?}"),
            Self::Exited | Self::TooLong | Self::Cancelled(_) => NO_ANSWER.to_owned(),
            Self::Host(errno) => format!("its reader could not be started: {errno}"),
        }
    }
}
