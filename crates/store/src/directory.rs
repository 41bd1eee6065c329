//! A private directory that several processes add to and remove from: locks, names, garbage.

use std::fmt;
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::Path;
use std::time::Duration;

use rustix::fs::OFlags;

use crate::error::{CacheError, failed};
use crate::files::{OpenDirectory, remove};
use crate::locks::lock;
use crate::private::{open_private, open_private_in};
use sys::file::errno_of;
use sys::lock::try_claim_file;
use sys::process::random_digits;

pub(crate) const BUILDING: &str = "building";
const CLAIMS: &str = "claims";
const LOCK: &str = "lock";
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";
/// Interval between attempts on a claim. flock(2) has no timeout, and cancellation does not interrupt
/// it.
const CLAIM_INTERVAL: Duration = Duration::from_millis(50);

/// A private directory under one version of its layout: see the documentation of the crate.
#[derive(Debug)]
pub struct StoreDirectory {
    pub(crate) root: OpenDirectory,
    /// The boot that facts name; empty for a directory in memory, whose content ends with the boot.
    pub(crate) boot: String,
}

/// The lock on the names of a store. Other processes neither rename nor remove while it exists.
#[derive(Debug)]
pub struct NamesLock {
    _lock: OwnedFd,
}

/// An exclusive claim on a name, for single flight. Dropping it ends the claim.
pub struct Claim<'store> {
    root: &'store OpenDirectory,
    name: String,
    _lock: OwnedFd,
}

impl fmt::Debug for Claim<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Claim({})", self.name)
    }
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        // Unlinked while locked: a waiting process notices that the name is gone and creates a new
        // file. If unlinking fails, the next sweep removes the file.
        let _left = self.root.unlink(&self.name);
    }
}

impl StoreDirectory {
    /// Opens `directory` under `version` of its layout and creates missing parts. A read-only
    /// directory that exists is opened.
    ///
    /// # Errors
    /// [`CacheError::Unsafe`], [`CacheError::Call`].
    pub fn open(directory: &Path, version: u32, in_memory: bool) -> Result<Self, CacheError> {
        let directory = open_private(directory)?;
        let boot = if in_memory {
            String::new()
        } else {
            std::fs::read_to_string(BOOT_ID)
                .map_err(|error| failed("read", Path::new(BOOT_ID))(errno_of(&error)))?
        };
        Self::in_directory(&directory, version, boot.trim_end().to_owned())
    }

    /// Opens `part` of this directory, whose parents were checked, as a separate store.
    ///
    /// # Errors
    /// As [`StoreDirectory::open`].
    pub fn below(&self, part: &str, version: u32) -> Result<Self, CacheError> {
        let directory = open_private_in(&self.root, part)?;
        Self::in_directory(&directory, version, self.boot.clone())
    }

    fn in_directory(
        directory: &OpenDirectory,
        version: u32,
        boot: String,
    ) -> Result<Self, CacheError> {
        let version = version.to_string();
        let root = match directory.directory(&version)? {
            Some(root) => root,
            None => {
                directory.make_directory(&version)?;
                directory.existing_directory(&version)?
            }
        };
        Ok(Self { root, boot })
    }

    /// The open directory of the store.
    #[must_use]
    pub fn root(&self) -> &OpenDirectory {
        &self.root
    }

