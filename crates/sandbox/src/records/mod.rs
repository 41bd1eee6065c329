//! Records of runs, to clean up after a killed supervisor without touching live runs.
//!
//! The runtime directory contains:
//!
//! - `runs/<run id>`: the record of one run in JSON lines: objects, each appended *before* it is
//!   created, and what the run may use of memory and processors. The supervisor locks it with flock(2),
//!   and init inherits the open file description. So the lock lasts until both are dead, and with init the whole body.
//!   In a sandbox that stays the supervisor also locks a byte of it, which init does not inherit, and records init: an
//!   init that a command has taken over may survive the supervisor, and a later start ends it. A finished record is
//!   emptied and reused under a spare name: creating an inode takes 1 ms if /run is on a disk, renaming 30 µs.
//! - `mount`: an empty directory on which each run mounts its new root in its own mount namespace.
//! - `sandboxes/<name>@<run id>`: the control socket of a sandbox that stays, mode 0600.
//! - `uids`: one byte per uid of the range, locked while in use.
//! - `locks`: one byte per workspace, locked while outputs are written. The workspace itself is not
//!   locked, because any body with read access could take that lock.

mod directory;
mod orphans;
mod record;
mod sockets;
mod totals;
mod uids;

use std::ffi::OsString;
use std::fs::File;
use std::io::{Read as _, Seek as _};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::io::Errno;

use spec::path::escape;
use spec::sandboxes::SandboxName;
use sys::file::{CallError, errno_of};
use sys::lock;

use super::cgroups;
use orphans::SUPERVISOR_BYTE;

pub use directory::default_directory;
pub use record::{Entry, RunRecord};
pub use sockets::Sandboxes;
pub use totals::{ExceededTotal, Share, TotalKind};
pub use uids::UidClaim;

/// Retries if a concurrent cleanup removes the new record before it is locked.
const BEGIN_TRIES_MAX: usize = 64;

/// The runtime directory, opened and checked.
#[derive(Debug)]
pub struct RunRecords {
    path: PathBuf,
    directory: OwnedFd,
    runs: OwnedFd,
    mount_point: PathBuf,
}

/// A temporary file of a dead run, which the caller removes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Leftover {
    pub run_id: String,
    pub directory: PathBuf,
    /// One component.
    pub name: OsString,
}

/// Result of cleaning up one dead run.
#[derive(Debug)]
pub struct Collected {
    pub run_id: String,
    pub removed: Vec<Entry>,
    /// Directories of the caller's that the run may not have completed.
    pub kept: Vec<PathBuf>,
    /// If not empty, the record stays for the next start.
    pub failures: Vec<RecordsError>,
}

/// Error of the caller's function that removes a temporary file.
pub type CleanFailure = Box<dyn std::error::Error + Send + Sync>;

/// Error of the runtime directory.
#[derive(Debug, thiserror::Error)]
pub enum RecordsError {
    #[error("the runtime directory {path} is not absolute")]
    Relative { path: String },
    #[error("cannot {act} in the runtime directory {path}")]
    Call {
        act: &'static str,
        /// Escaped.
        path: String,
        #[source]
        source: CallError,
    },
    /// Another user could put records there.
    #[error(
        "the {what} {path} is not safe: found {found}, expected {expected}; change that, or name \
         another runtime directory"
    )]
    Unsafe {
        /// The runtime directory or its parent.
        what: &'static str,
        /// Escaped.
        path: String,
        found: String,
        expected: String,
    },
    #[error("`{found}` is not a run id: expected 1 to 64 of a-z, 0-9 and `-`")]
    RunId { found: String },
    #[error("the sandbox {name} exists: run {run_id}")]
    NameTaken { name: SandboxName, run_id: String },
    #[error("{count} sandboxes of this user exist or are being created, and {most} may")]
    TooManySandboxes { count: usize, most: usize },
    #[error(
        "the {} of the live runs is {}, that of this one {}, and {} may be in use",
        .0.kind.limit().name(), .0.used, .0.share, .0.most
    )]
    TotalExceeded(ExceededTotal),
    #[error("run {run_id} is already recorded")]
    Exists { run_id: String },
    #[error("line {line} of the record of run {run_id} is malformed; remove runs/{run_id} by hand")]
    Malformed {
        run_id: String,
        /// Counted from 1.
        line: usize,
        #[source]
        source: serde_json::Error,
    },
    #[error("an entry of the record of run {run_id} cannot be encoded")]
    Encode {
        run_id: String,
        #[source]
        source: serde_json::Error,
    },
    #[error("a cgroup of the dead run {run_id} cannot be removed")]
    Cgroup {
        run_id: String,
        #[source]
        source: Box<cgroups::CgroupError>,
    },
    #[error("the temporary file {name} in {directory} of the dead run {run_id} cannot be removed")]
    Temporary {
        run_id: String,
        /// Escaped.
        directory: String,
        name: String,
        #[source]
        source: CleanFailure,
    },
    #[error("the uid range {base} + {count} is not usable: it must be within 1 to 4294967293")]
    UidRange { base: u32, count: u32 },
    #[error("live runs use all {count} uids from {base} on; widen the range")]
    UidsExhausted { base: u32, count: u32 },
}

