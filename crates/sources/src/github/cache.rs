//! Cache of fetched repositories, shared by concurrent processes.
//!
//! ```text
//! DIRECTORY/github/entries/KEY/  complete content, with a label that has its digest
//!                  building/…/   entries that are being made or removed
//!                  claims/KEY    locked by the process that fetches KEY
//!                  refs/KEY      the commit of a version tag, and its time
//!                  lock          held while names change
//! ```
//!
//! An entry is made in `building` and renamed. Users of an entry hold a shared lock on its
//! directory, which prevents removal and ends with the process. Unlocked content of `building` is
//! garbage. After a power failure the digest in the label detects incomplete files.

use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use crate::github::error::GitHubError;
use crate::github::reference::{TAG_LIFETIME, is_commit};
use spec::digest::Digest;
use spec::path::escape;
use sys::credentials::is_ours_or_roots;
use sys::file::{self, CallError};
use sys::lock::{claim_file, share_file, try_claim_file};

const LABEL: &str = "label.json";
const DIRECTORY_MODE: u32 = 0o700;
const FILE_MODE: u32 = 0o600;
const OTHERS_MAY_WRITE: u32 = 0o022;
const LOOKS_MAX: u32 = 10;

/// Name of an entry: the SHA-256 of what identifies it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Key(String);

