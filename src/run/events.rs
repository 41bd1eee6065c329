//! The event stream of `--events`: a line of JSON per event, written without waiting for a reader.
//!
//! A stream that cannot be written changes nothing in the run: events are lost, which the gaps of their
//! numbers and a warning in the report show.

use std::cell::RefCell;
use std::os::fd::BorrowedFd;
use std::rc::Rc;
use std::time::{Duration, Instant};

use rustix::io::Errno;

use crate::run::recorder::now;
use sandbox::supervise::streams::Writer;
use spec::events::{Event, EventKind};
use spec::report::Report;
use spec::utc::text_since_1970;

/// Bytes that wait for a slow reader. While they wait, further events are lost.
const PENDING_BYTES_MAX: usize = 1 << 20;
/// Longest wait for a slow reader at the end.
const END_WAIT: Duration = Duration::from_secs(1);

/// Events of one run. The default has nowhere to write them.
#[derive(Debug, Clone, Default)]
pub(crate) struct EventStream(Option<Rc<RefCell<Stream>>>);

#[derive(Debug)]
struct Stream {
    writer: Writer,
    /// Lines, of which the first may be written in part.
    pending: Vec<u8>,
    next_seq: u64,
    lost: u64,
    /// Why nothing is written any more.
    failure: Option<Errno>,
}

/// Events that were not written.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct LostEvents {
    pub(crate) lost: u64,
    pub(crate) total: u64,
    /// `None`: the reader was too slow.
    pub(crate) errno: Option<Errno>,
}

impl EventStream {
    /// Writes to `target`, from its current position.
    ///
    /// # Errors
    /// The errno of fcntl(2) or fstat(2).
    pub(crate) fn to(target: BorrowedFd<'_>) -> Result<Self, Errno> {
        let stream = Stream {
            writer: Writer::new(target)?,
            pending: Vec::new(),
            next_seq: 0,
            lost: 0,
            failure: None,
        };
        Ok(Self(Some(Rc::new(RefCell::new(stream)))))
    }

    pub(super) fn is_on(&self) -> bool {
        self.0.is_some()
    }

    /// Adds an event, without secret values.
    pub(super) fn emit(&self, run_id: &str, kind: EventKind<'_>) {
        if let Some(stream) = &self.0 {
            stream.borrow_mut().emit(run_id, kind);
        }
    }

    /// Adds the last event. `report` is masked. Returns what was lost.
    pub(crate) fn end(&self, report: &Report) -> Option<LostEvents> {
        let stream = &mut *self.0.as_ref()?.borrow_mut();
        let ended = EventKind::Ended {
            outcome: report.outcome,
            exit: report.exit,
            cancelled_by: report.cancelled_by,
            error: report.error.as_ref(),
        };
        stream.emit(&report.run_id, ended);
        stream.drain();
        (stream.lost > 0).then_some(LostEvents {
            lost: stream.lost,
            total: stream.next_seq,
            errno: stream.failure,
        })
    }
}

impl Stream {
    fn emit(&mut self, run_id: &str, kind: EventKind<'_>) {
        let event = Event {
            seq: self.next_seq,
            run_id,
            at: text_since_1970(now()),
            kind,
        };
        self.next_seq += 1;
        // Texts, numbers and lists of them: this cannot fail.
        let line = serde_json::to_vec(&event).unwrap_or_default();
        self.flush(Duration::ZERO);
        if self.failure.is_some() || PENDING_BYTES_MAX < self.pending.len() + line.len() {
            self.lost += 1;
            return;
        }
        self.pending.extend(line);
        self.pending.push(b'\n');
        self.flush(Duration::ZERO);
    }

    /// Writes pending lines until nothing more can be written without waiting longer than `timeout`.
    fn flush(&mut self, timeout: Duration) {
        while !self.pending.is_empty() {
            let written = self.writer.wait(timeout);
            match written.and_then(|()| self.writer.write(&self.pending)) {
                Ok(0) | Err(Errno::AGAIN) => return,
                Ok(count) => drop(self.pending.drain(..count)),
                Err(Errno::INTR) => (),
                Err(errno) => {
                    self.failure = Some(errno);
                    self.give_up();
                }
            }
        }
    }

