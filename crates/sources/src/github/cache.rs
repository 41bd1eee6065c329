//! The cache of fetched repositories, shared by concurrent processes.
//!
//! A [`StoreDirectory`] in `github` of the cache directory. An entry contains the archive of a
//! commit, or the files of one folder of it. Both are verified on each use. `refs/KEY` has the
//! commit of a version tag, and the time when it was resolved.

use std::fs::File;
use std::io::{Seek as _, Write as _};
use std::os::fd::AsFd as _;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::fs::{Mode, OFlags};
use serde::{Deserialize, Serialize};

use crate::github::FetchedTree;
use crate::github::error::GitHubError;
use crate::github::reference::{TAG_LIFETIME, is_commit};
use crate::{to_json, unix_s};
use archive::{Tree, Unpacked, listing};
use spec::digest::Digest;
use store::{Building, CacheError, Claim, KeyedTree, Label, StoreDirectory};

/// Version of the layout. Increment it when the meaning of a file changes.
const LAYOUT: u32 = 1;
const ARCHIVE: &str = "archive.tar.gz";
const REFERENCES: &str = "refs";
/// The layout of earlier versions of this program, which had no version.
const UNVERSIONED: [&str; 5] = ["entries", "building", "claims", "refs", "lock"];
const RESOLUTION_BYTES_MAX: u64 = 64 << 10;
/// Bytes on the disk for an archive, in addition to its size.
const DISK_BYTES_OVERHEAD: u64 = 4096;

/// An archive of the service.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ArchiveNote {
    pub(super) bytes: u64,
    pub(super) digest: Digest,
}

/// First line of the note of a tree. The list of its files follows.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct TreeNote {
    archive: ArchiveNote,
    /// SHA-256 of the canonical tar of the files.
    content: Digest,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Resolution {
    key: Digest,
    sha: String,
    since_unix_s: u64,
}

/// An archive that is being downloaded. Dropping it unpublished removes it.
pub(super) struct Download {
    building: Building,
    file: File,
}

impl Download {
    pub(super) fn write(&mut self, bytes: &[u8]) -> Result<(), GitHubError> {
        let written = self.file.write_all(bytes);
        written.map_err(|error| self.failed("write", &error))
    }

    /// Returns the file for reading from its start.
    pub(super) fn reader(&self) -> Result<File, GitHubError> {
        let file = self.file.try_clone().and_then(|mut file| {
            file.rewind()?;
            Ok(file)
        });
        file.map_err(|error| self.failed("lseek", &error))
    }

    fn failed(&self, call: &'static str, error: &std::io::Error) -> GitHubError {
        let directory = self.building.directory();
        directory.failed(call, ARCHIVE)(sys::file::errno_of(error)).into()
    }
}

