//! Making trees: building, publishing, and what the indexes remember of them.

use std::os::fd::AsFd as _;

use rustix::fs::{AtFlags, Mode};
use rustix::io::Errno;

use crate::bundle::{Entry, Tree, UnpackLimits, Unpacked};
use crate::cache::error::{CacheError, failed};
use crate::cache::files::{
    Facts, facts_bytes, json, make_directory, open_tree, read_facts, write_new,
};
use crate::cache::identity::{Identity, archive_key, hexadecimal};
use crate::cache::store::{
    ARCHIVES, BUILDING, Building, Cache, FACTS, HeldTree, IDENTITIES, InUse, Record, TREE, TREES,
};
use crate::kernel::lock::{claim_file, share_file};

const TREE_MODE: u32 = 0o755;

impl Cache {
    /// Begins to make a tree, after what dead processes left was removed.
    ///
    /// # Errors
    /// [`CacheError`].
    pub fn begin(&self) -> Result<Building, CacheError> {
        for part in ["", TREES, ARCHIVES, IDENTITIES, BUILDING] {
            if !part.is_empty() {
                make_directory(&self.root, part, &self.path.join(part))?;
            }
        }
        let _names = self.lock_names()?;
        self.sweep()?;
        let name = self.draft()?;
        let path = self.path.join(&name);
        make_directory(&self.root, &name, &path)?;
        let entry = self
            .open_directory(&name)?
            .ok_or_else(|| failed("openat", &path)(Errno::NOENT))?;
        claim_file(entry.as_fd()).map_err(failed("flock", &path))?;
        rustix::fs::mkdirat(&entry, TREE, Mode::from_raw_mode(TREE_MODE))
            .map_err(failed("mkdirat", &path))?;
        let tree = open_tree(&entry, &path.join(TREE))?;
        // Whatever the mask of this process is: the body sees this mode.
        rustix::fs::chmodat(
            &entry,
            TREE,
            Mode::from_raw_mode(TREE_MODE),
            AtFlags::empty(),
        )
        .map_err(failed("fchmodat", &path))?;
        Ok(Building {
            entry,
            tree,
            path,
            published: false,
        })
    }

    /// Makes what was built an entry, unless one with that content is there already, and remembers
    /// the archive. A tree that is larger than the whole cache is used this once.
    ///
    /// # Errors
    /// [`CacheError`]; what was built is gone.
    pub fn publish(
        &self,
        mut building: Building,
        unpacked: Unpacked,
        archive_bytes: u64,
        limits: &UnpackLimits,
    ) -> Result<(HeldTree, Option<Record>), CacheError> {
        let content = unpacked.content_digest;
        let name = format!("{TREES}/{}", hexadecimal(&content));
        let path = self.path.join(&name);
        let facts = Facts {
            content: content.to_string(),
            bytes: unpacked.bytes,
            disk_bytes: disk_bytes(&unpacked.tree),
            boot: self.boot.clone(),
        };
        if self.size_bytes < facts.disk_bytes {
            return Ok((used_once(building, unpacked)?, None));
        }
        write_new(
            &building.entry,
            FACTS,
            &facts_bytes(&facts, &unpacked.tree, &path)?,
            &path,
        )?;
        let record = record_of(&unpacked);
        let names = self.lock_names()?;
        let there = self.open_directory(&name)?;
        let whole = match &there {
            Some(entry) => read_facts(entry, &path, &hexadecimal(&content))?
                .is_some_and(|(facts, _)| facts.boot == self.boot),
            None => false,
        };
        let entry = match there.filter(|_| whole) {
            Some(entry) => entry,
            None => {
                self.move_away(&name)?;
                rustix::fs::renameat(&self.root, building.name(&self.path), &self.root, &name)
                    .map_err(failed("renameat", &path))?;
                building.published = true;
                rustix::io::fcntl_dupfd_cloexec(&building.entry, 0)
                    .map_err(failed("fcntl", &path))?
            }
        };
        // Not at once, but nobody removes entries while the names are locked.
        share_file(entry.as_fd()).map_err(failed("flock", &path))?;
        self.remember_archive(archive_bytes, &unpacked, &record, limits)?;
        self.shrink()?;
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
        make_directory(&self.root, &of_size, &self.path.join(&of_size))?;
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
        let _names = self.lock_names()?;
        self.put(&format!("{IDENTITIES}/{}", identity.key(limits)), record)
    }

    fn put(&self, name: &str, record: &Record) -> Result<(), CacheError> {
        let path = self.path.join(name);
        let bytes = json(record, &path)?;
        let draft = self.draft()?;
        self.write(&draft, &bytes)?;
        rustix::fs::renameat(&self.root, &draft, &self.root, name)
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
            _entry: None,
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
fn disk_bytes(tree: &Tree) -> u64 {
    const PAGE_BYTES: u64 = 4096;
    const INODE_BYTES: u64 = 1024;
    let of_entry = |entry: &Entry| match entry {
        Entry::File { bytes, .. } => bytes.next_multiple_of(PAGE_BYTES),
        Entry::Directory | Entry::Symlink { .. } => 0,
    };
    let all = tree.iter().map(|(_, entry)| of_entry(entry) + INODE_BYTES);
    all.fold(INODE_BYTES, u64::saturating_add)
}
