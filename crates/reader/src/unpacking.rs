//! Unpacks a bundle.

use std::fs::File;
use std::os::fd::BorrowedFd;
use std::time::Duration;

use archive::{Hashed, Tree, UnpackLimits, Unpacked};
use confinement::Role;
use rustix::io::Errno;
use spec::parse_permit::ParsePermit;
use sys::credentials::HostIds;
use sys::worker::{Answer, Sent, Work, WorkerError, WorkerLimits, run_in_child};

use crate::WaitLimit;
use crate::documents::{DOCUMENTS_BYTES_MAX, Documents};
use crate::message::{self, Problem, Told};

/// Memory beside the tree: buffers, tables of the decoder, a second thread; then the documents.
const MEMORY_BYTES: u64 = 96 << 20;
/// An entry of the tree in memory, its list and its order; its names are counted apart.
const ENTRY_BYTES: u64 = 512;

pub(crate) const NO_ANSWER: &str = "its reader ended without an answer, perhaps for want of memory";

/// The empty directory to unpack into.
#[derive(Debug, Clone, Copy)]
pub struct Target<'run> {
    pub directory: BorrowedFd<'run>,
    /// Ids of the files, for root: those of the body. `None`: the caller's.
    pub ids: Option<HostIds>,
}

/// Parses the documents that are needed of the unpacked tree, in the process without rights.
pub type ParseDocuments<'run> = dyn Fn(&ParsePermit, &Tree) -> Documents + 'run;

/// How an archive is unpacked.
#[expect(missing_debug_implementations, reason = "a closure")]
pub struct UnpackTask<'run> {
    pub target: Target<'run>,
    pub limits: &'run UnpackLimits,
    /// The inflated byte from which a second thread reads ahead.
    pub ahead_from_bytes: u64,
    pub documents: &'run ParseDocuments<'run>,
}

/// Why nothing was unpacked.
#[derive(Debug)]
pub enum UnpackFailure {
    Problem(Problem),
    TimedOut,
    Cancelled(i32),
    /// The archive could not be read.
    Source(Errno),
    Host(Errno),
}

/// Memory that unpacking a tree within `limits` takes.
pub(crate) fn memory_bytes(limits: &UnpackLimits) -> u64 {
    let tree = limits.tree_limits();
    let of_tree = tree.entries.saturating_mul(ENTRY_BYTES);
    let of_names = tree.name_bytes.saturating_mul(4);
    MEMORY_BYTES.saturating_add(of_tree.saturating_add(of_names))
}

/// Unpacks `archive` (tar.gz) as `task` says. The digest of the archive is that of the bytes
/// read here; the content digest, the tree and the documents are the word of the reader, which is checked
/// for what an archive within the limits can contain. Documents that the reader did not get done are
/// missing.
///
/// # Errors
/// [`UnpackFailure`]; the directory then contains some of the files.
pub fn unpack(
    archive: Sent<'_>,
    task: UnpackTask<'_>,
    wait_limit: WaitLimit<'_>,
) -> Result<(Unpacked, Documents), UnpackFailure> {
    let UnpackTask { target, limits, .. } = task;
    let role = Role::Unpacker {
        directory: target.directory,
        ids: target.ids,
    };
    let run = |permit: &ParsePermit, source: File, answer: &Answer<'_>| {
        #[cfg(feature = "planted-bugs")]
        let source = confinement::planted::watch("archives", source);
        let into = target.directory;
        let unpacked = archive::unpack_ahead(permit, source, into, limits, task.ahead_from_bytes);
        let told = unpacked.map(Told::from);
        // First what stays true if a document takes all memory or time.
        answer.send(&message::write(told.as_ref()));
        told.map_or_else(
            |_error| Vec::new(),
            |told| (task.documents)(permit, &told.tree).write(),
        )
    };
    let work = Work {
        confine: &|keep| role.enter(keep),
        run: &run,
    };
    let mut source = Hashed::new(archive.source);
    let sent = Sent {
        source: &mut source,
        descriptor: archive.descriptor,
    };
    let answer = run_in_child(
        worker_limits(limits, wait_limit.time, 0),
        wait_limit.signals,
        sent,
        &work,
    )?;
    let (told, rest) = message::read(&answer, limits)?;
    let mut unpacked = told.unpacked().ok_or_else(message::malformed)?;
    unpacked.archive_digest = Some(source.digest());
    Ok((unpacked, Documents::read(rest)))
}

/// Limits of a process that reads an archive within `limits` and tells its tree, and `more_bytes` of its
/// contents.
pub(crate) fn worker_limits(
    limits: &UnpackLimits,
    time: Option<Duration>,
    more_bytes: u64,
) -> WorkerLimits {
    let answer = message::bytes_max(limits)
        .saturating_add(more_bytes)
        .saturating_add(DOCUMENTS_BYTES_MAX as u64);
    WorkerLimits {
        time,
        memory_bytes: memory_bytes(limits).saturating_add(more_bytes.saturating_mul(4)),
        file_bytes: limits.unpacked_bytes,
        answer_bytes: usize::try_from(answer).unwrap_or(usize::MAX),
    }
}

impl From<Problem> for UnpackFailure {
    fn from(problem: Problem) -> Self {
        Self::Problem(problem)
    }
}

impl From<WorkerError> for UnpackFailure {
    fn from(error: WorkerError) -> Self {
        let of_reader = |problem| Self::Problem(Problem::of_reader(problem));
        match error {
            WorkerError::TimedOut => Self::TimedOut,
            WorkerError::Signal(signal) => Self::Cancelled(signal),
            WorkerError::Source(errno) => Self::Source(errno),
            WorkerError::Host(errno) => Self::Host(errno),
            WorkerError::Exited => of_reader(NO_ANSWER),
            WorkerError::TooLong => of_reader("the answer of its reader is too long"),
        }
    }
}
