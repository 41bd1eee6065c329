//! Entries of a store: directories built in `building` and published by a rename. An entry is in use
//! while a process shares its lock. The least recently used ones are removed first.

use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::time::SystemTime;

use rustix::fs::{AtFlags, Mode};

use crate::directory::{BUILDING, Names, StoreDirectory};
use crate::error::{CacheError, failed};
use crate::facts::{FACTS, Facts, read_body};
use crate::files::OpenDirectory;
use spec::digest::Digest;

pub(crate) const TREES: &str = "trees";
pub(crate) const TREE: &str = "tree";
const TREE_MODE: u32 = 0o755;
/// Maximum of attempts to open an entry that another process replaces.
const ATTEMPTS_MAX: u32 = 8;
/// Value in the facts of a keyed tree in place of a boot.
const WRITTEN: &str = "written";

/// An entry that is being built. Dropping it unpublished removes it.
#[derive(Debug)]
pub struct Building {
    pub(crate) entry: OpenDirectory,
    tree: OpenDirectory,
    /// In the root of the store.
    name: String,
    published: bool,
}

/// An entry in use, with the first line of its facts.
#[derive(Debug)]
pub(crate) struct HeldEntry {
    /// Its directory, with the lock.
    pub(crate) entry: OpenDirectory,
    pub(crate) head: Facts,
}

/// A tree under a key chosen by the caller, with a note. It is not removed while this value exists.
#[derive(Debug)]
pub struct KeyedTree {
    /// The directory that holds the tree.
    pub root: OwnedFd,
    /// Its path, free of links.
    pub path: PathBuf,
    /// Bytes of all files.
    pub bytes: u64,
    pub disk_bytes: u64,
    entry: OpenDirectory,
}

/// Data stored with a keyed tree.
#[derive(Debug, Clone, Copy)]
pub struct Label<'note> {
    /// Bytes of all files.
    pub bytes: u64,
    pub disk_bytes: u64,
    pub note: &'note [u8],
    /// Whether the caller verifies the tree on each use. Other trees cannot be verified, so they are
    /// synced to disk before the rename.
    pub is_verified_on_use: bool,
}

/// An entry and its last use; orders by that.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct EntryUse {
    pub used: SystemTime,
    pub disk_bytes: u64,
    pub key: String,
}

/// Result of a collection.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Collected {
    /// Trees that were not in use.
    pub trees: u64,
    pub bytes: u64,
}

impl Building {
    /// Returns the empty directory to unpack into.
    #[must_use]
    pub fn tree(&self) -> BorrowedFd<'_> {
        self.tree.as_fd()
    }

    /// Returns the same directory, with its path.
    #[must_use]
    pub fn directory(&self) -> &OpenDirectory {
        &self.tree
    }
}

impl Drop for Building {
    fn drop(&mut self) {
        if !self.published && std::fs::remove_dir_all(self.entry.path()).is_err() {
            // Closing the descriptor releases the lock: the next sweep removes the rest.
        }
    }
}

impl HeldEntry {
    /// Marks it as used now.
    pub(crate) fn touch(&self) -> Result<(), CacheError> {
        self.entry.touch(FACTS)
    }
}

impl KeyedTree {
    /// Reads the note.
    ///
    /// # Errors
    /// [`CacheError::Call`].
    pub fn note(&self) -> Result<Vec<u8>, CacheError> {
        Ok(read_body(&self.entry)?.unwrap_or_default())
    }

    /// Returns the directory of the tree, and the descriptor with the lock.
    #[must_use]
    pub fn into_parts(self) -> (OwnedFd, OwnedFd) {
        (self.root, self.entry.into_descriptor())
    }

    fn new(held: HeldEntry, tree: OpenDirectory) -> Self {
        Self {
            path: tree.path().to_owned(),
            root: tree.into_descriptor(),
            bytes: held.head.bytes,
            disk_bytes: held.head.disk_bytes,
            entry: held.entry,
        }
    }
}

