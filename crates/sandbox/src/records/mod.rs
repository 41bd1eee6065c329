//! Records of runs, so that what a killed supervisor left is found, and a live run never touched.
//!
//! The runtime directory holds:
//!
//! - `runs/<run id>`: the record of one run, JSON lines, each appended *before* the thing is made.
//!   The supervisor holds flock(2) on it. The claim is tied to the open file description, which
//!   the sandbox's init inherits: it lasts until the supervisor *and* init, and with init the
//!   whole body, are dead. Whoever gets the lock therefore knows that nothing of the run lives,
//!   except what a crash of the kernel's own guarantees would leave, and that is killed first.
//!   A finished record is emptied and kept under a spare name for the next run: making an inode
//!   costs a millisecond where /run is not in memory, renaming one costs 30 µs.
//! - `mount`: an empty directory. Each run mounts its new root on it, in its own mount namespace,
//!   so that no directory of the host is covered and none has to be made.
//! - `uids`: one byte for each uid of the range, claimed by a byte-range lock.
//! - `locks`: one byte for each workspace, claimed likewise while outputs are written to it. A lock
//!   on the workspace itself could be held by every body that may read it.

mod directory;
mod record;
mod uids;

use std::fs::File;
use std::io::Read as _;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::io::Errno;

use spec::path::escape;
use sys::file::CallError;
use sys::lock;

use super::cgroups;

pub use directory::default_directory;
pub use record::{Entry, RunRecord};
pub use uids::UidClaim;

/// How often a record is made anew when a collector took it in the instant before it was claimed.
const BEGIN_TRIES_MAX: usize = 64;
/// The longest record that is read back.
const RECORD_BYTES_MAX: u64 = 1 << 20;

/// The runtime directory, opened and checked.
#[derive(Debug)]
pub struct RunRecords {
    path: PathBuf,
    directory: OwnedFd,
    runs: OwnedFd,
    mount_point: PathBuf,
}

/// Something that a dead run left and that only the caller knows how to remove.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Leftover {
    pub run_id: String,
    /// An [`Entry::Temporary`]; cgroups are removed here.
    pub entry: Entry,
}

/// What became of the record of one dead run.
#[derive(Debug)]
pub struct Collected {
    pub run_id: String,
    /// What it had recorded and is not there any more.
    pub removed: Vec<Entry>,
    /// What could not be removed; the record then stays for the next start.
    pub failures: Vec<RecordsError>,
}

/// What the caller's way of removing a temporary file may fail with.
pub type CleanFailure = Box<dyn std::error::Error + Send + Sync>;

/// What went wrong with the runtime directory.
#[derive(Debug, thiserror::Error)]
pub enum RecordsError {
    /// The path is not absolute, so that two runs could mean different directories.
    #[error("the runtime directory {path} is not absolute")]
    Relative { path: String },
    /// A system call failed on something in the runtime directory.
    #[error("cannot {act} in the runtime directory {path}")]
    Call {
        /// What was to be done.
        act: &'static str,
        /// The runtime directory, escaped.
        path: String,
        #[source]
        source: CallError,
    },
    /// Somebody else could put his own records there.
    #[error(
        "the runtime directory {path} is not safe: {found}, expected {expected}; \
         remove it or name another"
    )]
    Unsafe {
        /// Which part of it, escaped.
        path: String,
        found: String,
        /// What it must be.
        expected: String,
    },
    /// The run id cannot be a file name of ours.
    #[error("`{found}` is not a run id: 1 to 64 of a-z, 0-9 and `-` are expected")]
    RunId { found: String },
    /// Another run has this id.
    #[error("run {run_id} is already recorded")]
    Exists { run_id: String },
    /// A complete line of a record is not one that was ever written.
    #[error(
        "line {line} of the record of run {run_id} cannot be understood; remove runs/{run_id} by hand"
    )]
    Malformed {
        run_id: String,
        /// Counted from 1.
        line: usize,
        /// What the parser says.
        #[source]
        source: serde_json::Error,
    },
    /// An entry cannot be written as a line.
    #[error("an entry of the record of run {run_id} cannot be written")]
    Encode {
        run_id: String,
        /// What the encoder says.
        #[source]
        source: serde_json::Error,
    },
    /// A cgroup of a dead run is still there.
    #[error("a cgroup of the dead run {run_id} cannot be removed")]
    Cgroup {
        run_id: String,
        #[source]
        source: Box<cgroups::CgroupError>,
    },
    /// A temporary file of a dead run is still there.
    #[error("the temporary {name} in {directory} of the dead run {run_id} cannot be removed")]
    Temporary {
        run_id: String,
        /// Where it lies, escaped.
        directory: String,
        name: String,
        #[source]
        source: CleanFailure,
    },
    /// The range is empty, or leaves the numbers that a uid can have.
    #[error("the uid range {base} + {count} is not usable: it must be within 1 to 4294967293")]
    UidRange { base: u32, count: u32 },
    /// Every uid of the range is in use.
    #[error("all {count} uids from {base} on are in use by live runs; widen the range")]
    UidsExhausted { base: u32, count: u32 },
}

