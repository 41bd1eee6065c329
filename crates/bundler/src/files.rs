//! What sources are read from: the files beneath one directory, never through a link.

use std::cell::RefCell;
use std::ops::ControlFlow;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;

use spec::path::{RelPath, escape};
use sys::file::{CallError, open_beneath};

/// A directory of files, as the sources see it. No path is ever followed through a link.
pub trait WorkspaceFiles {
    /// What lies at `path`; `None` where nothing does.
    ///
    /// # Errors
    /// The call that failed: ELOOP where a link stands on the way.
    fn look(&self, path: &RelPath) -> Result<Option<Found>, CallError>;

    /// Shows `visit` the names in the directory `path` (`None`: the top), in any order, until it
    /// breaks off.
    ///
    /// # Errors
    /// The call that failed.
    fn list(
        &self,
        path: Option<&RelPath>,
        visit: &mut dyn FnMut(&[u8]) -> ControlFlow<()>,
    ) -> Result<(), CallError>;

    /// What the symbolic link at `path` holds.
    ///
    /// # Errors
    /// The call that failed.
    fn read_link(&self, path: &RelPath) -> Result<Vec<u8>, CallError>;

    /// Opens the regular file at `path`.
    ///
    /// # Errors
    /// The call that failed.
    fn open(&self, path: &RelPath) -> Result<Box<dyn OpenedSource + '_>, CallError>;
}

/// A file that is being read.
pub trait OpenedSource {
    /// What it is now.
    ///
    /// # Errors
    /// The call that failed.
    fn found(&self) -> Result<Found, CallError>;

    /// Reads on; 0 at the end.
    ///
    /// # Errors
    /// The call that failed.
    fn read(&mut self, buffer: &mut [u8]) -> Result<usize, CallError>;
}

/// What lies at a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Found {
    pub kind: FoundKind,
    /// Which file it is, and when it changed.
    pub stamp: Stamp,
}

/// What something is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FoundKind {
    File {
        /// Whether its owner may execute it.
        executable: bool,
        bytes: u64,
    },
    Directory,
    Symlink,
    /// Something that no bundle holds, in words: `a fifo`.
    Special(&'static str),
}

impl FoundKind {
    /// `a file`, `a directory`, `a symlink`, `a fifo` and so on.
    #[must_use]
    pub fn words(self) -> &'static str {
        match self {
            Self::File { .. } => "a file",
            Self::Directory => "a directory",
            Self::Symlink => "a symlink",
            Self::Special(words) => words,
        }
    }
}

/// Which file, and which version of it: two readings with equal stamps read the same bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Stamp {
    pub identity: FileIdentity,
    /// Seconds and nanoseconds of the last change of its data.
    pub modified: (i64, u64),
    /// Seconds and nanoseconds of the last change of its data or its inode.
    pub changed: (i64, u64),
}

/// Device and inode: one file, whatever its names.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FileIdentity {
    /// `st_dev`.
    pub device: u64,
    /// `st_ino`.
    pub inode: u64,
}

impl FileIdentity {
    /// Of the file at `path` of this host, links followed.
    ///
    /// # Errors
    /// The errno of stat(2).
    pub fn at(path: &Path) -> Result<Self, CallError> {
        rustix::fs::stat(path)
            .map(|status| Self::of(&status))
            .map_err(|errno| CallError::new("stat", escape(path.as_os_str().as_bytes()), errno))
    }

    /// Of the file with this status.
    #[must_use]
    pub fn of(status: &Stat) -> Self {
        Self {
            device: status.st_dev,
            inode: status.st_ino,
        }
    }
}

impl Found {
    /// The file with this status.
    #[must_use]
    pub fn of(status: &Stat) -> Self {
        let kind = match FileType::from_raw_mode(status.st_mode) {
            FileType::RegularFile => FoundKind::File {
                executable: status.st_mode & 0o100 != 0,
                bytes: u64::try_from(status.st_size).unwrap_or(0),
            },
            FileType::Directory => FoundKind::Directory,
            FileType::Symlink => FoundKind::Symlink,
            FileType::Fifo => FoundKind::Special("a fifo"),
            FileType::Socket => FoundKind::Special("a socket"),
            FileType::CharacterDevice => FoundKind::Special("a character device"),
            FileType::BlockDevice => FoundKind::Special("a block device"),
            FileType::Unknown => FoundKind::Special("of an unknown type"),
        };
        Self {
            kind,
            stamp: Stamp {
                identity: FileIdentity::of(status),
                modified: (status.st_mtime, status.st_mtime_nsec),
                changed: (status.st_ctime, status.st_ctime_nsec),
            },
        }
    }
}

