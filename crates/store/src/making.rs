//! Making trees: building, publishing, and what the indexes remember of them.

use crate::error::{CacheError, failed};
use crate::files::{Facts, facts_bytes, json, make_directory, open_tree, read_facts, write_new};
use crate::identity::{Identity, archive_key, hexadecimal};
use crate::shelf::{Building, FACTS, TREE, TREES};
use crate::store::{ARCHIVES, Cache, HeldTree, IDENTITIES, InUse, Record};
use archive::{Entry, Tree, UnpackLimits, Unpacked};

impl Cache {
    /// Begins to make a tree, after what dead processes left was removed.
    ///
    /// # Errors
    /// [`CacheError`].
    pub fn begin(&self) -> Result<Building, CacheError> {
        for part in [ARCHIVES, IDENTITIES] {
            make_directory(&self.shelf.root, part, &self.shelf.path.join(part))?;
        }
        self.shelf.begin()
    }

    /// Makes what was built an entry, unless one with that content is there already, and remembers
    /// the archive. A tree that is larger than the whole cache is used this once.
    ///
    /// # Errors
    /// [`CacheError`]; what was built is gone.
    pub fn publish(
        &self,
        building: Building,
        unpacked: Unpacked,
        archive_bytes: u64,
        limits: &UnpackLimits,
    ) -> Result<(HeldTree, Option<Record>), CacheError> {
        let content = unpacked.content_digest;
        let key = hexadecimal(&content);
        let path = self.shelf.path.join(format!("{TREES}/{key}"));
        let facts = Facts {
            content: content.to_string(),
            bytes: unpacked.bytes,
            disk_bytes: disk_bytes(&unpacked.tree),
            boot: self.shelf.boot.clone(),
            files: Some(unpacked.tree.file_count()),
        };
        write_new(
            &building.entry,
            FACTS,
            &facts_bytes(&facts, &unpacked.tree, &path)?,
            &path,
        )?;
        if self.size_bytes < facts.disk_bytes {
            return Ok((used_once(building, unpacked)?, None));
        }
        let record = record_of(&unpacked);
        let names = self.shelf.lock_names()?;
        let entry = self.shelf.place(&names, building, &key, |there| {
            Ok(read_facts(there, &path, &key)?
                .is_some_and(|(facts, _)| facts.boot == self.shelf.boot))
        })?;
        self.remember_archive(archive_bytes, &unpacked, &record, limits)?;
        self.shrink(&names)?;
        drop(names);
        let Unpacked {
            archive_digest,
            warnings,
            tree,
            ..
        } = unpacked;
        let mut held = self.held(entry, &path, &content, &facts, tree)?;
        held.unpacked.archive_digest = archive_digest;
        held.unpacked.warnings = warnings;
        Ok((held, Some(record)))
    }

    fn remember_archive(
        &self,
        archive_bytes: u64,
        unpacked: &Unpacked,
        record: &Record,
        limits: &UnpackLimits,
    ) -> Result<(), CacheError> {
        let Some(archive) = &unpacked.archive_digest else {
            return Ok(());
        };
        let of_size = format!("{ARCHIVES}/{archive_bytes}");
        make_directory(&self.shelf.root, &of_size, &self.shelf.path.join(&of_size))?;
        self.put(
            &format!("{of_size}/{}", archive_key(archive, limits)),
            record,
        )
    }

    /// Remembers that the file with this identity holds that archive.
    ///
    /// # Errors
    /// [`CacheError::Call`].
    pub fn remember(
        &self,
        identity: &Identity,
        record: &Record,
        limits: &UnpackLimits,
    ) -> Result<(), CacheError> {
        // What is being written has no lock of its own: nobody sweeps while the names are locked.
        let _names = self.shelf.lock_names()?;
        self.put(&format!("{IDENTITIES}/{}", identity.key(limits)), record)
    }

    fn put(&self, name: &str, record: &Record) -> Result<(), CacheError> {
        let path = self.shelf.path.join(name);
        let bytes = json(record, &path)?;
        let draft = self.shelf.draft()?;
        self.shelf.write(&draft, &bytes)?;
        rustix::fs::renameat(&self.shelf.root, &draft, &self.shelf.root, name)
            .map_err(failed("renameat", &path))
    }
}

fn used_once(building: Building, unpacked: Unpacked) -> Result<HeldTree, CacheError> {
    let path = building.path.join(TREE);
    Ok(HeldTree {
        unpacked,
        in_use: InUse {
            root: open_tree(&building.entry, &path)?,
            path,
            building: Some(building),
            entry: None,
        },
    })
}

fn record_of(unpacked: &Unpacked) -> Record {
    let archive = unpacked.archive_digest.as_ref();
    Record {
        archive: archive.map(ToString::to_string).unwrap_or_default(),
        content: unpacked.content_digest.to_string(),
        warnings: unpacked
            .warnings
            .iter()
            .map(|warning| (warning.code.clone(), warning.message.clone()))
            .collect(),
    }
}

/// What a tree takes: files in whole pages, and about 1 KiB for each inode.
#[must_use]
pub fn disk_bytes(tree: &Tree) -> u64 {
    const PAGE_BYTES: u64 = 4096;
    const INODE_BYTES: u64 = 1024;
    let of_entry = |entry: &Entry| match entry {
        Entry::File { bytes, .. } => bytes.next_multiple_of(PAGE_BYTES),
        Entry::Directory | Entry::Symlink { .. } => 0,
    };
    let all = tree.iter().map(|(_, entry)| of_entry(entry) + INODE_BYTES);
    all.fold(INODE_BYTES, u64::saturating_add)
}