    /// Writes pending lines for at most [`END_WAIT`].
    fn drain(&mut self) {
        let until = Instant::now() + END_WAIT;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            self.flush(left);
            if self.pending.is_empty() {
                return;
            }
            if left.is_zero() {
                return self.give_up();
            }
        }
    }

    /// Counts what is pending as lost.
    fn give_up(&mut self) {
        let lines = self.pending.iter().filter(|byte| **byte == b'\n').count();
        self.lost += u64::try_from(lines).unwrap_or(u64::MAX);
        self.pending.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::pipe::{PipeFlags, pipe_with};
    use spec::events::Phase;
    use spec::outcome::Outcome;
    use std::io::Read as _;
    use std::os::fd::{AsFd as _, OwnedFd};

    const KIND: EventKind<'_> = EventKind::PhaseStarted {
        phase: Phase::Prepare,
    };

    fn report() -> Report {
        Report::new("id".to_owned(), Outcome::Exited)
    }

    fn read_all(reader: OwnedFd) -> Vec<serde_json::Value> {
        let mut text = String::new();
        let mut file = std::fs::File::from(reader);
        file.read_to_string(&mut text).expect("read");
        let lines = text.lines();
        lines
            .map(|line| serde_json::from_str(line).expect("JSON"))
            .collect()
    }

    #[test]
    fn a_reader_gets_every_event_with_its_number() {
        let (reader, writer) = pipe_with(PipeFlags::CLOEXEC).expect("a pipe");
        let stream = EventStream::to(writer.as_fd()).expect("opened");
        drop(writer);
        stream.emit("id", KIND);
        assert_eq!(stream.end(&report()), None);
        drop(stream);
        let lines = read_all(reader);
        assert_eq!(lines.len(), 2);
        assert_eq!((&lines[0]["seq"], &lines[1]["seq"]), (&0.into(), &1.into()));
        assert_eq!(lines[0]["event"], "phase_started");
        assert_eq!(lines[1]["outcome"], "exited");
    }

    #[test]
    fn a_reader_that_reads_nothing_is_not_waited_for_and_what_it_misses_is_counted() {
        let (reader, writer) = pipe_with(PipeFlags::CLOEXEC).expect("a pipe");
        let stream = EventStream::to(writer.as_fd()).expect("opened");
        let started = Instant::now();
        for _event in 0..20_000 {
            stream.emit("id", KIND);
        }
        let lost = stream.end(&report()).expect("some were lost");
        assert_eq!((lost.total, lost.errno), (20_001, None));
        assert!(started.elapsed() < 20 * END_WAIT);
        drop((stream, writer));
        let mut bytes = Vec::new();
        std::fs::File::from(reader)
            .read_to_end(&mut bytes)
            .expect("read");
        let whole = bytes.iter().filter(|byte| **byte == b'\n').count();
        assert_eq!(u64::try_from(whole).expect("fits"), lost.total - lost.lost);
    }

    #[test]
    fn a_closed_reader_and_a_full_disk_lose_events_and_nothing_else() {
        let (reader, writer) = pipe_with(PipeFlags::CLOEXEC).expect("a pipe");
        drop(reader);
        let full = std::fs::File::options()
            .write(true)
            .open("/dev/full")
            .expect("opened");
        for (target, errno) in [(writer.as_fd(), Errno::PIPE), (full.as_fd(), Errno::NOSPC)] {
            let stream = EventStream::to(target).expect("opened");
            stream.emit("id", KIND);
            let lost = stream.end(&report());
            let expected = LostEvents {
                lost: 2,
                total: 2,
                errno: Some(errno),
            };
            assert_eq!(lost, Some(expected));
        }
    }

    #[test]
    fn without_a_target_nothing_is_lost() {
        let stream = EventStream::default();
        stream.emit("id", KIND);
        assert_eq!(stream.end(&report()), None);
    }
}
