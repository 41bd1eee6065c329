//! Answers questions about what a stranger wrote, one after another, in one process without rights.

use std::time::{Duration, Instant};

use confinement::Role;
use spec::parse_permit::ParsePermit;
use sys::worker::{self, WorkerError, WorkerLimits};

use crate::unpacking::NO_ANSWER;
use crate::worker::NoAnswer;

/// Of all answers together.
const TIME_MAX: Duration = Duration::from_secs(60);
const MEMORY_BYTES: u64 = 512 << 20;

/// A process that answers questions. It has a copy of this process's memory, and ends when this is dropped.
#[derive(Debug)]
pub struct Dialogue {
    process: worker::Dialogue,
    time_left: Duration,
}

impl Dialogue {
    /// Starts a process that calls `answer` for each question.
    ///
    /// # Errors
    /// Why it was not started, as the end of a sentence.
    pub fn start(answer: &mut dyn FnMut(&ParsePermit, &[u8]) -> Vec<u8>) -> Result<Self, String> {
        Self::start_for(TIME_MAX, answer)
    }

    fn start_for(
        time: Duration,
        answer: &mut dyn FnMut(&ParsePermit, &[u8]) -> Vec<u8>,
    ) -> Result<Self, String> {
        let limits = WorkerLimits {
            time: Some(time),
            memory_bytes: MEMORY_BYTES,
            file_bytes: 0,
            answer_bytes: 0,
        };
        let mut answer = |permit: &ParsePermit, question: &[u8]| {
            #[cfg(feature = "planted-bugs")]
            confinement::planted::trigger("questions", question);
            answer(permit, question)
        };
        let process =
            worker::Dialogue::start(limits, &|keep| Role::Reader.enter(keep), &mut answer)
                .map_err(|errno| NoAnswer::Host(errno).reason())?;
        Ok(Self {
            process,
            time_left: time,
        })
    }

    /// Returns the answer, of at most `bytes_max` bytes, which may be forged. After an error there are no more.
    ///
    /// # Errors
    /// Why there is no answer, as the end of a sentence.
    pub fn ask(&mut self, question: &[u8], bytes_max: usize) -> Result<Vec<u8>, String> {
        let start = Instant::now();
        let answer = self.process.ask(question, self.time_left, bytes_max);
        self.time_left = self.time_left.saturating_sub(start.elapsed());
        answer.map_err(|error| match error {
            WorkerError::TimedOut => "all answers together take too long".to_owned(),
            WorkerError::Host(errno) | WorkerError::Source(errno) => NoAnswer::Host(errno).reason(),
            WorkerError::Exited | WorkerError::TooLong | WorkerError::Signal(_) => {
                NO_ANSWER.to_owned()
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    ///
    #[test]
    fn it_opens_no_file_and_keeps_what_it_was_told() {
        let mut count = 0;
        let mut answer = |_: &ParsePermit, question: &[u8]| {
            count += question.len();
            let opened = std::fs::File::open("/etc/passwd").map(drop);
            let status = opened.map_err(|error| error.kind());
            format!("{count} {status:?}").into_bytes()
        };
        let mut dialogue = Dialogue::start(&mut answer).expect("started");
        for (question, expected) in [
            ("one", "3 Err(PermissionDenied)"),
            ("three", "8 Err(PermissionDenied)"),
        ] {
            let answer = dialogue.ask(question.as_bytes(), 100);
            assert_eq!(answer, Ok(expected.as_bytes().to_vec()));
        }
    }

    ///
    #[test]
    fn it_works_without_rights() {
        let mut answer = |_: &ParsePermit, _: &[u8]| b"confined".to_vec();
        let mut dialogue = Dialogue::start(&mut answer).expect("started");
        dialogue.ask(b"", 100).expect("an answer");
        // Only the children of this thread, so of this test.
        let children = std::fs::read_to_string("/proc/thread-self/children").expect("listed");
        let status = std::fs::read_to_string(format!("/proc/{}/status", children.trim()));
        let status = status.expect("one child");
        for line in [
            "CapPrm:\t0000000000000000",
            "CapEff:\t0000000000000000",
            "NoNewPrivs:\t1",
            "Seccomp:\t2",
        ] {
            assert!(
                status.lines().any(|found| found == line),
                "{line}: {status}"
            );
        }
        assert!(!status.contains("Uid:\t0\t"), "{status}");
    }

    #[test]
    fn its_time_is_that_of_all_answers() {
        let mut answer = |_: &ParsePermit, _: &[u8]| loop {
            std::hint::spin_loop();
        };
        let time = Duration::from_millis(20);
        let mut dialogue = Dialogue::start_for(time, &mut answer).expect("started");
        let expected = Err("all answers together take too long".to_owned());
        assert_eq!(dialogue.ask(b"", 1), expected);
    }
}
