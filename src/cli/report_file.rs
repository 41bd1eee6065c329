//! Writes a report to a file, whole or not at all.
//!
//! The body may be able to write in the directory of the file, and may put a file, a link or a
//! directory there. So the directory is opened before the run. After it the report is written under a
//! new, unguessable name and renamed over whatever then has the name of the report. Finally the
//! caller's path is checked to lead to the written file.

use std::ffi::OsStr;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;

use rustix::fs::{AtFlags, CWD, FileType, Gid, Mode, OFlags, RenameFlags, Stat, Uid};
use rustix::io::Errno;

use sys::file::errno_of;
use sys::process::random_digits;
use sys::trusted_links::{self, Unopened};

/// Temporary names that are tried.
const NAME_TRIES: u32 = 16;

#[derive(Debug)]
pub(super) enum FileError {
    /// The path ends with a symbolic link.
    Link,
    /// A link on the way to the file belongs to another user.
    ForeignLink {
        link: Vec<u8>,
        uid: u32,
    },
    Call(Errno),
    /// The path leads to another file than the written one.
    Elsewhere,
}

impl From<Errno> for FileError {
    fn from(errno: Errno) -> Self {
        Self::Call(errno)
    }
}

#[derive(Debug)]
pub(super) enum Found {
    /// A device, a FIFO or an inherited descriptor, which is written directly.
    Stream(OwnedFd),
    /// A regular file, or no file yet.
    File(ReportFile),
}

/// A file that will be written.
#[derive(Debug)]
pub(crate) struct ReportFile {
    /// Absolute: a sandbox that stays leaves the working directory.
    path: PathBuf,
    directory: OwnedFd,
    name: Vec<u8>,
    /// The file that is there before the run.
    old: Option<(OwnedFd, Rights)>,
    /// The mode that the caller's umask gives a new file; `None`: the directory accepts no new file,
    /// and the old one is overwritten.
    new_mode: Option<Mode>,
}

#[derive(Debug)]
struct Rights {
    uid: Uid,
    gid: Gid,
    mode: Mode,
}

impl Rights {
    fn of(stat: &Stat) -> Self {
        Self {
            uid: Uid::from_raw(stat.st_uid),
            gid: Gid::from_raw(stat.st_gid),
            mode: Mode::from_raw_mode(stat.st_mode & 0o777),
        }
    }
}

enum Renamed {
    Done,
    /// The old file cannot be replaced: it is a mount point, or the directory does not allow it.
    OldStays,
}

/// Opens the directory of `path` and checks that a file can be written there. Links of the caller and
/// of root to the directory are followed, a link as the last component is refused.
pub(super) fn open(path: &[u8]) -> Result<Found, FileError> {
    let (above, name) = match path.iter().rposition(|byte| *byte == b'/') {
        None => (&b"."[..], path),
        Some(0) => (&b"/"[..], &path[1..]),
        Some(at) => (&path[..at], &path[at + 1..]),
    };
    if path.is_empty() {
        return Err(Errno::NOENT.into());
    }
    if matches!(name, b"" | b"." | b"..") {
        return Err(Errno::ISDIR.into());
    }
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let found = trusted_links::open(above).map_err(|unopened| match unopened {
        Unopened::Link { link, uid } => FileError::ForeignLink { link, uid },
        Unopened::Call(errno) => errno.into(),
    })?;
    let directory = rustix::fs::openat(&found, ".", flags, Mode::empty())?;
    // The FIFO of an earlier body, which has no reader, would block the open.
    let flags = OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::NOCTTY | OFlags::CLOEXEC;
    let flags = flags | OFlags::NONBLOCK;
    let old = match rustix::fs::openat(&directory, name, flags, Mode::empty()) {
        Err(Errno::NOENT) => None,
        Err(Errno::LOOP) => return Err(FileError::Link),
        Err(errno) => return Err(errno.into()),
        Ok(file) => {
            let stat = rustix::fs::fstat(&file)?;
            if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
                let flags = rustix::fs::fcntl_getfl(&file)?;
                rustix::fs::fcntl_setfl(&file, flags - OFlags::NONBLOCK)?;
                return Ok(Found::Stream(file));
            }
            Some((file, Rights::of(&stat)))
        }
    };
    let new_mode = match (probe_mode(directory.as_fd()), &old) {
        (Ok(mode), _) => Some(mode),
        (Err(Errno::ACCESS | Errno::PERM | Errno::ROFS | Errno::NOSPC | Errno::DQUOT), Some(_)) => {
            None
        }
        (Err(errno), _) => return Err(errno.into()),
    };
    Ok(Found::File(ReportFile {
        path: std::path::absolute(OsStr::from_bytes(path)).map_err(|error| errno_of(&error))?,
        directory,
        name: name.to_vec(),
        old,
        new_mode,
    }))
}

