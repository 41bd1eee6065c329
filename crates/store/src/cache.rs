//! The cache of unpacked bundles: finds trees by their content and by two indexes.

use std::os::fd::{AsFd as _, OwnedFd};
use std::path::PathBuf;

use rustix::fs::AtFlags;
use serde::{Deserialize, Serialize};

use crate::UNPACK_RULES;
use crate::checking::check_tree;
use crate::directory::StoreDirectory;
use crate::entries::{Building, EntryUse, LockedEntry, TREE, TREES};
use crate::error::CacheError;
use crate::facts::{FACTS, Facts, read_listing};
use crate::files::{InUseDirectory, OpenDirectory};
use crate::identity::{Identity, archive_key};
use crate::location::CacheLocation;
use archive::{Tree, UnpackLimits, Unpacked};
use spec::digest::Digest;
use spec::path::escape_path;
use spec::report::WarningReport;

pub(super) const ARCHIVES: &str = "archives";
pub(super) const IDENTITIES: &str = "identities";
pub(super) const RECORD_BYTES_MAX: u64 = 64 << 10;

/// An open cache of unpacked bundles.
#[derive(Debug)]
pub struct Cache {
    pub(super) directory: StoreDirectory,
    pub(super) size_bytes: u64,
}

/// Entry of an index.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Record {
    pub(super) archive: Digest,
    pub(super) content: Digest,
    /// Code and message of each warning of the unpacking.
    pub(super) warnings: Vec<(String, String)>,
}

/// A tree in use with its list. This value prevents its removal.
#[derive(Debug)]
pub struct ListedTree {
    pub unpacked: Unpacked,
    pub in_use: InUse,
}

/// A tree in use without its list: reading the list takes longer for a larger tree.
#[derive(Debug)]
pub struct CachedTree {
    pub in_use: InUse,
    /// The digest of its canonical tar.
    pub content_digest: Digest,
    /// Bytes of all files.
    pub bytes: u64,
    /// Number of regular files; `None` if an earlier version of this program stored the tree.
    pub files: Option<u64>,
    pub warnings: Vec<WarningReport>,
}

/// A tree in use. This value prevents its removal.
#[derive(Debug)]
pub struct InUse {
    /// The directory that holds the tree.
    pub root: OwnedFd,
    /// Its path, free of links.
    pub path: PathBuf,
    owner: Owner,
}

#[derive(Debug)]
pub(super) enum Owner {
    /// An entry of the cache, with the lock.
    Entry(InUseDirectory),
    /// A tree that is not kept: dropping it removes the tree.
    Temporary(Building),
}

impl Cache {
    /// Opens the cache at `location` and creates missing parts.
    ///
    /// # Errors
    /// [`CacheError::Unsafe`], [`CacheError::Call`].
    pub fn open(location: &CacheLocation) -> Result<Self, CacheError> {
        let (directory, in_memory) = (&location.directory, location.in_memory);
        Ok(Self {
            directory: StoreDirectory::open(directory, UNPACK_RULES, in_memory)?,
            size_bytes: location.size_bytes,
        })
    }

    /// Opens the cache in `part` of `store`.
    ///
    /// # Errors
    /// As [`Cache::open`].
    pub fn below(store: &StoreDirectory, part: &str, size_bytes: u64) -> Result<Self, CacheError> {
        Ok(Self {
            directory: store.below(part, UNPACK_RULES)?,
            size_bytes,
        })
    }

    /// Returns the size limit of all trees together.
    #[must_use]
    pub fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    /// Finds the tree of a file that has not changed since it was hashed.
    ///
    /// # Errors
    /// [`CacheError`].
    pub fn by_identity(
        &self,
        identity: &Identity,
        limits: &UnpackLimits,
    ) -> Result<Option<ListedTree>, CacheError> {
        let name = format!("{IDENTITIES}/{}", identity.key(limits));
        Ok(self.find_recorded(&name)?.map(|(tree, _)| tree))
    }

