//! A report in a file: whole or not at all, and nobody else's.
//!
//! The file may lie in a directory that the body was lent, and the body may put there what it likes:
//! a file of its own, a link, a directory. So the directory is opened before the run and what is
//! written after it has a new name there, which nobody could guess, until it takes the place of
//! whatever has the name of the report by then. That no other file is found at the path that the
//! caller gave is looked at in the end.

use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

use rustix::fs::{AtFlags, CWD, FileType, Gid, Mode, OFlags, RenameFlags, Stat, Uid};
use rustix::io::Errno;

use sys::process::random;

/// How many names are tried for the new file.
const NAME_TRIES: u32 = 16;

/// Why a file cannot be written.
#[derive(Debug)]
pub(super) enum FileError {
    /// The path ends with a symbolic link.
    Link,
    Call(Errno),
    /// Another file is found at the path than the one that was written.
    Elsewhere,
}

impl From<Errno> for FileError {
    fn from(errno: Errno) -> Self {
        Self::Call(errno)
    }
}

/// What was found at a path.
#[derive(Debug)]
pub(super) enum Found {
    /// A device, a FIFO: it is written as it is.
    Stream(OwnedFd),
    /// A file, or a name for one.
    File(ReportFile),
}

/// The place of a file that will be written.
#[derive(Debug)]
pub(crate) struct ReportFile {
    path: Vec<u8>,
    directory: OwnedFd,
    name: Vec<u8>,
    /// The file that lies there before the run.
    old: Option<(OwnedFd, Rights)>,
    /// The mode that a new file gets by the caller's umask; `None` where the directory takes none and
    /// the old one is written.
    new_mode: Option<Mode>,
}

/// Whose a file is, and who may do what with it.
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

/// What becomes of a name once a file was written.
enum Placed {
    Done,
    /// The name cannot be given to another file: it is a mount point, or lies among others'.
    NameStays,
}

/// Opens the place at `path` and sees that a file can be written there. Links on the way are the
/// caller's word, a link at its end is refused.
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
    let directory = rustix::fs::openat(CWD, above, flags, Mode::empty())?;
    let flags = OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::NOCTTY | OFlags::CLOEXEC;
    let old = match rustix::fs::openat(&directory, name, flags, Mode::empty()) {
        Err(Errno::NOENT) => None,
        Err(Errno::LOOP) => return Err(FileError::Link),
        Err(errno) => return Err(errno.into()),
        Ok(file) => {
            let stat = rustix::fs::fstat(&file)?;
            if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
                return Ok(Found::Stream(file));
            }
            Some((file, Rights::of(&stat)))
        }
    };
    let new_mode = match (probe(directory.as_fd()), &old) {
        (Ok(mode), _) => Some(mode),
        (Err(Errno::ACCESS | Errno::PERM | Errno::ROFS | Errno::NOSPC | Errno::DQUOT), Some(_)) => {
            None
        }
        (Err(errno), _) => return Err(errno.into()),
    };
    Ok(Found::File(ReportFile {
        path: path.to_vec(),
        directory,
        name: name.to_vec(),
        old,
        new_mode,
    }))
}

impl ReportFile {
    /// Writes what `fill` writes and gives it the name.
    pub(super) fn write<Error: From<FileError>>(
        &self,
        fill: &mut dyn FnMut(BorrowedFd<'_>) -> Result<(), Error>,
    ) -> Result<(), Error> {
        if let Some(mode) = self.new_mode
            && let Placed::Done = self.replace(mode, fill)?
        {
            return Ok(());
        }
        let Some((old, _)) = &self.old else {
            return Err(FileError::Call(Errno::BUSY).into());
        };
        rustix::fs::ftruncate(old, 0).map_err(FileError::from)?;
        fill(old.as_fd())?;
        Ok(self.look(old.as_fd())?)
    }

    fn replace<Error: From<FileError>>(
        &self,
        mode: Mode,
        fill: &mut dyn FnMut(BorrowedFd<'_>) -> Result<(), Error>,
    ) -> Result<Placed, Error> {
        let (new, file) = make(self.directory.as_fd()).map_err(FileError::from)?;
        let filled = fill(file.as_fd()).and_then(|()| {
            self.set_rights(file.as_fd(), mode)?;
            Ok(self.rename(&new)?)
        });
        if !matches!(filled, Ok(Placed::Done)) {
            // An error is on its way already, or the old file is written: both say more than this.
            match rustix::fs::unlinkat(&self.directory, &*new, AtFlags::empty()) {
                Ok(()) | Err(_) => return filled,
            }
        }
        self.look(file.as_fd())?;
        filled
    }

    /// The rights are those of the file that lay there, or what the umask leaves.
    fn set_rights(&self, file: BorrowedFd<'_>, mode: Mode) -> Result<(), FileError> {
        let Some((_, old)) = &self.old else {
            return Ok(rustix::fs::fchmod(file, mode)?);
        };
        let new = Rights::of(&rustix::fs::fstat(file)?);
        if (new.uid, new.gid) != (old.uid, old.gid) {
            match rustix::fs::fchown(file, Some(old.uid), Some(old.gid)) {
                // What cannot be given away stays the caller's.
                Ok(()) | Err(Errno::PERM | Errno::INVAL) => (),
                Err(errno) => return Err(errno.into()),
            }
        }
        Ok(rustix::fs::fchmod(file, old.mode)?)
    }

    fn rename(&self, new: &str) -> Result<Placed, FileError> {
        let (directory, name) = (&self.directory, self.name.as_slice());
        match rustix::fs::renameat(directory, new, directory, name) {
            Ok(()) => Ok(Placed::Done),
            // Nobody but the body made a directory there: it keeps it, by the other name.
            Err(Errno::ISDIR) => {
                let flags = RenameFlags::EXCHANGE;
                rustix::fs::renameat_with(directory, new, directory, name, flags)?;
                Ok(Placed::Done)
            }
            Err(Errno::BUSY | Errno::PERM | Errno::ACCESS) if self.old.is_some() => {
                Ok(Placed::NameStays)
            }
            Err(errno) => Err(errno.into()),
        }
    }

    /// Whether the caller's path leads to what was written: a directory on the way may have been moved.
    fn look(&self, written: BorrowedFd<'_>) -> Result<(), FileError> {
        let written = rustix::fs::fstat(written)?;
        match rustix::fs::statat(CWD, self.path.as_slice(), AtFlags::SYMLINK_NOFOLLOW) {
            Ok(found) if (found.st_dev, found.st_ino) == (written.st_dev, written.st_ino) => Ok(()),
            _ => Err(FileError::Elsewhere),
        }
    }
}

/// Makes a file in `directory` and removes it again; the mode that it had.
fn probe(directory: BorrowedFd<'_>) -> Result<Mode, Errno> {
    let (name, file) = make(directory)?;
    rustix::fs::unlinkat(directory, &*name, AtFlags::empty())?;
    Ok(Rights::of(&rustix::fs::fstat(&file)?).mode)
}

/// Makes a file in `directory` under a name that nobody could guess.
fn make(directory: BorrowedFd<'_>) -> Result<(String, OwnedFd), Errno> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    for _try in 0..NAME_TRIES {
        let mut bytes = [0; 8];
        random(&mut bytes)?;
        let name = format!(".report-{:016x}.tmp", u64::from_le_bytes(bytes));
        match rustix::fs::openat(directory, &*name, flags, Mode::from_raw_mode(0o644)) {
            Err(Errno::EXIST) => (),
            other => return other.map(|file| (name, file)),
        }
    }
    Err(Errno::EXIST)
}