impl Key {
    /// Hashes `parts`, which must not contain NUL.
    pub(super) fn of(parts: &[&[u8]]) -> Self {
        let digest = Digest::of(&parts.join(&0)).to_string();
        Self(digest.trim_start_matches("sha256:").to_owned())
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Label {
    /// Must match the entry: detects a renamed directory.
    pub(super) key: String,
    pub(super) archive_bytes: u64,
    /// SHA-256 of that archive.
    pub(super) archive_digest: String,
    /// SHA-256 of the canonical tar of the files, if the entry has files.
    pub(super) content_digest: Option<String>,
    /// Approximate size on the disk.
    pub(super) disk_bytes: u64,
}

/// A locked entry: it is not removed while this value lives.
#[derive(Debug)]
pub(super) struct Held {
    pub(super) directory: OwnedFd,
    pub(super) label: Label,
}

/// An unfinished entry. Dropping it unpublished removes it.
#[derive(Debug)]
pub(super) struct Building {
    pub(super) directory: OwnedFd,
    path: PathBuf,
    published: bool,
}

impl Drop for Building {
    fn drop(&mut self) {
        if !self.published && std::fs::remove_dir_all(&self.path).is_err() {
            // Closing the descriptor releases the lock; the next fetch removes the rest.
        }
    }
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Resolution {
    key: String,
    sha: String,
    since_unix_s: u64,
}

#[derive(Debug)]
pub(super) struct Cache {
    root: PathBuf,
    size_bytes: u64,
}

impl Cache {
    /// Opens or creates the cache in `directory`. Above `size_bytes` the least recently used
    /// entries are removed.
    ///
    /// # Errors
    /// [`GitHubError::Cache`]: cannot be created, has another owner, or others can write to it or
    /// replace it.
    pub(super) fn open(directory: &Path, size_bytes: u64) -> Result<Self, GitHubError> {
        let root = directory.join("github");
        let mut parts: Vec<PathBuf> = Vec::new();
        parts.extend(["", "entries", "building", "claims", "refs"].map(|part| root.join(part)));
        for ancestor in directory.ancestors() {
            if ancestor.as_os_str().is_empty() || ancestor.exists() {
                break;
            }
            parts.insert(0, ancestor.to_owned());
        }
        for part in &parts {
            match rustix::fs::mkdir(part, Mode::from_raw_mode(DIRECTORY_MODE)) {
                Ok(()) | Err(Errno::EXIST) => (),
                Err(errno) => return Err(failed("mkdir", part, errno)),
            }
        }
        for part in [directory, &root] {
            check_owner(part)?;
        }
        // Resolved once, so that the checked path is the used path.
        let directory = directory
            .canonicalize()
            .map_err(|error| failed("realpath", directory, errno_of(&error)))?;
        for above in directory.ancestors().skip(1) {
            check_above(above)?;
        }
        let root = directory.join("github");
        Ok(Self { root, size_bytes })
    }

    fn entry(&self, key: &Key) -> PathBuf {
        self.root.join("entries").join(&key.0)
    }

    fn fresh(&self) -> Result<PathBuf, GitHubError> {
        let mut bytes = [0_u8; 8];
        rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())
            .map_err(|errno| failed("getrandom", &self.root, errno))?;
        let name = u64::from_ne_bytes(bytes);
        Ok(self.root.join("building").join(format!("{name:016x}")))
    }

    fn lock_names(&self) -> Result<OwnedFd, GitHubError> {
        let path = self.root.join("lock");
        let lock = open_file(&path, OFlags::RDWR | OFlags::CREATE)?;
        claim_file(lock.as_fd()).map_err(|errno| failed("flock", &path, errno))?;
        Ok(lock)
    }

    /// Waits until no other process fetches `key`. The claim ends when dropped.
    ///
    /// # Errors
    /// [`GitHubError::Cache`].
    pub(super) fn claim(&self, key: &Key) -> Result<OwnedFd, GitHubError> {
        let path = self.root.join("claims").join(&key.0);
        loop {
            let claim = open_file(&path, OFlags::RDWR | OFlags::CREATE)?;
            claim_file(claim.as_fd()).map_err(|errno| failed("flock", &path, errno))?;
            // Removed before it was locked: the next process would lock another file.
            let status =
                rustix::fs::fstat(&claim).map_err(|errno| failed("fstat", &path, errno))?;
            if 0 < status.st_nlink {
                return Ok(claim);
            }
        }
    }

    /// Opens the entry `key` and marks it as used now. Its label is valid; the caller must verify
    /// the content.
    ///
    /// # Errors
    /// [`GitHubError::Cache`].
    pub(super) fn find(&self, key: &Key) -> Result<Option<Held>, GitHubError> {
        let path = self.entry(key);
        for _ in 0..LOOKS_MAX {
            let Some(directory) = open_directory(&path)? else {
                return Ok(None);
            };
            share_file(directory.as_fd()).map_err(|errno| failed("flock", &path, errno))?;
            // Removed or replaced before it was locked.
            if !is_still(&directory, &path)? {
                continue;
            }
            let Some(label) = read_label(&directory, key) else {
                drop(directory);
                self.discard(key)?;
                return Ok(None);
            };
            touch(&directory, &path)?;
            return Ok(Some(Held { directory, label }));
        }
        Ok(None)
    }

    /// Removes the damaged entry `key`; current users keep it.
    ///
    /// # Errors
    /// [`GitHubError::Cache`].
    pub(super) fn discard(&self, key: &Key) -> Result<(), GitHubError> {
        let _names = self.lock_names()?;
        self.move_away(&self.entry(key))
    }

    /// Moves an entry out of `entries`. Requires the lock on the names. An entry in use stays in
    /// `building`.
    fn move_away(&self, path: &Path) -> Result<(), GitHubError> {
        let Some(directory) = open_directory(path)? else {
            return Ok(());
        };
        let is_free =
            try_claim_file(directory.as_fd()).map_err(|errno| failed("flock", path, errno))?;
        let away = self.fresh()?;
        rustix::fs::rename(path, &away).map_err(|errno| failed("rename", path, errno))?;
        match is_free {
            true => remove(&away),
            false => Ok(()),
        }
    }

    /// Begins an entry. Removes leftovers of killed processes first.
    ///
    /// # Errors
    /// [`GitHubError::Cache`].
    pub(super) fn begin(&self) -> Result<Building, GitHubError> {
        let _names = self.lock_names()?;
        self.sweep()?;
        let path = self.fresh()?;
        rustix::fs::mkdir(&path, Mode::from_raw_mode(DIRECTORY_MODE))
            .map_err(|errno| failed("mkdir", &path, errno))?;
        let directory =
            open_directory(&path)?.ok_or_else(|| failed("open", &path, Errno::NOENT))?;
        claim_file(directory.as_fd()).map_err(|errno| failed("flock", &path, errno))?;
        Ok(Building {
            directory,
            path,
            published: false,
        })
    }

    /// Removes leftovers. Requires the lock on the names.
    fn sweep(&self) -> Result<(), GitHubError> {
        for part in ["building", "claims"] {
            for path in self.names(part)? {
                let left = match rustix::fs::open(
                    &path,
                    OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC,
                    Mode::empty(),
                ) {
                    Ok(left) => left,
                    // Its maker removed it, which needs no lock.
                    Err(Errno::NOENT) => continue,
                    Err(errno) => return Err(failed("open", &path, errno)),
                };
                let is_free =
                    try_claim_file(left.as_fd()).map_err(|errno| failed("flock", &path, errno))?;
                if is_free {
                    remove(&path)?;
                }
            }
        }
        for path in self.names("refs")? {
            let age = std::fs::metadata(&path)
                .and_then(|status| status.modified())
                .map(|then| then.elapsed().unwrap_or_default());
            if age.is_ok_and(|age| TAG_LIFETIME < age) {
                remove(&path)?;
            }
        }
        Ok(())
    }

    fn names(&self, part: &str) -> Result<Vec<PathBuf>, GitHubError> {
        let directory = self.root.join(part);
        let unreadable = |error: &std::io::Error| failed("getdents64", &directory, errno_of(error));
        std::fs::read_dir(&directory)
            .map_err(|error| unreadable(&error))?
            .map(|entry| {
                entry
                    .map(|entry| entry.path())
                    .map_err(|error| unreadable(&error))
            })
            .collect()
    }

    /// Renames the new entry to `key`, replacing an earlier one, and shrinks the cache.
    ///
    /// # Errors
    /// [`GitHubError::Cache`].
    pub(super) fn publish(
        &self,
        mut building: Building,
        key: &Key,
        mut label: Label,
    ) -> Result<Held, GitHubError> {
        label.key.clone_from(&key.0);
        write_new(&building.path.join(LABEL), &json(&label, &building.path)?)?;
        let path = self.entry(key);
        let _names = self.lock_names()?;
        self.move_away(&path)?;
        rustix::fs::rename(&building.path, &path)
            .map_err(|errno| failed("rename", &path, errno))?;
        building.published = true;
        let directory = rustix::io::fcntl_dupfd_cloexec(&building.directory, 0)
            .map_err(|errno| failed("fcntl", &path, errno))?;
        // Converting the lock is not atomic, but removal needs the lock on the names.
        share_file(directory.as_fd()).map_err(|errno| failed("flock", &path, errno))?;
        self.shrink()?;
        Ok(Held { directory, label })
    }

    /// Removes unused entries, least recently used first, until the size limit is met. Requires the
    /// lock on the names.
    fn shrink(&self) -> Result<(), GitHubError> {
        let mut entries: Vec<(SystemTime, u64, PathBuf)> = Vec::new();
        for path in self.names("entries")? {
            let key = Key(path
                .file_name()
                .map_or_else(String::new, |name| escape(name.as_bytes())));
            let label = open_directory(&path)?.and_then(|directory| read_label(&directory, &key));
            let used = std::fs::metadata(path.join(LABEL)).and_then(|status| status.modified());
            match (label, used) {
                (Some(label), Ok(used)) => entries.push((used, label.disk_bytes, path)),
                _ => self.move_away(&path)?,
            }
        }
        entries.sort();
        let mut total: u64 = entries
            .iter()
            .fold(0, |sum, (_, bytes, _)| sum.saturating_add(*bytes));
        for (_, bytes, path) in entries {
            if total <= self.size_bytes {
                break;
            }
            let Some(directory) = open_directory(&path)? else {
                continue;
            };
            let is_free =
                try_claim_file(directory.as_fd()).map_err(|errno| failed("flock", &path, errno))?;
            if is_free {
                let away = self.fresh()?;
                rustix::fs::rename(&path, &away).map_err(|errno| failed("rename", &path, errno))?;
                remove(&away)?;
                total = total.saturating_sub(bytes);
            }
        }
        Ok(())
    }

    /// Returns the recorded commit of `key`, if at most [`TAG_LIFETIME`] old.
    pub(super) fn resolution(&self, key: &Key) -> Option<String> {
        let bytes = std::fs::read(self.root.join("refs").join(&key.0)).ok()?;
        let resolution: Resolution = serde_json::from_slice(&bytes).ok()?;
        let since = UNIX_EPOCH.checked_add(Duration::from_secs(resolution.since_unix_s))?;
        // Fails if the clock was set back: resolve again.
        let age = SystemTime::now().duration_since(since).ok()?;
        let is_good = resolution.key == key.0 && is_commit(&resolution.sha) && age < TAG_LIFETIME;
        is_good.then_some(resolution.sha)
    }

    /// Records the commit of `key`.
    ///
    /// # Errors
    /// [`GitHubError::Cache`].
    pub(super) fn remember(&self, key: &Key, sha: &str) -> Result<(), GitHubError> {
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        let resolution = Resolution {
            key: key.0.clone(),
            sha: sha.to_owned(),
            since_unix_s: since.unwrap_or_default().as_secs(),
        };
        let _names = self.lock_names()?;
        let (draft, path) = (self.fresh()?, self.root.join("refs").join(&key.0));
        write_new(&draft, &json(&resolution, &path)?)?;
        rustix::fs::rename(&draft, &path).map_err(|errno| failed("rename", &path, errno))
    }
}

fn check_owner(path: &Path) -> Result<(), GitHubError> {
    let refused = |problem| GitHubError::Cache {
        object: escape(path.as_os_str().as_bytes()),
        problem,
        source: None,
    };
    let status = rustix::fs::stat(path).map_err(|errno| failed("stat", path, errno))?;
    if status.st_uid != rustix::process::geteuid().as_raw() {
        return Err(refused(
            "belongs to another user; expected one of this user's own",
        ));
    }
    if status.st_mode & OTHERS_MAY_WRITE != 0 {
        return Err(refused(
            "can be written by others; expected mode 0700: `chmod 700` it, and look what is in it",
        ));
    }
    Ok(())
}

/// A user who can rename the cache could replace it. Group access is the owner's decision.
fn check_above(path: &Path) -> Result<(), GitHubError> {
    let refused = |problem| GitHubError::Cache {
        object: escape(path.as_os_str().as_bytes()),
        problem,
        source: None,
    };
    let status = rustix::fs::stat(path).map_err(|errno| failed("stat", path, errno))?;
    if !is_ours_or_roots(status.st_uid) {
        return Err(refused(
            "belongs to another user, who can replace the cache below it",
        ));
    }
    let (for_all, sticky) = (0o002, 0o1000);
    if status.st_mode & (for_all | sticky) == for_all {
        return Err(refused(
            "can be written by others, who can replace the cache below it",
        ));
    }
    Ok(())
}

fn open_directory(path: &Path) -> Result<Option<OwnedFd>, GitHubError> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    match rustix::fs::open(path, flags, Mode::empty()) {
        Ok(directory) => Ok(Some(directory)),
        Err(Errno::NOENT) => Ok(None),
        Err(errno) => Err(failed("open", path, errno)),
    }
}

fn open_file(path: &Path, flags: OFlags) -> Result<OwnedFd, GitHubError> {
    let flags = flags | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::open(path, flags, Mode::from_raw_mode(FILE_MODE))
        .map_err(|errno| failed("open", path, errno))
}

fn is_still(directory: &OwnedFd, path: &Path) -> Result<bool, GitHubError> {
    let there = match rustix::fs::lstat(path) {
        Ok(there) => there,
        Err(Errno::NOENT) => return Ok(false),
        Err(errno) => return Err(failed("lstat", path, errno)),
    };
    let opened = rustix::fs::fstat(directory).map_err(|errno| failed("fstat", path, errno))?;
    Ok((there.st_dev, there.st_ino) == (opened.st_dev, opened.st_ino))
}

fn read_label(directory: &OwnedFd, key: &Key) -> Option<Label> {
    use std::io::Read as _;
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = rustix::fs::openat(directory, LABEL, flags, Mode::empty()).ok()?;
    let mut bytes = Vec::new();
    std::fs::File::from(file)
        .take(64 * 1024)
        .read_to_end(&mut bytes)
        .ok()?;
    let label: Label = serde_json::from_slice(&bytes).ok()?;
    (label.key == key.0).then_some(label)
}

fn touch(directory: &OwnedFd, path: &Path) -> Result<(), GitHubError> {
    // A read-only file system is fine.
    file::touch(directory.as_fd(), LABEL).map_err(|errno| failed("utimensat", path, errno))
}

fn json(value: &impl Serialize, path: &Path) -> Result<Vec<u8>, GitHubError> {
    serde_json::to_vec(value).map_err(|_never| failed("write", path, Errno::INVAL))
}

fn write_new(path: &Path, bytes: &[u8]) -> Result<(), GitHubError> {
    use std::io::Write as _;
    let file = open_file(path, OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL)?;
    std::fs::File::from(file)
        .write_all(bytes)
        .map_err(|error| failed("write", path, errno_of(&error)))
}

fn remove(path: &Path) -> Result<(), GitHubError> {
    let removed = match std::fs::symlink_metadata(path) {
        Ok(status) if status.is_dir() => std::fs::remove_dir_all(path),
        Ok(_) => std::fs::remove_file(path),
        Err(error) => Err(error),
    };
    match removed {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(failed("unlink", path, errno_of(&error)))
        }
        _ => Ok(()),
    }
}

pub(super) fn errno_of(error: &std::io::Error) -> Errno {
    error
        .raw_os_error()
        .map_or(Errno::IO, Errno::from_raw_os_error)
}

pub(super) fn failed(call: &'static str, path: &Path, errno: Errno) -> GitHubError {
    let object = escape(path.as_os_str().as_bytes());
    GitHubError::Cache {
        source: Some(CallError::new(call, object.clone(), errno)),
        object,
        problem: "cannot be used",
    }
}