    /// Whether an archive of this size is known. If not, hashing an archive to find it is useless.
    #[must_use]
    pub fn knows_size(&self, bytes: u64) -> bool {
        let name = format!("{ARCHIVES}/{bytes}");
        rustix::fs::statat(&self.directory.root, name, AtFlags::SYMLINK_NOFOLLOW).is_ok()
    }

    /// Finds the tree of an archive, and its entry in the index.
    ///
    /// # Errors
    /// [`CacheError`].
    pub fn by_digest(
        &self,
        bytes: u64,
        archive: &Digest,
        limits: &UnpackLimits,
    ) -> Result<Option<(ListedTree, Record)>, CacheError> {
        self.find_recorded(&archive_name(bytes, archive, limits))
    }

    /// As [`Cache::by_digest`], without reading the list of the tree. A tree of an earlier boot is
    /// read, to verify it.
    ///
    /// # Errors
    /// [`CacheError`].
    pub fn by_digest_without_list(
        &self,
        bytes: u64,
        archive: &Digest,
        limits: &UnpackLimits,
    ) -> Result<Option<CachedTree>, CacheError> {
        let name = archive_name(bytes, archive, limits);
        let found = self.lock_recorded(&name)?;
        let Some((locked, record)) = found.filter(|(_, record)| record.archive == *archive) else {
            return Ok(None);
        };
        let content = record.content;
        if locked.head.boot != self.directory.boot {
            let Some(mut tree) = self.read_list(locked, &content)? else {
                return Ok(None);
            };
            tree.unpacked.warnings = record.warnings();
            return Ok(Some(CachedTree::without_list(tree)));
        }
        locked.touch()?;
        let LockedEntry { entry, head } = locked;
        Ok(Some(CachedTree {
            in_use: InUse::new(Owner::Entry(entry))?,
            content_digest: content,
            bytes: head.bytes,
            files: head.files,
            warnings: record.warnings(),
        }))
    }

    /// As [`Cache::publish`], without the list.
    ///
    /// # Errors
    /// [`CacheError`]; the built tree is removed.
    pub fn publish_without_list(
        &self,
        building: Building,
        unpacked: Unpacked,
        archive_bytes: u64,
        limits: &UnpackLimits,
    ) -> Result<CachedTree, CacheError> {
        let (tree, _record) = self.publish(building, unpacked, archive_bytes, limits)?;
        Ok(CachedTree::without_list(tree))
    }

    fn record(&self, name: &str) -> Result<Option<Record>, CacheError> {
        let Some(bytes) = self.directory.root.read(name, RECORD_BYTES_MAX)? else {
            return Ok(None);
        };
        let parsed = serde_json::from_slice(&bytes).ok();
        if parsed.is_none() {
            self.directory.root.unlink(name)?;
        }
        Ok(parsed)
    }

    fn lock_recorded(&self, name: &str) -> Result<Option<(LockedEntry, Record)>, CacheError> {
        let Some(record) = self.record(name)? else {
            return Ok(None);
        };
        let locked = self.directory.lock_entry(&record.content.hexadecimal())?;
        Ok(locked.map(|locked| (locked, record)))
    }

    fn find_recorded(&self, name: &str) -> Result<Option<(ListedTree, Record)>, CacheError> {
        let Some((locked, record)) = self.lock_recorded(name)? else {
            return Ok(None);
        };
        let Some(mut tree) = self.read_list(locked, &record.content)? else {
            return Ok(None);
        };
        tree.unpacked.archive_digest = Some(record.archive);
        tree.unpacked.warnings = record.warnings();
        Ok(Some((tree, record)))
    }

