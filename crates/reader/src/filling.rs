//! Runs the reader for an archive that a caller streams, who is asked whether to go on.

use std::fs::File;
use std::io::{self, Read};

use archive::{Hashed, UnpackError};
use confinement::Role;
use spec::digest::Digest;
use spec::parse_permit::ParsePermit;
use sys::worker::{STALL_MAX, Sent, Work, WorkerLimits, run_in_child_unless};

use crate::message::Problem;
use crate::unpacking::{NO_ANSWER, UnpackFailure};

/// An archive, as its caller reads it.
#[expect(missing_debug_implementations, reason = "closures")]
pub struct Feed<'run> {
    /// Its reads may not block for long: meanwhile nobody asks `is_cancelled`.
    pub source: &'run mut dyn Read,
    /// Asked several times a second.
    pub is_cancelled: &'run dyn Fn() -> bool,
}

/// What the reader answered.
pub(crate) struct Answer {
    pub(crate) bytes: Vec<u8>,
    digest: Digest,
    is_whole: bool,
}

impl Answer {
    /// The digest of the archive, for a reader that says that it unpacked it.
    ///
    /// # Errors
    /// It cannot have: it did not wait for the end.
    pub(crate) fn archive_digest(&self) -> Result<Digest, Problem> {
        if self.is_whole {
            return Ok(self.digest);
        }
        let early = "its reader answered before it had the whole archive";
        Err(Problem::of_reader(early))
    }
}

/// Notes whether a source was read to its end.
struct Whole<R> {
    source: R,
    is_at_end: bool,
}

impl<R: Read> Read for Whole<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.source.read(buffer)?;
        self.is_at_end |= count == 0;
        Ok(count)
    }
}

/// Sends the archive of `feed` to a reader in `role`, and returns its answer, which may be forged.
pub(crate) fn fill(
    feed: Feed<'_>,
    role: Role<'_>,
    limits: WorkerLimits,
    run: &dyn Fn(&ParsePermit, File) -> Vec<u8>,
) -> Result<Answer, Problem> {
    let work = Work {
        confine: &|keep| role.enter(keep),
        run: &|permit, source, _answer| run(permit, source),
    };
    let mut source = Whole {
        source: Hashed::new(feed.source),
        is_at_end: false,
    };
    let sent = Sent {
        source: &mut source,
        descriptor: None,
    };
    let answer = run_in_child_unless(feed.is_cancelled, limits, sent, &work);
    let bytes = answer.map_err(|error| match UnpackFailure::from(error) {
        UnpackFailure::Problem(problem) => problem,
        UnpackFailure::Source(errno) => Problem::of(&UnpackError::Read(errno.into())),
        UnpackFailure::Host(errno) => Problem::not_started(errno),
        UnpackFailure::TimedOut => Problem::of_reader(&format!(
            "its reader neither read nor answered for {STALL_MAX:?}"
        )),
        // No signal is waited for.
        UnpackFailure::Cancelled(_) => Problem::of_reader(NO_ANSWER),
    })?;
    Ok(Answer {
        bytes,
        digest: source.source.digest(),
        is_whole: source.is_at_end,
    })
}