impl RunRecords {
    /// Opens the runtime directory, making what is missing.
    ///
    /// # Errors
    /// [`RecordsError::Unsafe`] where it belongs to somebody else, is a link or no directory, or
    /// may be written by others; [`RecordsError::Relative`]; [`RecordsError::Call`].
    pub fn open(path: &Path) -> Result<Self, RecordsError> {
        let directory = directory::open_checked(path)?;
        let runs = directory::open_part(path, directory.as_fd(), "runs", 0o700)?;
        // Only its existence and its owner matter; nothing is ever made in it.
        drop(directory::open_part(
            path,
            directory.as_fd(),
            "mount",
            directory::search_mode(),
        )?);
        Ok(Self {
            path: path.to_owned(),
            mount_point: path.join("mount"),
            directory,
            runs,
        })
    }

    /// The empty directory that a run mounts its new root on, in a mount namespace of its own.
    #[must_use]
    pub fn mount_point(&self) -> &Path {
        &self.mount_point
    }

    /// Starts the record of a run and claims it for as long as its descriptor is open anywhere.
    ///
    /// # Errors
    /// [`RecordsError::RunId`], [`RecordsError::Exists`], [`RecordsError::Call`].
    pub fn begin(&self, run_id: &str) -> Result<RunRecord, RecordsError> {
        if !is_run_id(run_id.as_bytes()) {
            return Err(RecordsError::RunId {
                found: escape(run_id.as_bytes()),
            });
        }
        // Everything that may fail comes before the record has its name.
        let runs = self
            .runs
            .try_clone()
            .map_err(|error| self.failed("make a record", run_id, "dup", io(&error)))?;
        if let Some(file) = self.claim_spare(run_id)? {
            return Ok(self.begun(run_id, runs, file));
        }
        let flags = OFlags::WRONLY
            | OFlags::APPEND
            | OFlags::CREATE
            | OFlags::EXCL
            | OFlags::NOFOLLOW
            | OFlags::CLOEXEC;
        for _ in 0..BEGIN_TRIES_MAX {
            let file =
                match rustix::fs::openat(&self.runs, run_id, flags, Mode::from_raw_mode(0o600)) {
                    Ok(file) => file,
                    Err(Errno::EXIST) => {
                        return Err(RecordsError::Exists {
                            run_id: run_id.to_owned(),
                        });
                    }
                    Err(errno) => {
                        return Err(self.failed("make a record", run_id, "openat", errno));
                    }
                };
            lock::claim_file(file.as_fd())
                .map_err(|errno| self.failed("claim a record", run_id, "flock", errno))?;
            // A collector may have found it unclaimed and empty, and removed it.
            if self.is_still(run_id, file.as_fd())? {
                return Ok(self.begun(run_id, runs, file));
            }
        }
        Err(self.failed("claim a record", run_id, "flock", Errno::AGAIN))
    }