/// Files beneath an open directory of this host, reached with openat2(2) only.
#[derive(Debug)]
pub struct DirectoryFiles {
    root: OwnedFd,
    /// The directory that was used last: most files have their neighbours read next.
    parent: RefCell<Option<(Vec<u8>, OwnedFd)>>,
}

impl DirectoryFiles {
    /// The files beneath `root`.
    #[must_use]
    pub fn new(root: OwnedFd) -> Self {
        Self {
            root,
            parent: RefCell::new(None),
        }
    }

    /// The files beneath the directory `path`, which is opened as the caller names it.
    ///
    /// # Errors
    /// The errno of open(2).
    pub fn open_root(path: &Path) -> Result<Self, CallError> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        rustix::fs::open(path, flags, Mode::empty())
            .map(Self::new)
            .map_err(|errno| CallError::new("open", escape(path.as_os_str().as_bytes()), errno))
    }

    /// Calls `call` with the open parent of `path` and its last segment.
    fn beside<T>(
        &self,
        path: &RelPath,
        call: impl FnOnce(BorrowedFd<'_>, &[u8]) -> Result<T, Errno>,
    ) -> Result<T, Errno> {
        let Some(wanted) = path.parent() else {
            return call(self.root.as_fd(), path.file_name());
        };
        let mut slot = self.parent.borrow_mut();
        let held = match slot.take() {
            Some((name, held)) if name == wanted.as_bytes() => (name, held),
            _ => {
                let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW;
                let held =
                    open_beneath(self.root.as_fd(), wanted.as_bytes(), flags, Mode::empty())?;
                (wanted.as_bytes().to_vec(), held)
            }
        };
        let held = slot.insert(held);
        call(held.1.as_fd(), path.file_name())
    }
}

impl WorkspaceFiles for DirectoryFiles {
    fn look(&self, path: &RelPath) -> Result<Option<Found>, CallError> {
        let looked = self.beside(path, |parent, name| {
            rustix::fs::statat(parent, name, AtFlags::SYMLINK_NOFOLLOW)
        });
        match looked {
            Ok(status) => Ok(Some(Found::of(&status))),
            // ENOTDIR: a file stands where the path has a directory.
            Err(Errno::NOENT | Errno::NOTDIR) => Ok(None),
            Err(errno) => Err(CallError::new("fstatat", path.to_string(), errno)),
        }
    }

    fn list(
        &self,
        path: Option<&RelPath>,
        visit: &mut dyn FnMut(&[u8]) -> ControlFlow<()>,
    ) -> Result<(), CallError> {
        let name = path.map_or(&b"."[..], RelPath::as_bytes);
        let failed = |call, errno| CallError::new(call, escape(name), errno);
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW;
        let directory = open_beneath(self.root.as_fd(), name, flags, Mode::empty())
            .map_err(|errno| failed("openat2", errno))?;
        let listing = Dir::new(directory).map_err(|errno| failed("fstat", errno))?;
        for entry in listing {
            let entry = entry.map_err(|errno| failed("getdents64", errno))?;
            let name = entry.file_name().to_bytes();
            if !matches!(name, b"." | b"..") && visit(name).is_break() {
                return Ok(());
            }
        }
        Ok(())
    }

    fn read_link(&self, path: &RelPath) -> Result<Vec<u8>, CallError> {
        self.beside(path, |parent, name| {
            rustix::fs::readlinkat(parent, name, Vec::new())
        })
        .map(std::ffi::CString::into_bytes)
        .map_err(|errno| CallError::new("readlinkat", path.to_string(), errno))
    }

    fn open(&self, path: &RelPath) -> Result<Box<dyn OpenedSource + '_>, CallError> {
        // O_NONBLOCK: a fifo would otherwise be waited for.
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY;
        let file = self
            .beside(path, |parent, name| {
                open_beneath(parent, name, flags, Mode::empty())
            })
            .map_err(|errno| CallError::new("openat2", path.to_string(), errno))?;
        Ok(Box::new(OpenedFile {
            file,
            path: path.clone(),
        }))
    }
}

struct OpenedFile {
    file: OwnedFd,
    path: RelPath,
}

impl OpenedSource for OpenedFile {
    fn found(&self) -> Result<Found, CallError> {
        rustix::fs::fstat(&self.file)
            .map(|status| Found::of(&status))
            .map_err(|errno| CallError::new("fstat", self.path.to_string(), errno))
    }

    fn read(&mut self, buffer: &mut [u8]) -> Result<usize, CallError> {
        rustix::io::retry_on_intr(|| rustix::io::read(&self.file, &mut *buffer))
            .map_err(|errno| CallError::new("read", self.path.to_string(), errno))
    }
}