/// The directories below the runtime directory, with their modes.
fn parts() -> [(&'static str, u32); 2] {
    [("runs", 0o700), ("mount", directory::search_mode())]
}

impl RunRecords {
    /// Opens the runtime directory and creates missing parts.
    ///
    /// # Errors
    /// [`RecordsError::Unsafe`] if it has another owner, is not a directory, or is writable for
    /// others; [`RecordsError::Relative`]; [`RecordsError::Call`].
    pub fn open(path: &Path) -> Result<Self, RecordsError> {
        let directory = directory::open_checked(path)?;
        let [runs, mount] = parts();
        let open = |(name, mode)| directory::open_part(path, directory.as_fd(), name, mode);
        let runs = open(runs)?;
        // Only its existence and owner matter; it stays empty.
        drop(open(mount)?);
        Ok(Self {
            path: path.to_owned(),
            mount_point: path.join("mount"),
            directory,
            runs,
        })
    }

    /// Checks what [`Self::open`] would, and creates nothing.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn check(path: &Path) -> Result<(), RecordsError> {
        directory::check(path, &parts())
    }

    /// The empty directory on which a run mounts its new root, in its own mount namespace.
    #[must_use]
    pub fn mount_point(&self) -> &Path {
        &self.mount_point
    }

    /// Whether the supervisor or init of the run lives.
    ///
    /// # Errors
    /// [`RecordsError::Call`].
    pub fn is_live(&self, run_id: &str) -> Result<bool, RecordsError> {
        is_locked(&self.path, &self.runs, run_id)
    }

    /// Creates the record of a run. It stays locked as long as a process has its descriptor open.
    pub fn begin(&self, run_id: &str) -> Result<RunRecord, RecordsError> {
        if !is_run_id(run_id.as_bytes()) {
            return Err(RecordsError::RunId {
                found: escape(run_id.as_bytes()),
            });
        }
        // Before the rename, after which nothing may fail.
        let runs = self
            .runs
            .try_clone()
            .map_err(|error| self.failed("make a record", run_id, "dup", errno_of(&error)))?;
        if let Some(file) = self.claim_spare(run_id)? {
            return Ok(RunRecord::new(run_id, &self.path, runs, file));
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
            if let Err(errno) = lock::claim_file(file.as_fd()) {
                if self.is_still(run_id, file.as_fd())? {
                    rustix::fs::unlinkat(&self.runs, run_id, AtFlags::empty()).map_err(
                        |errno| self.failed("remove a record", run_id, "unlinkat", errno),
                    )?;
                }
                return Err(self.failed("claim a record", run_id, "flock", errno));
            }
            // A concurrent cleanup may have removed the file before it was locked.
            if self.is_still(run_id, file.as_fd())? {
                return Ok(RunRecord::new(run_id, &self.path, runs, file));
            }
        }
        Err(self.failed("claim a record", run_id, "flock", Errno::AGAIN))
    }

    /// Cleans up dead runs: kills and removes their cgroups, and passes temporary files to `clean`,
    /// which must accept missing files. Skips live runs. Costs one readdir if there is no record.
    ///
    /// # Errors
    /// [`RecordsError::Call`] if the records cannot be listed. Errors of one run are in its
    /// [`Collected`].
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
                    kept: Vec::new(),
                    failures: vec![failure],
                }),
            }
        }
        Ok(collected)
    }

    /// Claims a uid of `base .. base + count`, never 0, 65534 (`nobody`) or 4294967295 (`-1`). `seed`
    /// determines where the search starts.
    ///
    /// The claim lasts until the last copy of its descriptor, including init's, is closed.
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
            // The run has finished since the record was listed.
            Err(Errno::NOENT) => return Ok(None),
            Err(errno) => return Err(self.failed("read a record", run_id, "openat", errno)),
        };
        let record = File::from(record);
        let claim = || {
            lock::try_claim_file(record.as_fd())
                .map_err(|errno| self.failed("claim a record", run_id, "flock", errno))
        };
        let is_claimed = claim()? || (self.ends_orphan(run_id, &record)? && claim()?);
        // A locked record belongs to a live run. Another file under this name: the run has finished,
        // and the name may now belong to a live run.
        if !is_claimed || !self.is_still(run_id, record.as_fd())? {
            return Ok(None);
        }
        let text = self.text(run_id, &record)?;
        let (entries, failure) = record::remaining(run_id, &text);
        let mut collected = Collected {
            run_id: run_id.to_owned(),
            removed: Vec::new(),
            kept: Vec::new(),
            failures: failure.into_iter().collect(),
        };
        for removed in remove_groups(run_id, &entries) {
            match removed {
                Ok(group) => collected.removed.push(group),
                Err(failure) => collected.failures.push(failure),
            }
        }
        for entry in entries.iter().rev() {
            let (directory, name) = match entry {
                Entry::Cgroup(_) => continue,
                Entry::Temporary { directory, name } => (directory, name),
                Entry::Kept(path) => {
                    collected.kept.push(path.clone());
                    continue;
                }
                Entry::Socket(name) => {
                    match sockets::remove(&self.path, &sockets::file_name(name, run_id)) {
                        Ok(()) => collected.removed.push(entry.clone()),
                        Err(failure) => collected.failures.push(failure),
                    }
                    continue;
                }
            };
            let leftover = Leftover {
                run_id: run_id.to_owned(),
                directory: directory.clone(),
                name: name.clone(),
            };
            match clean(&leftover) {
                Ok(()) => collected.removed.push(entry.clone()),
                Err(source) => collected.failures.push(RecordsError::Temporary {
                    run_id: run_id.to_owned(),
                    directory: escape(directory.as_os_str().as_encoded_bytes()),
                    name: escape(name.as_encoded_bytes()),
                    source,
                }),
            }
        }
        if collected.failures.is_empty() {
            // While it is locked, so that no other start can have reused the name.
            rustix::fs::unlinkat(&self.runs, run_id, AtFlags::empty())
                .map_err(|errno| self.failed("remove a record", run_id, "unlinkat", errno))?;
        }
        drop(record);
        Ok(Some(collected))
    }

    /// Ends init of a sandbox that stays if its supervisor was killed; `false`: the record is that of something alive.
    fn ends_orphan(&self, run_id: &str, record: &File) -> Result<bool, RecordsError> {
        let is_live = lock::is_byte_claimed(record.as_fd(), SUPERVISOR_BYTE)
            .map_err(|errno| self.failed("inspect a record", run_id, "fcntl", errno))?;
        if is_live {
            return Ok(false);
        }
        let text = self.text(run_id, record)?;
        let Some(init) = record::init(&text) else {
            return Ok(false);
        };
        // First: of a sandbox that is paused, no process ends before it is thawed.
        let (entries, _) = record::remaining(run_id, &text);
        for removed in remove_groups(run_id, &entries) {
            removed?;
        }
        init.end()
            .map_err(|errno| self.failed("end init of", run_id, "kill", errno))?;
        Ok(true)
    }

    fn text(&self, run_id: &str, mut record: &File) -> Result<Vec<u8>, RecordsError> {
        let mut text = Vec::new();
        record
            .rewind()
            .and_then(|()| record.read_to_end(&mut text))
            .map_err(|error| self.failed("read a record", run_id, "read", errno_of(&error)))?;
        Ok(text)
    }

    /// Locks an empty spare record and gives it this run's name; `None` if no spare is free.
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
            let size = rustix::fs::fstat(&file)
                .map_err(|errno| self.failed("inspect a record", spare, "fstat", errno))?
                .st_size;
            // Locked: the init of the previous run is still dying, or another run was faster.
            // Another file under this name: the opened one is now another run's record.
            if !claimed || size != 0 || !self.is_still(spare, file.as_fd())? {
                continue;
            }
            // It is locked before the rename, so that a cleanup never finds it unlocked.
            return match record::rename(&self.runs, spare, run_id) {
                Ok(()) => Ok(Some(file)),
                Err(Errno::EXIST) => Err(RecordsError::Exists {
                    run_id: run_id.to_owned(),
                }),
                // The file system does not support RENAME_NOREPLACE.
                Err(Errno::INVAL) => Ok(None),
                Err(errno) => Err(self.failed("name a record", run_id, "renameat2", errno)),
            };
        }
        Ok(None)
    }

    /// Whether the name still refers to the opened file.
    fn is_still(&self, run_id: &str, opened: BorrowedFd<'_>) -> Result<bool, RecordsError> {
        let failed = |errno| self.failed("inspect a record", run_id, "fstatat", errno);
        let opened = rustix::fs::fstat(opened).map_err(failed)?;
        match rustix::fs::statat(&self.runs, run_id, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(named) => Ok((named.st_ino, named.st_dev) == (opened.st_ino, opened.st_dev)),
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

/// Kills and removes the cgroups of a run that no supervisor has.
fn remove_groups<'entry>(
    run_id: &'entry str,
    entries: &'entry [Entry],
) -> impl Iterator<Item = Result<Entry, RecordsError>> + 'entry {
    let paths: Vec<&str> = entries.iter().filter_map(Entry::cgroup).collect();
    let results = cgroups::remove_leftovers(run_id, &paths);
    let pairs = paths.into_iter().zip(results);
    pairs.map(move |(path, result)| match result {
        Ok(()) => Ok(Entry::Cgroup(path.to_owned())),
        Err(source) => Err(RecordsError::Cgroup {
            run_id: run_id.to_owned(),
            source: Box::new(source),
        }),
    })
}