    /// Removes what dead runs left: cgroups here, after killing what is still in them; temporary
    /// files through `clean`, to which one that is not there is no error. Live runs are skipped.
    ///
    /// One readdir where there is nothing to do.
    ///
    /// # Errors
    /// [`RecordsError::Call`] where the records cannot be listed. What goes wrong with one run
    /// stands in its [`Collected`] and keeps nobody else's from being removed.
    pub fn collect_leftovers(
        &self,
        clean: &mut dyn FnMut(&Leftover) -> Result<(), CleanFailure>,
    ) -> Result<Vec<Collected>, RecordsError> {
        let list = |errno| self.failed("list records", "runs", "getdents", errno);
        let mut collected = Vec::new();
        for entry in rustix::fs::Dir::read_from(&self.runs).map_err(list)? {
            let entry = entry.map_err(list)?;
            let name = entry.file_name();
            if !is_run_id(name.to_bytes()) {
                continue;
            }
            let Ok(run_id) = name.to_str() else {
                continue;
            };
            match self.collect_one(run_id, clean) {
                Ok(None) => (),
                Ok(Some(done)) => collected.push(done),
                Err(failure) => collected.push(Collected {
                    run_id: run_id.to_owned(),
                    removed: Vec::new(),
                    failures: vec![failure],
                }),
            }
        }
        Ok(collected)
    }

    /// Claims a uid for one run out of `base .. base + count`, starting the search at a place
    /// that `seed` decides. Never 0, 65534 (`nobody`) or 4294967295 (`-1`).
    ///
    /// The claim lasts until the last copy of its descriptor is closed, init's included.
    ///
    /// # Errors
    /// [`RecordsError::UidRange`], [`RecordsError::UidsExhausted`], [`RecordsError::Call`].
    pub fn claim_uid(&self, base: u32, count: u32, seed: u64) -> Result<UidClaim, RecordsError> {
        uids::claim(&self.path, self.directory.as_fd(), base, count, seed)
    }

