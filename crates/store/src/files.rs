//! The files of a store, opened beneath its directory and never through a link.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::ops::Deref;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, Dir, Mode, OFlags};
use rustix::io::Errno;
use serde::Serialize;

use crate::error::{CacheError, failed};
use crate::locks;
use sys::file::errno_of;
use sys::lock::{release_file, try_claim_file};

const DIRECTORY_MODE: u32 = 0o700;
const FILE_MODE: u32 = 0o600;
const OPEN_DIRECTORY: OFlags = OFlags::RDONLY
    .union(OFlags::DIRECTORY)
    .union(OFlags::NOFOLLOW)
    .union(OFlags::CLOEXEC);

/// An open directory and its path, free of links, for messages.
#[derive(Debug)]
pub struct OpenDirectory {
    descriptor: OwnedFd,
    path: PathBuf,
}

/// A directory with a shared lock, which prevents its removal while this value lives.
#[derive(Debug)]
pub struct InUseDirectory(OpenDirectory);

impl InUseDirectory {
    /// Waits for the lock.
    pub(crate) fn new(directory: OpenDirectory) -> Result<Self, CacheError> {
        locks::lock_shared(directory.as_fd(), &directory.path)?;
        Ok(Self(directory))
    }
}

impl Deref for InUseDirectory {
    type Target = OpenDirectory;

    fn deref(&self) -> &OpenDirectory {
        &self.0
    }
}

impl Drop for InUseDirectory {
    fn drop(&mut self) {
        // If this fails, the lock ends with the last descriptor.
        let _closed = self.0.unlock();
    }
}

impl AsFd for OpenDirectory {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

impl OpenDirectory {
    pub(crate) fn new(descriptor: OwnedFd, path: PathBuf) -> Self {
        Self { descriptor, path }
    }

    pub(crate) fn into_descriptor(self) -> OwnedFd {
        self.descriptor
    }