    /// Reads the list of an entry and marks the entry as used now.
    fn read_list(
        &self,
        locked: LockedEntry,
        content: &Digest,
    ) -> Result<Option<ListedTree>, CacheError> {
        let Some(tree) = read_listing(&locked.entry)? else {
            let key = content.hexadecimal();
            self.directory.discard_judged(&key, &locked.entry)?;
            return Ok(None);
        };
        if locked.head.boot == self.directory.boot {
            locked.touch()?;
        } else if !self.verify_earlier_boot(&locked, content, &tree)? {
            let key = content.hexadecimal();
            self.directory.discard_judged(&key, &locked.entry)?;
            return Ok(None);
        }
        Ok(Some(ListedTree {
            unpacked: Unpacked {
                content_digest: *content,
                archive_digest: None,
                bytes: locked.head.bytes,
                entries: tree.len() as u64,
                tree,
                warnings: Vec::new(),
            },
            in_use: InUse::new(Owner::Entry(locked.entry))?,
        }))
    }

    /// Verifies a tree that a crash may have left incomplete, and records this boot.
    fn verify_earlier_boot(
        &self,
        locked: &LockedEntry,
        content: &Digest,
        tree: &Tree,
    ) -> Result<bool, CacheError> {
        let LockedEntry { entry, head } = locked;
        let root = entry.existing_directory(TREE)?;
        if check_tree(root.as_fd(), tree, content).is_some() {
            return Ok(false);
        }
        let facts = Facts {
            boot: self.directory.boot.clone(),
            ..head.clone()
        };
        let bytes = facts.with_tree(tree);
        let name = format!("{TREES}/{}/{FACTS}", content.hexadecimal());
        let names = self.directory.lock_names()?;
        self.directory.write_at(&names, &name, &bytes)?;
        Ok(true)
    }

    /// Lists the trees, the least recently used first.
    ///
    /// # Errors
    /// [`CacheError`].
    pub fn entries(&self) -> Result<Vec<EntryUse>, CacheError> {
        self.directory.entries()
    }

    /// Removes the tree `key`, unless it is in use, and returns whether it is gone.
    ///
    /// # Errors
    /// [`CacheError`].
    pub fn remove(&self, key: &str) -> Result<bool, CacheError> {
        self.directory.remove(key)
    }
}

impl CachedTree {
    fn without_list(tree: ListedTree) -> Self {
        let ListedTree { unpacked, in_use } = tree;
        Self {
            in_use,
            content_digest: unpacked.content_digest,
            bytes: unpacked.bytes,
            files: Some(unpacked.tree.file_count()),
            warnings: unpacked.warnings,
        }
    }
}

impl Record {
    fn warnings(&self) -> Vec<WarningReport> {
        let warnings = self.warnings.iter();
        warnings
            .map(|(code, message)| WarningReport::new(code, message.clone()))
            .collect()
    }
}

impl Owner {
    fn entry(&self) -> &OpenDirectory {
        match self {
            Self::Entry(entry) => entry,
            Self::Temporary(building) => &building.entry,
        }
    }
}

impl InUse {
    pub(super) fn new(owner: Owner) -> Result<Self, CacheError> {
        let tree = owner.entry().existing_directory(TREE)?;
        Ok(Self {
            path: tree.path().to_owned(),
            root: tree.into_descriptor(),
            owner,
        })
    }

    /// Whether the tree is kept for the next run.
    #[must_use]
    pub fn is_kept(&self) -> bool {
        matches!(self.owner, Owner::Entry(_))
    }

    /// Reads the list of the tree, which takes longer for a larger tree.
    ///
    /// # Errors
    /// [`CacheError::Damaged`]: the list is missing or invalid.
    pub fn tree(&self) -> Result<Tree, CacheError> {
        read_listing(self.owner.entry())?.ok_or_else(|| CacheError::Damaged {
            entry: escape_path(&self.path),
            problem: "has no valid list of its files".to_owned(),
        })
    }
}

pub(super) fn archive_name(bytes: u64, archive: &Digest, limits: &UnpackLimits) -> String {
    format!("{ARCHIVES}/{bytes}/{}", archive_key(archive, limits))
}