    fn collect_one(
        &self,
        run_id: &str,
        clean: &mut dyn FnMut(&Leftover) -> Result<(), CleanFailure>,
    ) -> Result<Option<Collected>, RecordsError> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let record = match rustix::fs::openat(&self.runs, run_id, flags, Mode::empty()) {
            Ok(record) => record,
            // Finished, or collected by somebody else, since it was listed.
            Err(Errno::NOENT) => return Ok(None),
            Err(errno) => return Err(self.failed("read a record", run_id, "openat", errno)),
        };
        let claimed = lock::try_claim_file(record.as_fd())
            .map_err(|errno| self.failed("claim a record", run_id, "flock", errno))?;
        // Claimed by somebody: live. Not the file of that name any more: finished meanwhile, and
        // the name may by now be that of a live run.
        if !claimed || !self.is_still(run_id, record.as_fd())? {
            return Ok(None);
        }
        let mut text = Vec::new();
        let mut record = File::from(record);
        record
            .by_ref()
            .take(RECORD_BYTES_MAX)
            .read_to_end(&mut text)
            .map_err(|error| self.failed("read a record", run_id, "read", io(&error)))?;
        let (entries, failure) = record::remaining(run_id, &text);
        let mut collected = Collected {
            run_id: run_id.to_owned(),
            removed: Vec::new(),
            failures: failure.into_iter().collect(),
        };
        let groups: Vec<&str> = entries.iter().filter_map(Entry::cgroup).collect();
        let answers = cgroups::remove_leftovers(run_id, &groups);
        for (path, answer) in groups.iter().zip(answers) {
            match answer {
                Ok(()) => collected.removed.push(Entry::Cgroup((*path).to_owned())),
                Err(source) => collected.failures.push(RecordsError::Cgroup {
                    run_id: run_id.to_owned(),
                    source: Box::new(source),
                }),
            }
        }
        for entry in entries.iter().rev() {
            match remove_temporary(run_id, entry, clean) {
                Some(Ok(())) => collected.removed.push(entry.clone()),
                Some(Err(failure)) => collected.failures.push(failure),
                None => (),
            }
        }
        if collected.failures.is_empty() {
            // While it is claimed, so that nobody else finds the name without its file.
            rustix::fs::unlinkat(&self.runs, run_id, AtFlags::empty())
                .map_err(|errno| self.failed("remove a record", run_id, "unlinkat", errno))?;
        }
        drop(record);
        Ok(Some(collected))
    }

    fn begun(&self, run_id: &str, runs: OwnedFd, file: OwnedFd) -> RunRecord {
        RunRecord::new(run_id.to_owned(), self.path.clone(), runs, File::from(file))
    }

    /// Claims an emptied record of a finished run and gives it this run's name; `None`: there is none.
    fn claim_spare(&self, run_id: &str) -> Result<Option<OwnedFd>, RecordsError> {
        let flags = OFlags::WRONLY | OFlags::APPEND | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        for spare in record::SPARES {
            let file = match rustix::fs::openat(&self.runs, spare, flags, Mode::empty()) {
                Ok(file) => file,
                Err(Errno::NOENT) => continue,
                Err(errno) => return Err(self.failed("open a record", spare, "openat", errno)),
            };
            let claimed = lock::try_claim_file(file.as_fd())
                .map_err(|errno| self.failed("claim a record", spare, "flock", errno))?;
            let empty = rustix::fs::fstat(&file)
                .map_err(|errno| self.failed("look at a record", spare, "fstat", errno))?
                .st_size
                == 0;
            // Claimed by somebody: the init of the run before is still dying, or another run
            // was faster. Not that file any more: it is another run's record by now.
            if !claimed || !empty || !self.is_still(spare, file.as_fd())? {
                continue;
            }
            // Claimed before it has the name, so that no collector ever finds it unclaimed.
            return match record::rename(&self.runs, spare, run_id) {
                Ok(()) => Ok(Some(file)),
                Err(Errno::EXIST) => Err(RecordsError::Exists {
                    run_id: run_id.to_owned(),
                }),
                // A file system that cannot rename without replacing.
                Err(Errno::INVAL) => Ok(None),
                Err(errno) => Err(self.failed("name a record", run_id, "renameat2", errno)),
            };
        }
        Ok(None)
    }

    /// Whether the name still stands for the file that was opened.
    fn is_still(&self, run_id: &str, opened: BorrowedFd<'_>) -> Result<bool, RecordsError> {
        let failed = |errno| self.failed("look at a record", run_id, "fstatat", errno);
        let held = rustix::fs::fstat(opened).map_err(failed)?;
        match rustix::fs::statat(&self.runs, run_id, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(named) => Ok(named.st_ino == held.st_ino && named.st_dev == held.st_dev),
            Err(Errno::NOENT) => Ok(false),
            Err(errno) => Err(failed(errno)),
        }
    }

    fn failed(
        &self,
        act: &'static str,
        object: &str,
        call: &'static str,
        errno: Errno,
    ) -> RecordsError {
        failed(&self.path, act, object, call, errno)
    }
}

fn failed(
    path: &Path,
    act: &'static str,
    object: &str,
    call: &'static str,
    errno: Errno,
) -> RecordsError {
    RecordsError::Call {
        act,
        path: escape(path.as_os_str().as_encoded_bytes()),
        source: CallError::new(call, escape(object.as_bytes()), errno),
    }
}

fn io(error: &std::io::Error) -> Errno {
    Errno::from_io_error(error).unwrap_or(Errno::IO)
}

/// `None`: the entry is no temporary.
fn remove_temporary(
    run_id: &str,
    entry: &Entry,
    clean: &mut dyn FnMut(&Leftover) -> Result<(), CleanFailure>,
) -> Option<Result<(), RecordsError>> {
    let Entry::Temporary { directory, name } = entry else {
        return None;
    };
    let leftover = Leftover {
        run_id: run_id.to_owned(),
        entry: entry.clone(),
    };
    Some(clean(&leftover).map_err(|source| RecordsError::Temporary {
        run_id: run_id.to_owned(),
        directory: escape(directory.as_os_str().as_encoded_bytes()),
        name: escape(name.as_encoded_bytes()),
        source,
    }))
}

/// One path component that is no dot file and no glob.
fn is_run_id(bytes: &[u8]) -> bool {
    (1..=64).contains(&bytes.len())
        && bytes
            .iter()
            .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || *byte == b'-')
}