impl ReportFile {
    /// Writes the file through `fill` and renames it.
    pub(super) fn write<Error: From<FileError>>(
        &self,
        fill: &mut dyn FnMut(BorrowedFd<'_>) -> Result<(), Error>,
    ) -> Result<(), Error> {
        if let Some(mode) = self.new_mode
            && let Renamed::Done = self.replace(mode, fill)?
        {
            return Ok(());
        }
        let Some((old, _)) = &self.old else {
            return Err(FileError::Call(Errno::BUSY).into());
        };
        rustix::fs::ftruncate(old, 0).map_err(FileError::from)?;
        fill(old.as_fd())?;
        Ok(self.check_path(old.as_fd())?)
    }

    fn replace<Error: From<FileError>>(
        &self,
        mode: Mode,
        fill: &mut dyn FnMut(BorrowedFd<'_>) -> Result<(), Error>,
    ) -> Result<Renamed, Error> {
        let (new, file) = make_temporary(self.directory.as_fd()).map_err(FileError::from)?;
        let filled = fill(file.as_fd()).and_then(|()| {
            self.set_rights(file.as_fd(), mode)?;
            Ok(self.rename(&new)?)
        });
        if !matches!(filled, Ok(Renamed::Done)) {
            // A failure here would hide the first error, or the old file is written next.
            match rustix::fs::unlinkat(&self.directory, &*new, AtFlags::empty()) {
                Ok(()) | Err(_) => return filled,
            }
        }
        self.check_path(file.as_fd())?;
        filled
    }

    /// Sets the rights of the old file, or those of the umask.
    fn set_rights(&self, file: BorrowedFd<'_>, mode: Mode) -> Result<(), FileError> {
        let Some((_, old)) = &self.old else {
            return Ok(rustix::fs::fchmod(file, mode)?);
        };
        let new = Rights::of(&rustix::fs::fstat(file)?);
        if (new.uid, new.gid) != (old.uid, old.gid) {
            match rustix::fs::fchown(file, Some(old.uid), Some(old.gid)) {
                // Without the privilege to change the owner the file stays the caller's.
                Ok(()) | Err(Errno::PERM | Errno::INVAL) => (),
                Err(errno) => return Err(errno.into()),
            }
        }
        Ok(rustix::fs::fchmod(file, old.mode)?)
    }

    fn rename(&self, new: &str) -> Result<Renamed, FileError> {
        let (directory, name) = (&self.directory, self.name.as_slice());
        match rustix::fs::renameat(directory, new, directory, name) {
            Ok(()) => Ok(Renamed::Done),
            // The body made a directory there: it gets the temporary name.
            Err(Errno::ISDIR) => {
                let flags = RenameFlags::EXCHANGE;
                rustix::fs::renameat_with(directory, new, directory, name, flags)?;
                Ok(Renamed::Done)
            }
            Err(Errno::BUSY | Errno::PERM | Errno::ACCESS) if self.old.is_some() => {
                Ok(Renamed::OldStays)
            }
            Err(errno) => Err(errno.into()),
        }
    }

    /// Whether there is a file before the run, and it is not empty.
    ///
    /// # Errors
    /// The errno of fstat(2).
    pub(super) fn has_contents(&self) -> Result<bool, Errno> {
        match &self.old {
            Some((old, _)) => Ok(rustix::fs::fstat(old)?.st_size > 0),
            None => Ok(false),
        }
    }

    /// Opens the file itself, without its old contents, for what is written while the run goes on.
    ///
    /// # Errors
    /// The errno of openat(2) or ftruncate(2).
    pub(super) fn open_in_place(&self) -> Result<OwnedFd, Errno> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mode = Mode::from_raw_mode(0o644);
        let new;
        let file = match &self.old {
            Some((old, _)) => old,
            None => {
                new = rustix::fs::openat(&self.directory, &*self.name, flags, mode)?;
                &new
            }
        };
        rustix::fs::ftruncate(file, 0)?;
        rustix::io::fcntl_dupfd_cloexec(file, 3)
    }

    /// Checks that the caller's path leads to the written file: a directory on it may have been moved.
    pub(super) fn check_path(&self, written: BorrowedFd<'_>) -> Result<(), FileError> {
        let written = rustix::fs::fstat(written)?;
        match rustix::fs::statat(CWD, &self.path, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(found) if (found.st_dev, found.st_ino) == (written.st_dev, written.st_ino) => Ok(()),
            _ => Err(FileError::Elsewhere),
        }
    }
}

/// Makes a file in `directory` and removes it again. Returns the mode that it had.
fn probe_mode(directory: BorrowedFd<'_>) -> Result<Mode, Errno> {
    let (name, file) = make_temporary(directory)?;
    rustix::fs::unlinkat(directory, &*name, AtFlags::empty())?;
    Ok(Rights::of(&rustix::fs::fstat(&file)?).mode)
}

/// Makes a file in `directory` under an unguessable name.
fn make_temporary(directory: BorrowedFd<'_>) -> Result<(String, OwnedFd), Errno> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    for _try in 0..NAME_TRIES {
        let name = format!(".report-{}.tmp", random_digits()?);
        match rustix::fs::openat(directory, &*name, flags, Mode::from_raw_mode(0o644)) {
            Err(Errno::EXIST) => (),
            other => return other.map(|file| (name, file)),
        }
    }
    Err(Errno::EXIST)
}