impl StoreDirectory {
    /// Begins an entry. First removes leftovers of killed processes.
    ///
    /// # Errors
    /// [`CacheError`].
    pub fn begin(&self) -> Result<Building, CacheError> {
        for part in [TREES, BUILDING] {
            self.root.make_directory(part)?;
        }
        let names = self.lock_names()?;
        self.sweep(&names)?;
        let name = self.draft()?;
        self.root.make_directory(&name)?;
        let entry = self.root.existing_directory(&name)?;
        entry.claim()?;
        entry.make_directory(TREE)?;
        let tree = entry.existing_directory(TREE)?;
        // Independent of the umask: the body sees this mode.
        rustix::fs::chmodat(
            &entry,
            TREE,
            Mode::from_raw_mode(TREE_MODE),
            AtFlags::empty(),
        )
        .map_err(entry.failed("fchmodat", TREE))?;
        Ok(Building {
            entry,
            tree,
            name,
            published: false,
        })
    }

    /// Finds the tree `key` and marks it as used now.
    ///
    /// # Errors
    /// [`CacheError`].
    pub fn find(&self, key: &Digest) -> Result<Option<KeyedTree>, CacheError> {
        let key = key.hexadecimal();
        let Some(held) = self.hold(&key)? else {
            return Ok(None);
        };
        let tree = match held.head.boot == WRITTEN {
            true => held.entry.directory(TREE),
            false => Ok(None),
        };
        let tree = match tree {
            Err(error) if error.is_other_file() => None,
            tree => tree?,
        };
        let Some(tree) = tree else {
            drop(held);
            self.discard(&key)?;
            return Ok(None);
        };
        held.touch()?;
        Ok(Some(KeyedTree::new(held, tree)))
    }

    /// Publishes the built tree as `key`, unless it exists already.
    ///
    /// # Errors
    /// [`CacheError`]; the built tree is removed.
    pub fn publish(
        &self,
        building: Building,
        key: &Digest,
        label: Label<'_>,
    ) -> Result<KeyedTree, CacheError> {
        let head = Facts {
            content: *key,
            bytes: label.bytes,
            disk_bytes: label.disk_bytes,
            boot: WRITTEN.to_owned(),
            files: None,
        };
        let key = key.hexadecimal();
        let facts = head.with_body(&building.entry, label.note)?;
        building.entry.write_new(FACTS, &facts)?;
        if !label.is_verified_on_use {
            rustix::fs::syncfs(&building.entry).map_err(failed("syncfs", building.entry.path()))?;
        }
        let names = self.lock_names()?;
        let entry = self.place(&names, building, &key, |existing| {
            Ok(Facts::read(existing, &key)?.is_some_and(|head| head.boot == WRITTEN))
        })?;
        drop(names);
        let tree = entry.existing_directory(TREE)?;
        Ok(KeyedTree::new(HeldEntry { entry, head }, tree))
    }

    /// Opens the entry `key` and marks it as in use. Removes one without valid facts.
    pub(crate) fn hold(&self, key: &str) -> Result<Option<HeldEntry>, CacheError> {
        let name = format!("{TREES}/{key}");
        for _ in 0..ATTEMPTS_MAX {
            let Some(entry) = self.root.directory(&name)? else {
                return Ok(None);
            };
            entry.share()?;
            // Removed or replaced before it was locked.
            if !self.root.is_still(&entry, &name)? {
                continue;
            }
            let Some(head) = Facts::read(&entry, key)? else {
                drop(entry);
                self.discard(key)?;
                return Ok(None);
            };
            return Ok(Some(HeldEntry { entry, head }));
        }
        Ok(None)
    }

    /// Renames the built tree to the entry `key`, unless one that `is_whole` exists. The entry
    /// is then in use.
    pub(crate) fn place(
        &self,
        _names: &Names,
        mut building: Building,
        key: &str,
        is_whole: impl Fn(&OpenDirectory) -> Result<bool, CacheError>,
    ) -> Result<OpenDirectory, CacheError> {
        let name = format!("{TREES}/{key}");
        let existing = self.root.directory(&name)?;
        let is_whole = match &existing {
            Some(entry) => is_whole(entry)?,
            None => false,
        };
        let entry = match existing.filter(|_| is_whole) {
            Some(entry) => entry,
            None => {
                self.move_away(&name)?;
                self.root.rename(&building.name, &name)?;
                building.published = true;
                let descriptor = rustix::io::fcntl_dupfd_cloexec(&building.entry, 0)
                    .map_err(self.root.failed("fcntl", &name))?;
                OpenDirectory::new(descriptor, self.path().join(&name))
            }
        };
        // Converting the lock is not atomic, but removal needs the lock on the names.
        entry.share()?;
        Ok(entry)
    }

