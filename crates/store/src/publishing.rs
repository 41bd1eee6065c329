//! Adds trees to the cache of bundles, and removes trees and entries of its indexes.

use std::collections::BTreeSet;
use std::time::SystemTime;

use rustix::fs::AtFlags;
use rustix::io::Errno;

use crate::cache::{
    ARCHIVES, Cache, IDENTITIES, InUse, ListedTree, Owner, RECORD_BYTES_MAX, Record, archive_name,
};
use crate::directory::NamesLock;
use crate::entries::{Building, Collected, TREES};
use crate::error::CacheError;
use crate::facts::{FACTS, Facts};
use crate::files::json;
use crate::identity::Identity;
use archive::{Entry, Tree, UnpackLimits, Unpacked};

/// Maximum number of archives recorded by the identity of their file; each takes a page.
const IDENTITIES_MAX: usize = 4096;

impl Cache {
    /// Begins a tree, after removing leftovers of killed processes.
    ///
    /// # Errors
    /// [`CacheError`].
    pub fn begin(&self) -> Result<Building, CacheError> {
        for part in [ARCHIVES, IDENTITIES] {
            self.directory.root.make_directory(part)?;
        }
        self.directory.begin()
    }

    /// Publishes the built tree, unless a tree with that content exists, and records the digest of its
    /// archive. A tree larger than the size limit of the cache is used once and not kept.
    ///
    /// # Errors
    /// [`CacheError`]; the built tree is removed.
    pub fn publish(
        &self,
        building: Building,
        unpacked: Unpacked,
        archive_bytes: u64,
        limits: &UnpackLimits,
    ) -> Result<(ListedTree, Option<Record>), CacheError> {
        let content = unpacked.content_digest;
        let key = content.hexadecimal();
        let facts = Facts {
            content,
            bytes: unpacked.bytes,
            disk_bytes: disk_bytes(&unpacked.tree),
            boot: self.directory.boot.clone(),
            files: Some(unpacked.tree.file_count()),
        };
        let bytes = facts.with_tree(&unpacked.tree);
        building.entry.write_new(FACTS, &bytes)?;
        if facts.disk_bytes > self.size_bytes {
            let in_use = InUse::new(Owner::Temporary(building))?;
            return Ok((ListedTree { unpacked, in_use }, None));
        }
        let record = Record::of(&unpacked);
        let names = self.directory.lock_names()?;
        let entry = self
            .directory
            .publish_entry(&names, building, &key, |existing| {
                Ok(Facts::read_with_tree(existing, &key)?
                    .is_some_and(|(facts, _)| facts.boot == self.directory.boot))
            })?;
        if let Some(record) = &record {
            let by_size = format!("{ARCHIVES}/{archive_bytes}");
            self.directory.root.make_directory(&by_size)?;
            let name = archive_name(archive_bytes, &record.archive, limits);
            self.put(&names, &name, record)?;
        }
        drop(names);
        let unpacked = Unpacked {
            // As a later use of the tree reports them.
            entries: unpacked.tree.len() as u64,
            ..unpacked
        };
        let in_use = InUse::new(Owner::Entry(entry))?;
        self.shrink()?;
        Ok((ListedTree { unpacked, in_use }, record))
    }

    /// Records which archive the file with this identity is.
    ///
    /// # Errors
    /// [`CacheError::Call`].
    pub fn remember(
        &self,
        identity: &Identity,
        record: &Record,
        limits: &UnpackLimits,
    ) -> Result<(), CacheError> {
        let names = self.directory.lock_names()?;
        let name = format!("{IDENTITIES}/{}", identity.key(limits));
        self.put(&names, &name, record)
    }

    fn put(&self, names: &NamesLock, name: &str, record: &Record) -> Result<(), CacheError> {
        self.directory.write_at(names, name, &json(record))
    }

    /// Removes unused trees, the least recently used first, until the rest fits, and their index
    /// entries.
    fn shrink(&self) -> Result<(), CacheError> {
        let removed = self.directory.shrink(self.size_bytes)?;
        if removed.trees > 0 || self.directory.root.names(IDENTITIES)?.len() > IDENTITIES_MAX {
            self.shrink_indexes()?;
        }
        Ok(())
    }

    /// Removes index entries without a tree, and the older half of more than [`IDENTITIES_MAX`]
    /// identities.
    fn shrink_indexes(&self) -> Result<(), CacheError> {
        let _names = self.directory.lock_names()?;
        let root = &self.directory.root;
        let trees: BTreeSet<String> = root.names(TREES)?.into_iter().collect();
        let has_tree = |name: &str| -> Result<bool, CacheError> {
            let record = root.read(name, RECORD_BYTES_MAX)?;
            let record: Option<Record> =
                record.and_then(|bytes| serde_json::from_slice(&bytes).ok());
            Ok(record.is_some_and(|record| trees.contains(&record.content.hexadecimal())))
        };
        for size in root.names(ARCHIVES)? {
            let by_size = format!("{ARCHIVES}/{size}");
            for key in root.names(&by_size)? {
                let name = format!("{by_size}/{key}");
                if !has_tree(&name)? {
                    root.unlink(&name)?;
                }
            }
            match rustix::fs::unlinkat(root, &by_size, AtFlags::REMOVEDIR) {
                Ok(()) | Err(Errno::NOTEMPTY | Errno::NOENT) => (),
                Err(errno) => return Err(root.failed("unlinkat", &by_size)(errno)),
            }
        }
        let mut kept: Vec<(SystemTime, String)> = Vec::new();
        for key in root.names(IDENTITIES)? {
            let name = format!("{IDENTITIES}/{key}");
            let written = std::fs::metadata(root.path().join(&name));
            let written = written.and_then(|status| status.modified());
            match (has_tree(&name)?, written) {
                (true, Ok(written)) => kept.push((written, name)),
                _ => root.unlink(&name)?,
            }
        }
        if kept.len() > IDENTITIES_MAX {
            kept.sort();
            for (_, name) in &kept[..kept.len() / 2] {
                root.unlink(name)?;
            }
        }
        Ok(())
    }

    /// Removes garbage and unused trees: all trees if `all`, else until the cache fits its size limit.
    ///
    /// # Errors
    /// [`CacheError`].
    pub fn collect(&self, all: bool) -> Result<Collected, CacheError> {
        self.directory.sweep(&self.directory.lock_names()?)?;
        let size_bytes = if all { 0 } else { self.size_bytes };
        let removed = self.directory.shrink(size_bytes)?;
        self.shrink_indexes()?;
        self.directory.remove_other_versions()?;
        Ok(removed)
    }
}

impl Record {
    /// Returns `None` for a tree that does not come from an archive.
    fn of(unpacked: &Unpacked) -> Option<Self> {
        let warnings = unpacked.warnings.iter();
        Some(Self {
            archive: unpacked.archive_digest?,
            content: unpacked.content_digest,
            warnings: warnings
                .map(|warning| (warning.code.clone(), warning.message.clone()))
                .collect(),
        })
    }
}

/// Estimates the size of a tree on disk: files in whole pages, and 1 KiB for each inode.
#[must_use]
pub fn disk_bytes(tree: &Tree) -> u64 {
    const PAGE_BYTES: u64 = 4096;
    const INODE_BYTES: u64 = 1024;
    let content_bytes = |entry: &Entry| match entry {
        Entry::File { bytes, .. } => bytes.next_multiple_of(PAGE_BYTES),
        Entry::Directory | Entry::Symlink { .. } => 0,
    };
    tree.iter()
        .map(|(_, entry)| content_bytes(entry) + INODE_BYTES)
        .fold(INODE_BYTES, u64::saturating_add)
}