/// Whether a process has the record of the run open.
fn is_locked(path: &Path, runs: &OwnedFd, run_id: &str) -> Result<bool, RecordsError> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = match rustix::fs::openat(runs, run_id, flags, Mode::empty()) {
        Ok(file) => file,
        Err(Errno::NOENT) => return Ok(false),
        Err(errno) => return Err(failed(path, "open a record", run_id, "openat", errno)),
    };
    let is_free = lock::try_share_file(file.as_fd())
        .map_err(|errno| failed(path, "inspect a record", run_id, "flock", errno))?;
    Ok(!is_free)
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

/// A run id is one path component, not hidden and without glob characters.
fn is_run_id(bytes: &[u8]) -> bool {
    (1..=64).contains(&bytes.len())
        && bytes
            .iter()
            .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || *byte == b'-')
}

#[cfg(test)]
mod tests {
    use super::*;
    use filter::bpf::Instruction;

    #[test]
    fn the_last_entry_of_a_long_record_is_read() {
        let directory = tempfile::tempdir().expect("a directory");
        let records = RunRecords::open(&directory.path().join("runtime")).expect("opened");
        let temporary = |name: String| Entry::Temporary {
            directory: "/work".into(),
            name: name.into(),
        };
        let mut record = records.begin("a").expect("begun");
        let names = (0..30_000).map(|number| format!("file-{number}"));
        let entries: Vec<Entry> = names.map(temporary).collect();
        record.record_all(&entries).expect("recorded");
        drop(record);
        let mut last = None;
        let collected = records.collect_leftovers(&mut |leftover| {
            last.get_or_insert_with(|| leftover.name.clone());
            Ok(())
        });
        assert_eq!(collected.expect("listed").len(), 1);
        assert_eq!(last, Some("file-29999".into()));
    }

    #[test]
    fn a_record_that_cannot_be_locked_is_removed() {
        let instruction = |code, jf, k| Instruction { code, jt: 0, jf, k };
        let flock = u32::try_from(libc::SYS_flock).expect("a call number");
        let without_flock = [
            instruction(0x20, 0, 0),
            instruction(0x15, 1, flock),
            instruction(0x06, 0, libc::SECCOMP_RET_ERRNO | 38),
            instruction(0x06, 0, libc::SECCOMP_RET_ALLOW),
        ];
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("runtime");
        let records = RunRecords::open(&path).expect("opened");
        // The filter applies to its thread only.
        let begun = std::thread::scope(|scope| {
            let thread = scope.spawn(|| {
                rustix::thread::set_no_new_privs(true).expect("set");
                sys::seccomp::load(&without_flock).expect("loaded");
                records.begin("a").map(|_record| ())
            });
            thread.join().expect("no panic")
        });
        let error = begun.expect_err("flock(2) fails");
        assert!(error.to_string().contains("claim a record"), "{error}");
        let left = std::fs::read_dir(path.join("runs")).expect("listed");
        assert_eq!(left.count(), 0);
    }
}