#[derive(Debug)]
pub(super) struct Cache {
    directory: StoreDirectory,
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
        Ok(Self {
            directory: StoreDirectory::open(&directory.join("github"), LAYOUT, false)?,
            size_bytes,
        })
    }

    /// Waits until no other process fetches `key`. `wait` sleeps between the attempts.
    pub(super) fn claim(
        &self,
        key: &Digest,
        wait: impl Fn(Duration),
    ) -> Result<Claim<'_>, GitHubError> {
        self.directory.claim(&key.hexadecimal(), |pause| {
            wait(pause);
            Ok(())
        })
    }

    /// Begins an entry. First removes leftovers of killed processes and of earlier versions.
    pub(super) fn begin(&self) -> Result<Building, GitHubError> {
        self.directory.remove_beside(&UNVERSIONED)?;
        Ok(self.directory.begin()?)
    }

    pub(super) fn begin_download(&self) -> Result<Download, GitHubError> {
        let building = self.begin()?;
        let file = building.directory().new_file(ARCHIVE)?;
        Ok(Download { building, file })
    }

    /// Finds the files of `key`. Damaged ones are removed.
    pub(super) fn tree(&self, key: &Digest) -> Result<Option<FetchedTree>, GitHubError> {
        let Some(found) = self.directory.find(key)? else {
            return Ok(None);
        };
        if let Some((note, tree)) = TreeNote::parse(&found.note()?)
            && store::check_tree(found.root.as_fd(), &tree, &note.content).is_none()
        {
            return Ok(Some(FetchedTree::of_entry(found, note.archive, true)));
        }
        drop(found);
        self.discard(key)?;
        Ok(None)
    }

    /// Finds the archive of `key`. A damaged one is removed.
    pub(super) fn archive(&self, key: &Digest) -> Result<Option<File>, GitHubError> {
        let Some(found) = self.directory.find(key)? else {
            return Ok(None);
        };
        if let Some(file) = verified_archive(&found)? {
            return Ok(Some(file));
        }
        drop(found);
        self.discard(key)?;
        Ok(None)
    }

    /// Removes the damaged entry `key`; current users keep it.
    pub(super) fn discard(&self, key: &Digest) -> Result<(), GitHubError> {
        Ok(self.directory.discard(&key.hexadecimal())?)
    }

    /// Publishes an archive and shrinks the cache.
    pub(super) fn publish_archive(
        &self,
        download: Download,
        key: &Digest,
        archive: ArchiveNote,
    ) -> Result<(), GitHubError> {
        let label = Label {
            bytes: archive.bytes,
            disk_bytes: archive.bytes.saturating_add(DISK_BYTES_OVERHEAD),
            note: &to_json(&archive),
            is_verified_on_use: true,
        };
        drop(self.directory.publish(download.building, key, label)?);
        self.directory.shrink(self.size_bytes)?;
        Ok(())
    }

    /// Publishes the files that were unpacked and shrinks the cache.
    pub(super) fn publish_tree(
        &self,
        building: Building,
        key: &Digest,
        archive: ArchiveNote,
        unpacked: &Unpacked,
    ) -> Result<KeyedTree, GitHubError> {
        let mut note = to_json(&TreeNote {
            archive,
            content: unpacked.content_digest,
        });
        note.push(b'\n');
        listing::append(&unpacked.tree, &mut note);
        let label = Label {
            bytes: unpacked.bytes,
            disk_bytes: store::disk_bytes(&unpacked.tree),
            note: &note,
            is_verified_on_use: true,
        };
        let published = self.directory.publish(building, key, label)?;
        self.directory.shrink(self.size_bytes)?;
        Ok(published)
    }

    /// Returns the recorded commit of `key`, unless it is older than [`TAG_LIFETIME`].
    pub(super) fn recorded_commit(&self, key: &Digest) -> Option<String> {
        let name = format!("{REFERENCES}/{}", key.hexadecimal());
        let bytes = self.directory.root().read(&name, RESOLUTION_BYTES_MAX);
        let resolution: Resolution = serde_json::from_slice(&bytes.ok()??).ok()?;
        let since = UNIX_EPOCH.checked_add(Duration::from_secs(resolution.since_unix_s))?;
        // Fails if the clock was set back. The reference is then resolved again.
        let age = SystemTime::now().duration_since(since).ok()?;
        let is_valid = resolution.key == *key && is_commit(&resolution.sha) && age < TAG_LIFETIME;
        is_valid.then_some(resolution.sha)
    }

    /// Records the commit of `key`, and removes the records that are too old.
    pub(super) fn record_commit(&self, key: &Digest, sha: &str) -> Result<(), GitHubError> {
        let root = self.directory.root();
        for name in root.names(REFERENCES)? {
            let name = format!("{REFERENCES}/{name}");
            let written = std::fs::metadata(root.path().join(&name));
            let age = written
                .and_then(|status| status.modified())
                .map(|then| then.elapsed().unwrap_or_default());
            if age.is_ok_and(|age| age > TAG_LIFETIME) {
                root.unlink(&name)?;
            }
        }
        let bytes = to_json(&Resolution {
            key: *key,
            sha: sha.to_owned(),
            since_unix_s: unix_s(),
        });
        Ok(self
            .directory
            .write(REFERENCES, &key.hexadecimal(), &bytes)?)
    }
}

impl TreeNote {
    fn parse(note: &[u8]) -> Option<(Self, Tree)> {
        let end = note.iter().position(|byte| *byte == b'\n')?;
        let parsed = serde_json::from_slice(&note[..end]).ok()?;
        Some((parsed, listing::read(&note[end + 1..])?))
    }
}

fn verified_archive(found: &KeyedTree) -> Result<Option<File>, CacheError> {
    let Ok(note) = serde_json::from_slice::<ArchiveNote>(&found.note()?) else {
        return Ok(None);
    };
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let Ok(file) = rustix::fs::openat(&found.root, ARCHIVE, flags, Mode::empty()) else {
        return Ok(None);
    };
    let mut file = File::from(file);
    let is_intact = store::hash(&mut file).is_ok_and(|digest| digest == note.digest);
    Ok((is_intact && file.rewind().is_ok()).then_some(file))
}
