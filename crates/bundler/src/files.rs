//! Reads the files beneath an open directory, without following links.

use std::cell::RefCell;
use std::io::Read as _;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;

use spec::path::{RelPath, escape, escape_path};
use sys::file::{CallError, errno_of, open_beneath, type_name};

/// An entry of the tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Found {
    pub kind: FoundKind,
    pub stamp: Stamp,
}

/// Type of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FoundKind {
    File {
        /// The owner's execute bit.
        executable: bool,
        bytes: u64,
    },
    Directory,
    Symlink,
    /// A type that bundles do not support, such as `a fifo`.
    Special(&'static str),
}

impl FoundKind {
    /// Returns the type with an article: `a file`, `a directory`, `a symlink`, `a fifo`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::File { .. } => "a file",
            Self::Directory => "a directory",
            Self::Symlink => "a symlink",
            Self::Special(name) => name,
        }
    }
}

/// Version of a file: equal stamps mean equal content.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Stamp {
    pub identity: FileIdentity,
    /// mtime in seconds and nanoseconds.
    pub modified: (i64, u64),
    /// ctime in seconds and nanoseconds.
    pub changed: (i64, u64),
}

/// Device and inode; equal for all hard links.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FileIdentity {
    pub device: u64,
    pub inode: u64,
}

impl FileIdentity {
    /// Returns the identity of the host file at `path`, following links.
    ///
    /// # Errors
    /// The errno of stat(2).
    pub fn at(path: &Path) -> Result<Self, CallError> {
        rustix::fs::stat(path)
            .map(|status| Self::from_stat(&status))
            .map_err(|errno| CallError::new("stat", escape_path(path), errno))
    }

    /// Reads device and inode from `status`.
    #[must_use]
    pub(crate) fn from_stat(status: &Stat) -> Self {
        Self {
            device: status.st_dev,
            inode: status.st_ino,
        }
    }
}

impl Found {
    /// Reads type, size and times from `status`.
    #[must_use]
    pub(crate) fn from_stat(status: &Stat) -> Self {
        let kind = match FileType::from_raw_mode(status.st_mode) {
            FileType::RegularFile => FoundKind::File {
                executable: status.st_mode & 0o100 != 0,
                bytes: u64::try_from(status.st_size).unwrap_or(0),
            },
            FileType::Directory => FoundKind::Directory,
            FileType::Symlink => FoundKind::Symlink,
            special @ (FileType::Fifo
            | FileType::Socket
            | FileType::CharacterDevice
            | FileType::BlockDevice
            | FileType::Unknown) => FoundKind::Special(type_name(special)),
        };
        Self {
            kind,
            stamp: Stamp {
                identity: FileIdentity::from_stat(status),
                modified: (status.st_mtime, status.st_mtime_nsec),
                changed: (status.st_ctime, status.st_ctime_nsec),
            },
        }
    }
}

/// Files beneath an open directory, accessed with openat2(2) only.
#[derive(Debug)]
pub struct DirectoryFiles {
    root: OwnedFd,
    /// The last used directory and its path.
    parent: RefCell<Option<(Vec<u8>, OwnedFd)>>,
}

impl DirectoryFiles {
    /// Reads beneath `root`.
    #[must_use]
    pub fn new(root: OwnedFd) -> Self {
        Self {
            root,
            parent: RefCell::new(None),
        }
    }

    /// Opens the directory `path`, following links, and reads beneath it.
    ///
    /// # Errors
    /// The errno of open(2).
    pub fn open_root(path: &Path) -> Result<Self, CallError> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        rustix::fs::open(path, flags, Mode::empty())
            .map(Self::new)
            .map_err(|errno| CallError::new("open", escape_path(path), errno))
    }

    /// Calls `call` with the open parent of `path` and its last segment.
    fn with_parent<T>(
        &self,
        path: &RelPath,
        call: impl FnOnce(BorrowedFd<'_>, &[u8]) -> Result<T, Errno>,
    ) -> Result<T, Errno> {
        let Some(parent) = path.parent() else {
            return call(self.root.as_fd(), path.file_name());
        };
        let mut cached = self.parent.borrow_mut();
        let (name, directory) = match cached.take() {
            Some((name, directory)) if name == parent.as_bytes() => (name, directory),
            _ => {
                let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW;
                let name = parent.as_bytes();
                let directory = open_beneath(self.root.as_fd(), name, flags, Mode::empty())?;
                (name.to_vec(), directory)
            }
        };
        let (_, directory) = cached.insert((name, directory));
        call(directory.as_fd(), path.file_name())
    }

    /// Returns the entry at `path`, or `None` if it does not exist.
    ///
    /// # Errors
    /// The system call that failed: ELOOP for a link in the path.
    pub fn find(&self, path: &RelPath) -> Result<Option<Found>, CallError> {
        let status = self.with_parent(path, |parent, name| {
            rustix::fs::statat(parent, name, AtFlags::SYMLINK_NOFOLLOW)
        });
        match status {
            Ok(status) => Ok(Some(Found::from_stat(&status))),
            // ENOTDIR: a parent is a file.
            Err(Errno::NOENT | Errno::NOTDIR) => Ok(None),
            Err(errno) => Err(CallError::new("fstatat", path.to_string(), errno)),
        }
    }

    /// Lists the names in the directory `path` (`None`: the root), unordered. Returns `max + 1` names if
    /// there are more than `max`.
    pub(crate) fn list(&self, path: Option<&RelPath>, max: u64) -> Result<Vec<Vec<u8>>, CallError> {
        let name = path.map_or(&b"."[..], RelPath::as_bytes);
        let failed = |call, errno| CallError::new(call, escape(name), errno);
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW;
        let directory = open_beneath(self.root.as_fd(), name, flags, Mode::empty())
            .map_err(|errno| failed("openat2", errno))?;
        let listing = Dir::new(directory).map_err(|errno| failed("fstat", errno))?;
        let mut names = Vec::new();
        for entry in listing {
            let entry = entry.map_err(|errno| failed("getdents64", errno))?;
            let name = entry.file_name().to_bytes();
            if matches!(name, b"." | b"..") {
                continue;
            }
            names.push(name.to_vec());
            if names.len() as u64 > max {
                break;
            }
        }
        Ok(names)
    }

    pub(crate) fn read_link(&self, path: &RelPath) -> Result<Vec<u8>, CallError> {
        self.with_parent(path, |parent, name| {
            rustix::fs::readlinkat(parent, name, Vec::new())
        })
        .map(std::ffi::CString::into_bytes)
        .map_err(|errno| CallError::new("readlinkat", path.to_string(), errno))
    }

    pub(crate) fn open(&self, path: &RelPath) -> Result<OwnedFd, CallError> {
        // O_NONBLOCK: opening a FIFO would block.
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY;
        self.with_parent(path, |parent, name| {
            open_beneath(parent, name, flags, Mode::empty())
        })
        .map_err(|errno| CallError::new("openat2", path.to_string(), errno))
    }

    /// Reads at most `bytes_max` bytes of the file at `path`.
    pub(crate) fn read_start(&self, path: &RelPath, bytes_max: u64) -> Result<Vec<u8>, CallError> {
        let mut start = Vec::new();
        std::fs::File::from(self.open(path)?)
            .take(bytes_max)
            .read_to_end(&mut start)
            .map_err(|error| {
                let errno = errno_of(&error);
                CallError::new("read", path.to_string(), errno)
            })?;
        Ok(start)
    }
}