    /// Removes the damaged entry `key`; current users keep it.
    ///
    /// # Errors
    /// [`CacheError`].
    pub fn discard(&self, key: &str) -> Result<(), CacheError> {
        let _names = self.lock_names()?;
        self.move_away(&format!("{TREES}/{key}"))
    }

    /// Moves an entry out of the way. Requires the lock on the names. An entry in use stays in
    /// `building` until a later sweep.
    fn move_away(&self, name: &str) -> Result<(), CacheError> {
        let Some(entry) = self.root.directory(name)? else {
            return Ok(());
        };
        let is_free = entry.try_claim()?;
        let away = self.draft()?;
        self.root.rename(name, &away)?;
        match is_free {
            true => self.root.remove(&away),
            false => Ok(()),
        }
    }

    /// Lists the entries, the least recently used first. Writes nothing.
    ///
    /// # Errors
    /// [`CacheError`].
    pub fn entries(&self) -> Result<Vec<EntryUse>, CacheError> {
        Ok(self.scan()?.0)
    }

    /// Lists the entries, the least recently used first, and the names of those without valid facts.
    fn scan(&self) -> Result<(Vec<EntryUse>, Vec<String>), CacheError> {
        let (mut entries, mut invalid) = (Vec::new(), Vec::new());
        for key in self.root.names(TREES)? {
            let name = format!("{TREES}/{key}");
            let Some(entry) = self.root.directory(&name)? else {
                continue;
            };
            let used = std::fs::metadata(entry.path().join(FACTS));
            let used = used.and_then(|status| status.modified());
            match (Facts::read(&entry, &key)?, used) {
                (Some(Facts { disk_bytes, .. }), Ok(used)) => entries.push(EntryUse {
                    used,
                    disk_bytes,
                    key,
                }),
                _ => invalid.push(name),
            }
        }
        entries.sort();
        Ok((entries, invalid))
    }

    /// As [`StoreDirectory::entries`]; removes those without valid facts.
    fn valid_entries(&self, _names: &Names) -> Result<Vec<EntryUse>, CacheError> {
        let (entries, invalid) = self.scan()?;
        for name in invalid {
            self.move_away(&name)?;
        }
        Ok(entries)
    }

    /// Removes the entry `key`, unless it is in use, and returns whether it is gone.
    ///
    /// # Errors
    /// [`CacheError`].
    pub fn remove(&self, key: &str) -> Result<bool, CacheError> {
        self.remove_unused(&self.lock_names()?, key)
    }

    fn remove_unused(&self, _names: &Names, key: &str) -> Result<bool, CacheError> {
        let name = format!("{TREES}/{key}");
        let Some(entry) = self.root.directory(&name)? else {
            return Ok(true);
        };
        let is_free = entry.try_claim()?;
        if is_free {
            let away = self.draft()?;
            self.root.rename(&name, &away)?;
            self.root.remove(&away)?;
        }
        Ok(is_free)
    }

    /// Removes the garbage of killed processes, entries without valid facts, and directories of
    /// other versions of the layout.
    ///
    /// # Errors
    /// [`CacheError`].
    pub fn tidy(&self) -> Result<(), CacheError> {
        let names = self.lock_names()?;
        self.sweep(&names)?;
        self.valid_entries(&names)?;
        self.remove_other_versions()
    }

    /// Removes unused entries, the least recently used first, until the rest fits `size_bytes`.
    ///
    /// # Errors
    /// [`CacheError`].
    pub fn shrink(&self, size_bytes: u64) -> Result<Collected, CacheError> {
        self.shrink_to(&self.lock_names()?, size_bytes)
    }

    pub(crate) fn shrink_to(
        &self,
        names: &Names,
        size_bytes: u64,
    ) -> Result<Collected, CacheError> {
        let entries = self.valid_entries(names)?;
        let sizes = entries.iter().map(|entry| entry.disk_bytes);
        let mut total = sizes.fold(0, u64::saturating_add);
        let mut removed = Collected::default();
        for entry in entries {
            if total <= size_bytes {
                break;
            }
            if self.remove_unused(names, &entry.key)? {
                total = total.saturating_sub(entry.disk_bytes);
                removed.trees += 1;
                removed.bytes = removed.bytes.saturating_add(entry.disk_bytes);
            }
        }
        Ok(removed)
    }
}
