//! Copies each declared output from the scratch directory to the workspace.

use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

use rustix::fs::{AtFlags, FileType, Mode, OFlags, Uid};
use rustix::io::{Errno, retry_on_intr};

use crate::staging::FileLimits;
use crate::staging::copy::BUFFER_BYTES;
use crate::staging::destination::check_outputs;
use crate::staging::directory;
use crate::staging::error::{ScratchError, Unfit, Unwritable};
use crate::staging::source::{Allowance, Failed, HardLinks, Opened, open_regular};
use crate::staging::temporary::{Journal, SyncStep, TemporaryName, check_run_id};
use crate::staging::workspace::Workspace;
use spec::digest::Digest;
use spec::path::{RelPath, escape};
use spec::report::{ErrorReport, SyncState, SyncedReport};
use sys::credentials::{AssumedFileIds, HostIds};
use sys::file::open_beneath;

/// Temporary names that are tried for one output.
const NAME_TRIES: u32 = 16;

/// A declared output: `<staging>/<key>` becomes `path` of the workspace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OutputFile {
    /// Its name in the scratch directory.
    pub key: String,
    /// Relative to the workspace, tokens replaced.
    pub path: RelPath,
    /// Whether the caller granted a destination that is executed later, such as `.git/hooks/x`.
    pub granted: bool,
}

/// Copies the file under each key to its destination, each on its own.
///
/// Call it only when every process of the run is dead. It never fails as a whole: the report of each
/// output is `synced`, `missing` or `failed`. An output that is not written leaves its destination as
/// it was; directories that were made for it stay.
///
/// Each file is written beside its destination under a name that `journal` records first. It then gets
/// mode (0644, or 0755 if its owner may execute) and owner by descriptor, is synced to the disk
/// and renamed over the destination; then the directory is synced. Readers see the old file or the new
/// one, whole. The lock of the workspace is held meanwhile.
pub fn sync(
    workspace: &Workspace,
    outputs: &[OutputFile],
    staging: BorrowedFd<'_>,
    body: Option<HostIds>,
    run_id: &str,
    limits: &FileLimits,
    journal: &mut dyn Journal,
) -> Vec<SyncedReport> {
    let locked = check_run_id(run_id)
        .and_then(|()| check_outputs(outputs))
        .and_then(|()| {
            journal
                .locks()
                .map_err(|error| ScratchError::LocksUnusable { error })
        })
        .and_then(|locks| workspace.lock(locks, limits.lock_wait));
    let _lock = match locked {
        Ok(lock) => lock,
        Err(error) => {
            let error = ErrorReport::from(&error);
            let failed = |output| failed_report(output, error.clone());
            return outputs.iter().map(failed).collect();
        }
    };
    let mut run = Run {
        workspace,
        staging,
        body,
        run_id,
        limits,
        allowance: Allowance::new(limits),
        buffer: vec![0; BUFFER_BYTES],
        journal,
        names_used: 0,
    };
    outputs
        .iter()
        .enumerate()
        .map(|(index, output)| run.report_one(index, output))
        .collect()
}

struct Run<'call> {
    workspace: &'call Workspace,
    staging: BorrowedFd<'call>,
    body: Option<HostIds>,
    run_id: &'call str,
    limits: &'call FileLimits,
    allowance: Allowance,
    buffer: Vec<u8>,
    journal: &'call mut dyn Journal,
    names_used: u32,
}

/// Why one output was not written: at its source or at its destination.
enum NotWritten {
    Source(Unfit),
    Destination(Unwritable),
}

impl From<Unwritable> for NotWritten {
    fn from(cause: Unwritable) -> Self {
        Self::Destination(cause)
    }
}