    /// Returns its path, free of links.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.root.path()
    }

    /// Waits until no other process changes names.
    ///
    /// # Errors
    /// [`CacheError::Locked`], [`CacheError::Call`].
    pub fn lock_names(&self) -> Result<NamesLock, CacheError> {
        let flags = OFlags::RDWR | OFlags::CREATE;
        let file = self.root.file(LOCK, flags)?;
        let file =
            file.ok_or_else(|| self.root.failed("openat", LOCK)(rustix::io::Errno::NOENT))?;
        lock(file.as_fd(), &self.path().join(LOCK))?;
        Ok(NamesLock { _lock: file })
    }

    /// Returns an unused name in `building`.
    ///
    /// # Errors
    /// [`CacheError::Call`].
    pub fn draft_name(&self) -> Result<String, CacheError> {
        let digits = random_digits().map_err(failed("getrandom", self.path()))?;
        Ok(format!("{BUILDING}/{digits}"))
    }

    /// Replaces the file `part/name` atomically.
    ///
    /// # Errors
    /// [`CacheError`].
    pub fn write(&self, part: &str, name: &str, bytes: &[u8]) -> Result<(), CacheError> {
        for part in [part, BUILDING] {
            self.root.make_directory(part)?;
        }
        self.write_at(&self.lock_names()?, &format!("{part}/{name}"), bytes)
    }

    pub(crate) fn write_at(
        &self,
        // The draft needs no lock of its own: a sweep waits for the lock on the names.
        _names: &NamesLock,
        name: &str,
        bytes: &[u8],
    ) -> Result<(), CacheError> {
        let draft = self.draft_name()?;
        self.root.write_new(&draft, bytes)?;
        self.root.rename(&draft, name)
    }

    /// Claims `name`, a plain file name. While another process has the claim, `wait` is called before
    /// each further attempt with the time to sleep.
    ///
    /// # Errors
    /// [`CacheError::Call`], or the error of `wait`.
    pub fn claim<E: From<CacheError>>(
        &self,
        name: &str,
        mut wait: impl FnMut(Duration) -> Result<(), E>,
    ) -> Result<Claim<'_>, E> {
        self.root.make_directory(CLAIMS)?;
        let name = format!("{CLAIMS}/{name}");
        loop {
            if let Some(lock) = self.try_claim(&name)? {
                return Ok(Claim {
                    root: &self.root,
                    name,
                    _lock: lock,
                });
            }
            wait(CLAIM_INTERVAL)?;
        }
    }

    /// Opens or creates the file `name` and locks it; `None` if another process has the lock.
    ///
    /// # Errors
    /// [`CacheError::Call`].
    pub fn try_claim(&self, name: &str) -> Result<Option<OwnedFd>, CacheError> {
        let Some(file) = self.root.file(name, OFlags::RDWR | OFlags::CREATE)? else {
            return Ok(None);
        };
        let is_free = try_claim_file(file.as_fd()).map_err(self.root.failed("flock", name))?;
        // The file may have been renamed or removed between open and lock.
        Ok((is_free && self.root.is_still(&file, name)?).then_some(file))
    }

    /// Removes the drafts and claims of killed processes.
    ///
    /// # Errors
    /// [`CacheError::Call`].
    pub fn sweep(&self, _names: &NamesLock) -> Result<(), CacheError> {
        for part in [BUILDING, CLAIMS] {
            for name in self.root.names(part)? {
                let name = format!("{part}/{name}");
                // Other processes remove their drafts and claims without the lock on the names: the
                // name may be gone, or belong to another process by now.
                if let Some(left) = self.root.file(&name, OFlags::RDONLY)?
                    && try_claim_file(left.as_fd()).map_err(self.root.failed("flock", &name))?
                    && self.root.is_still(&left, &name)?
                {
                    self.root.remove(&name)?;
                }
            }
        }
        Ok(())
    }

    /// Removes directories of other versions of the layout. Those versions create them again.
    ///
    /// # Errors
    /// [`CacheError::Call`].
    pub fn remove_other_versions(&self) -> Result<(), CacheError> {
        let above = self.path().parent().unwrap_or(self.path());
        let names: Vec<_> = std::fs::read_dir(above)
            .map_err(|error| failed("getdents64", above)(errno_of(&error)))?
            .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
            .collect();
        let is_other = |name: &&str| {
            name.bytes().all(|byte| byte.is_ascii_digit()) && !self.path().ends_with(name)
        };
        let others: Vec<&str> = names.iter().map(String::as_str).filter(is_other).collect();
        self.remove_beside(&others)
    }

    /// Removes `names` next to the directory of this version, if they exist.
    ///
    /// # Errors
    /// [`CacheError::Call`].
    pub fn remove_beside(&self, names: &[&str]) -> Result<(), CacheError> {
        let above = self.path().parent().unwrap_or(self.path());
        names.iter().try_for_each(|name| remove(&above.join(name)))
    }
}