    /// Returns its path, free of links.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Maps the error of `call` on `name`.
    pub fn failed<'a>(
        &'a self,
        call: &'static str,
        name: &'a str,
    ) -> impl Fn(Errno) -> CacheError + use<'a> {
        move |errno| failed(call, &self.path.join(name))(errno)
    }

    /// Opens a directory; `None` if it does not exist.
    ///
    /// # Errors
    /// [`CacheError::Call`].
    pub fn directory(&self, name: &str) -> Result<Option<Self>, CacheError> {
        match rustix::fs::openat(&self.descriptor, name, OPEN_DIRECTORY, Mode::empty()) {
            Ok(directory) => Ok(Some(Self::new(directory, self.path.join(name)))),
            Err(Errno::NOENT) => Ok(None),
            Err(errno) => Err(self.failed("openat", name)(errno)),
        }
    }

    pub(crate) fn existing_directory(&self, name: &str) -> Result<Self, CacheError> {
        let opened = self.directory(name)?;
        opened.ok_or_else(|| self.failed("openat", name)(Errno::NOENT))
    }

    /// Creates a directory, unless it exists.
    ///
    /// # Errors
    /// [`CacheError::Call`].
    pub fn make_directory(&self, name: &str) -> Result<(), CacheError> {
        let mode = Mode::from_raw_mode(DIRECTORY_MODE);
        match rustix::fs::mkdirat(&self.descriptor, name, mode) {
            Ok(()) | Err(Errno::EXIST) => Ok(()),
            Err(errno) => Err(self.failed("mkdirat", name)(errno)),
        }
    }

    /// Opens a file; `None` if it does not exist. With `CREATE` it is created with access for
    /// the owner only.
    ///
    /// # Errors
    /// [`CacheError::Call`].
    pub fn file(&self, name: &str, flags: OFlags) -> Result<Option<OwnedFd>, CacheError> {
        let flags = flags | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
        match rustix::fs::openat(
            &self.descriptor,
            name,
            flags,
            Mode::from_raw_mode(FILE_MODE),
        ) {
            Ok(file) => Ok(Some(file)),
            Err(Errno::NOENT) => Ok(None),
            Err(errno) => Err(self.failed("openat", name)(errno)),
        }
    }

    /// Creates a file that must not exist.
    ///
    /// # Errors
    /// [`CacheError::Call`].
    pub fn new_file(&self, name: &str) -> Result<File, CacheError> {
        let made = self.file(name, OFlags::RDWR | OFlags::CREATE | OFlags::EXCL)?;
        made.map(File::from)
            .ok_or_else(|| self.failed("openat", name)(Errno::NOENT))
    }

    /// Reads the first `bytes_max` bytes of a file; `None` if it does not exist.
    ///
    /// # Errors
    /// [`CacheError::Call`].
    pub fn read(&self, name: &str, bytes_max: u64) -> Result<Option<Vec<u8>>, CacheError> {
        let Some(file) = self.file(name, OFlags::RDONLY)? else {
            return Ok(None);
        };
        let mut bytes = Vec::new();
        File::from(file)
            .take(bytes_max)
            .read_to_end(&mut bytes)
            .map_err(|error| self.failed("read", name)(errno_of(&error)))?;
        Ok(Some(bytes))
    }

    pub(crate) fn write_new(&self, name: &str, bytes: &[u8]) -> Result<(), CacheError> {
        self.new_file(name)?
            .write_all(bytes)
            .map_err(|error| self.failed("write", name)(errno_of(&error)))
    }

    /// Renames within this directory; replaces an existing file.
    ///
    /// # Errors
    /// [`CacheError::Call`].
    pub fn rename(&self, from: &str, to: &str) -> Result<(), CacheError> {
        rustix::fs::renameat(&self.descriptor, from, &self.descriptor, to)
            .map_err(self.failed("renameat", to))
    }

    /// Removes a file, if it exists.
    ///
    /// # Errors
    /// [`CacheError::Call`].
    pub fn unlink(&self, name: &str) -> Result<(), CacheError> {
        match rustix::fs::unlinkat(&self.descriptor, name, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(errno) => Err(self.failed("unlinkat", name)(errno)),
        }
    }

    /// Removes a file, or a directory with its content, if it exists.
    pub(crate) fn remove(&self, name: &str) -> Result<(), CacheError> {
        remove(&self.path.join(name))
    }

    /// Lists the directory `part`; empty if it does not exist.
    ///
    /// # Errors
    /// [`CacheError::Call`].
    pub fn names(&self, part: &str) -> Result<Vec<String>, CacheError> {
        let Some(directory) = self.directory(part)? else {
            return Ok(Vec::new());
        };
        let mut names = Vec::new();
        for entry in Dir::read_from(&directory).map_err(self.failed("getdents64", part))? {
            let entry = entry.map_err(self.failed("getdents64", part))?;
            // Names of a store are UTF-8. Other files are not removed.
            if let Ok(name) = entry.file_name().to_str()
                && name != "."
                && name != ".."
            {
                names.push(name.to_owned());
            }
        }
        Ok(names)
    }

    /// Whether `name` is still the file that was opened: another process may have replaced it.
    ///
    /// # Errors
    /// [`CacheError::Call`].
    pub fn is_still(&self, opened: impl AsFd, name: &str) -> Result<bool, CacheError> {
        let named = match rustix::fs::statat(&self.descriptor, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(named) => named,
            Err(Errno::NOENT) => return Ok(false),
            Err(errno) => return Err(self.failed("fstatat", name)(errno)),
        };
        let opened = rustix::fs::fstat(opened).map_err(self.failed("fstat", name))?;
        Ok((named.st_dev, named.st_ino) == (opened.st_dev, opened.st_ino))
    }

    /// Marks the file `name` as used now. A read-only file system is fine.
    ///
    /// # Errors
    /// [`CacheError::Call`].
    pub fn touch(&self, name: &str) -> Result<(), CacheError> {
        sys::file::touch(self.as_fd(), name).map_err(self.failed("utimensat", name))
    }

    /// Locks this directory exclusively; `false` if it is in use.
    pub(crate) fn try_lock(&self) -> Result<bool, CacheError> {
        try_claim_file(self.as_fd()).map_err(failed("flock", &self.path))
    }

    pub(crate) fn lock(&self) -> Result<(), CacheError> {
        locks::lock(self.as_fd(), &self.path)
    }

    pub(crate) fn unlock(&self) -> Result<(), CacheError> {
        release_file(self.as_fd()).map_err(failed("flock", &self.path))
    }
}

pub(crate) fn json(value: &impl Serialize) -> Vec<u8> {
    // Serialization of the types of this crate cannot fail.
    serde_json::to_vec(value).unwrap_or_default()
}

pub(crate) fn remove(path: &Path) -> Result<(), CacheError> {
    let removed = match std::fs::symlink_metadata(path) {
        Ok(status) if status.is_dir() => std::fs::remove_dir_all(path),
        Ok(_) => std::fs::remove_file(path),
        Err(error) => Err(error),
    };
    match removed {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(failed("unlink", path)(errno_of(&error)))
        }
        _ => Ok(()),
    }
}