impl Run<'_> {
    fn report_one(&mut self, index: usize, output: &OutputFile) -> SyncedReport {
        if index >= self.limits.files {
            let error = ScratchError::TooManyFiles {
                found: index + 1,
                limit: self.limits.files,
            };
            return failed_report(output, ErrorReport::from(&error));
        }
        match self.sync_one(output) {
            Ok((digest, bytes)) => SyncedReport {
                state: SyncState::Synced,
                sha256: Some(digest),
                bytes: Some(bytes),
                ..blank_report(output)
            },
            Err(ScratchError::Output {
                cause: Unfit::Missing,
                ..
            }) => SyncedReport {
                state: SyncState::Missing,
                ..blank_report(output)
            },
            Err(error) => failed_report(output, ErrorReport::from(&error)),
        }
    }

    fn sync_one(&mut self, output: &OutputFile) -> Result<(Digest, u64), ScratchError> {
        let key = || escape(output.key.as_bytes());
        let path = || output.path.to_string();
        let unfit = |cause| ScratchError::Output {
            key: key(),
            path: path(),
            cause,
        };
        let source = {
            let _as_body = AssumedFileIds::assume(self.body)
                .map_err(|errno| ScratchError::FileIds { errno })?;
            open_regular(self.staging, output.key.as_bytes(), HardLinks::Refused).map_err(unfit)?
        };
        self.allowance.check(source.bytes).map_err(unfit)?;
        let digest = self
            .write(&source, &output.path)
            .map_err(|error| match error {
                NotWritten::Source(cause) => unfit(cause),
                NotWritten::Destination(cause) => ScratchError::Destination {
                    key: key(),
                    directory: self.workspace.shown().to_owned(),
                    path: path(),
                    cause,
                },
            })?;
        self.allowance.spend(source.bytes);
        Ok((digest, source.bytes))
    }

    fn write(&mut self, source: &Opened, path: &RelPath) -> Result<Digest, NotWritten> {
        let parent_path = path.parent();
        let parent = self.open_parent(parent_path.as_ref())?;
        let name = path.file_name();
        match rustix::fs::statat(&parent, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) if FileType::from_raw_mode(stat.st_mode) == FileType::Directory => {
                return Err(Unwritable::Directory.into());
            }
            Ok(_) | Err(Errno::NOENT) => (),
            Err(errno) => return Err(failed_call("fstatat")(errno).into()),
        }
        let (temporary, file) = self.make_temporary(parent.as_fd(), parent_path.as_ref())?;
        let beside = temporary.path().file_name();
        let written = self.fill(source, file.as_fd()).and_then(|digest| {
            rustix::fs::renameat(&parent, beside, &parent, name).map_err(|errno| match errno {
                Errno::ISDIR => Unwritable::Directory,
                other => failed_call("renameat")(other),
            })?;
            Ok(digest)
        });
        let digest = match written {
            Ok(digest) => digest,
            Err(error) => return Err(self.discard(parent.as_fd(), &temporary, error)),
        };
        self.journal.reached(SyncStep::Renamed);
        let durable = retry_on_intr(|| rustix::fs::fsync(&parent)).map_err(Unwritable::NotDurable);
        self.journal.reached(SyncStep::DirectorySynced);
        self.journal.forget(&temporary);
        durable?;
        Ok(digest)
    }

    /// Copies, sets owner and mode, and syncs the file: everything before the rename.
    fn fill(&mut self, source: &Opened, file: BorrowedFd<'_>) -> Result<Digest, NotWritten> {
        let digest = source
            .copy_to(file, &mut self.buffer)
            .map_err(|failed| match failed {
                Failed::Source(cause) => NotWritten::Source(cause),
                Failed::Sink(errno) => failed_call("write")(errno).into(),
            })?;
        self.journal.reached(SyncStep::Copied);
        self.set_owner(file)?;
        // After fchown(2), which clears set-id bits; not left to open(2), whose mode the umask changes.
        rustix::fs::fchmod(file, source.mode).map_err(failed_call("fchmod"))?;
        self.journal.reached(SyncStep::Owned);
        retry_on_intr(|| rustix::fs::fsync(file)).map_err(failed_call("fsync"))?;
        self.journal.reached(SyncStep::FileSynced);
        Ok(digest)
    }

    fn make_temporary(
        &mut self,
        parent: BorrowedFd<'_>,
        parent_path: Option<&RelPath>,
    ) -> Result<(TemporaryName, OwnedFd), Unwritable> {
        let flags =
            OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        for _try in 0..NAME_TRIES {
            let temporary = TemporaryName::new(parent_path, self.run_id, self.names_used)?;
            self.names_used = self.names_used.wrapping_add(1);
            self.journal
                .record(&temporary)
                .map_err(Unwritable::Journal)?;
            let name = temporary.path().file_name();
            match rustix::fs::openat(parent, name, flags, Mode::RUSR | Mode::WUSR) {
                Ok(file) => {
                    self.journal.reached(SyncStep::Made);
                    return Ok((temporary, file));
                }
                Err(Errno::EXIST) => self.journal.forget(&temporary),
                Err(errno) => {
                    self.journal.forget(&temporary);
                    return Err(failed_call("openat")(errno));
                }
            }
        }
        Err(Unwritable::NamesTaken)
    }

    /// Removes the temporary file after `error`. If that fails too, the journal keeps the name for a
    /// later start, and the error of a call says so.
    fn discard(
        &mut self,
        parent: BorrowedFd<'_>,
        temporary: &TemporaryName,
        error: NotWritten,
    ) -> NotWritten {
        let name = temporary.path().file_name();
        match (rustix::fs::unlinkat(parent, name, AtFlags::empty()), error) {
            (Ok(()) | Err(Errno::NOENT), error) => {
                self.journal.forget(temporary);
                error
            }
            (Err(left), NotWritten::Destination(Unwritable::Call { call, errno, .. })) => {
                Unwritable::Call {
                    call,
                    errno,
                    left_behind: Some(left),
                }
                .into()
            }
            // Has no place for a second error.
            (Err(_left), error) => error,
        }
    }

    /// The directory of the destination, created if missing.
    fn open_parent(&self, path: Option<&RelPath>) -> Result<OwnedFd, Unwritable> {
        let path = match (self.open_directory(path, OFlags::RDONLY), path) {
            (Err(Errno::NOENT), Some(path)) => path,
            (opened, _) => return opened.map_err(parent_error),
        };
        let bytes = path.as_bytes();
        let ends = (0..bytes.len())
            .filter(|at| bytes[*at] == b'/')
            .chain([bytes.len()]);
        for end in ends {
            let prefix = RelPath::parse(&bytes[..end]).map_err(Unwritable::NameTooLong)?;
            match self.open_directory(Some(&prefix), OFlags::PATH) {
                Ok(_exists) => (),
                Err(Errno::NOENT) => self.make_directory(&prefix)?,
                Err(errno) => return Err(parent_error(errno)),
            }
        }
        self.open_directory(Some(path), OFlags::RDONLY)
            .map_err(parent_error)
    }

    /// `None`: the workspace itself.
    fn open_directory(&self, path: Option<&RelPath>, access: OFlags) -> Result<OwnedFd, Errno> {
        let flags = access | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let workspace = self.workspace.as_fd();
        match path {
            Some(path) => open_beneath(workspace, path.as_bytes(), flags, Mode::empty()),
            None => rustix::fs::openat(workspace, ".", flags, Mode::empty()),
        }
    }

    fn make_directory(&self, path: &RelPath) -> Result<(), Unwritable> {
        let above = self
            .open_directory(path.parent().as_ref(), OFlags::RDONLY)
            .map_err(parent_error)?;
        let name = path.file_name();
        match rustix::fs::mkdirat(&above, name, Mode::RWXU) {
            // Another process created it meanwhile.
            Err(Errno::EXIST) => return Ok(()),
            other => other.map_err(failed_call("mkdirat"))?,
        }
        let made = directory::open_made(above.as_fd(), name).map_err(parent_error)?;
        // mkdir(2) returns no descriptor, and another directory may have been renamed to this name
        // since: only an empty directory of our own is given to the owner of the workspace.
        let stat = rustix::fs::fstat(&made).map_err(failed_call("fstat"))?;
        let is_own = Uid::from_raw(stat.st_uid) == rustix::process::geteuid();
        if !is_own || !directory::is_empty(made.as_fd()).map_err(failed_call("getdents"))? {
            return Err(Unwritable::Replaced);
        }
        self.set_owner(made.as_fd())?;
        let open_to_all = Mode::RWXU | Mode::RGRP | Mode::XGRP | Mode::ROTH | Mode::XOTH;
        rustix::fs::fchmod(&made, open_to_all).map_err(failed_call("fchmod"))?;
        retry_on_intr(|| rustix::fs::fsync(&above)).map_err(failed_call("fsync"))
    }

    fn set_owner(&self, file: BorrowedFd<'_>) -> Result<(), Unwritable> {
        let Some(owner) = self.workspace.owner() else {
            return Ok(());
        };
        let uid = Uid::from_raw(owner.uid);
        let gid = rustix::fs::Gid::from_raw(owner.gid);
        rustix::fs::fchown(file, Some(uid), Some(gid)).map_err(failed_call("fchown"))
    }
}

fn failed_call(call: &'static str) -> impl Fn(Errno) -> Unwritable {
    move |errno| Unwritable::Call {
        call,
        errno,
        left_behind: None,
    }
}

fn parent_error(errno: Errno) -> Unwritable {
    match errno {
        // ENOTDIR: a file, or with O_DIRECTORY a link, instead of a directory.
        Errno::LOOP | Errno::XDEV | Errno::NOTDIR => Unwritable::Escapes(errno),
        other => failed_call("openat2")(other),
    }
}

fn blank_report(output: &OutputFile) -> SyncedReport {
    SyncedReport {
        key: output.key.clone(),
        path: output.path.to_string(),
        state: SyncState::Failed,
        sha256: None,
        bytes: None,
        error: None,
    }
}

fn failed_report(output: &OutputFile, error: ErrorReport) -> SyncedReport {
    SyncedReport {
        error: Some(error),
        ..blank_report(output)
    }
}
