//! Entries of a store: directories built in `building` and published by a rename. An entry is in use
//! while a process shares its lock. The least recently used ones are removed first.

use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::time::SystemTime;

use rustix::fs::{AtFlags, Mode};

use crate::directory::{BUILDING, NamesLock, StoreDirectory};
use crate::error::{CacheError, failed};
use crate::facts::{FACTS, Facts, last_use, read_body};
use crate::files::{InUseDirectory, OpenDirectory};
use spec::digest::Digest;

pub(crate) const TREES: &str = "trees";
pub(crate) const TREE: &str = "tree";
const TREE_MODE: u32 = 0o755;
/// Maximum of attempts to open an entry that another process replaces.
const ATTEMPTS_MAX: u32 = 8;
/// The facts of a keyed tree have this value instead of a boot.
const ANY_BOOT: &str = "written";

/// An entry that is being built. Dropping it before it is published removes it.
#[derive(Debug)]
pub struct Building {
    pub(crate) entry: OpenDirectory,
    tree: OpenDirectory,
    /// In the root of the store.
    name: String,
    is_published: bool,
}

/// An entry in use, with the first line of its facts.
#[derive(Debug)]
pub(crate) struct LockedEntry {
    pub(crate) entry: InUseDirectory,
    pub(crate) head: Facts,
}

/// A tree under a key of the caller, with a note. This value prevents its removal.
#[derive(Debug)]
pub struct KeyedTree {
    /// The directory that holds the tree.
    pub root: OwnedFd,
    /// Its path, free of links.
    pub path: PathBuf,
    /// Bytes of all files.
    pub bytes: u64,
    pub disk_bytes: u64,
    entry: InUseDirectory,
}

/// Data stored with a keyed tree.
#[derive(Debug, Clone, Copy)]
pub struct Label<'note> {
    /// Bytes of all files.
    pub bytes: u64,
    pub disk_bytes: u64,
    pub note: &'note [u8],
    /// Whether the caller verifies the tree on each use. Other trees are synced to disk before the
    /// rename.
    pub is_verified_on_use: bool,
}

/// An entry and its last use. The order is that of the last use.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct EntryUse {
    pub last_use: SystemTime,
    pub disk_bytes: u64,
    pub key: String,
}

/// What a collection removed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Collected {
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
        if !self.is_published {
            // Closing the descriptor releases the lock: the next sweep removes what is left.
            let _left = std::fs::remove_dir_all(self.entry.path());
        }
    }
}

impl LockedEntry {
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

    /// Returns the directory of the tree, and what keeps it.
    #[must_use]
    pub fn into_parts(self) -> (OwnedFd, InUseDirectory) {
        (self.root, self.entry)
    }

    fn new(locked: LockedEntry, tree: OpenDirectory) -> Self {
        Self {
            path: tree.path().to_owned(),
            root: tree.into_descriptor(),
            bytes: locked.head.bytes,
            disk_bytes: locked.head.disk_bytes,
            entry: locked.entry,
        }
    }
}

impl StoreDirectory {
    /// Begins an entry, after removing leftovers of killed processes.
    ///
    /// # Errors
    /// [`CacheError`].
    pub fn begin(&self) -> Result<Building, CacheError> {
        for part in [TREES, BUILDING] {
            self.root.make_directory(part)?;
        }
        let names = self.lock_names()?;
        self.sweep(&names)?;
        let name = self.draft_name()?;
        self.root.make_directory(&name)?;
        let entry = self.root.existing_directory(&name)?;
        entry.lock()?;
        entry.make_directory(TREE)?;
        let tree = entry.existing_directory(TREE)?;
        // The body sees this mode, so it must not depend on the umask.
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
            is_published: false,
        })
    }

    /// Finds the tree `key` and marks it as used now.
    ///
    /// # Errors
    /// [`CacheError`].
    pub fn find(&self, key: &Digest) -> Result<Option<KeyedTree>, CacheError> {
        let key = key.hexadecimal();
        let Some(locked) = self.lock_entry(&key)? else {
            return Ok(None);
        };
        let tree = if locked.head.boot == ANY_BOOT {
            locked.entry.directory(TREE)
        } else {
            Ok(None)
        };
        let tree = match tree {
            Err(error) if error.is_other_file() => None,
            tree => tree?,
        };
        let Some(tree) = tree else {
            self.discard_judged(&key, &locked.entry)?;
            return Ok(None);
        };
        locked.touch()?;
        Ok(Some(KeyedTree::new(locked, tree)))
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
            boot: ANY_BOOT.to_owned(),
            files: None,
        };
        let key = key.hexadecimal();
        let mut facts = head.line();
        facts.extend_from_slice(label.note);
        building.entry.write_new(FACTS, &facts)?;
        if !label.is_verified_on_use {
            rustix::fs::syncfs(&building.entry).map_err(failed("syncfs", building.entry.path()))?;
        }
        let names = self.lock_names()?;
        let entry = self.publish_entry(&names, building, &key, |existing| {
            Ok(Facts::read(existing, &key)?.is_some_and(|head| head.boot == ANY_BOOT))
        })?;
        drop(names);
        let tree = entry.existing_directory(TREE)?;
        Ok(KeyedTree::new(LockedEntry { entry, head }, tree))
    }

    /// Opens the entry `key` and marks it as in use. Removes an entry without valid facts.
    pub(crate) fn lock_entry(&self, key: &str) -> Result<Option<LockedEntry>, CacheError> {
        let name = format!("{TREES}/{key}");
        for _ in 0..ATTEMPTS_MAX {
            let Some(entry) = self.root.directory(&name)? else {
                return Ok(None);
            };
            let entry = InUseDirectory::new(entry)?;
            // Removed or replaced before it was locked.
            if !self.root.is_still(&*entry, &name)? {
                continue;
            }
            let Some(head) = Facts::read(&entry, key)? else {
                self.discard_judged(key, &entry)?;
                return Ok(None);
            };
            return Ok(Some(LockedEntry { entry, head }));
        }
        Ok(None)
    }

    /// Renames the built tree to the entry `key`, unless an entry that `is_valid` exists. The
    /// returned entry is in use.
    pub(crate) fn publish_entry(
        &self,
        _names: &NamesLock,
        mut building: Building,
        key: &str,
        is_valid: impl Fn(&OpenDirectory) -> Result<bool, CacheError>,
    ) -> Result<InUseDirectory, CacheError> {
        let name = format!("{TREES}/{key}");
        let existing = self.root.directory(&name)?;
        let is_valid = match &existing {
            Some(entry) => is_valid(entry)?,
            None => false,
        };
        let entry = match existing.filter(|_| is_valid) {
            Some(entry) => entry,
            None => {
                self.move_away(&name)?;
                self.root.rename(&building.name, &name)?;
                building.is_published = true;
                let descriptor = rustix::io::fcntl_dupfd_cloexec(&building.entry, 0)
                    .map_err(self.root.failed("fcntl", &name))?;
                OpenDirectory::new(descriptor, self.path().join(&name))
            }
        };
        // The conversion of the lock is not atomic (flock(2)), but removal needs the lock on the names.
        InUseDirectory::new(entry)
    }

    /// Removes the damaged entry `key`. Processes that use it keep it.
    ///
    /// # Errors
    /// [`CacheError`].
    pub fn discard(&self, key: &str) -> Result<(), CacheError> {
        let _names = self.lock_names()?;
        self.move_away(&format!("{TREES}/{key}"))
    }

    /// Removes the entry `key` as [`StoreDirectory::discard`], unless another process has replaced
    /// `judged`, which has a shared lock, by now.
    pub(crate) fn discard_judged(
        &self,
        key: &str,
        judged: &OpenDirectory,
    ) -> Result<(), CacheError> {
        judged.unlock()?;
        let _names = self.lock_names()?;
        let name = format!("{TREES}/{key}");
        if self.root.is_still(judged, &name)? {
            self.move_away(&name)?;
        }
        Ok(())
    }

    /// Removes an entry. An entry in use moves to `building`, where a later sweep removes it.
    /// Requires the lock on the names.
    fn move_away(&self, name: &str) -> Result<(), CacheError> {
        let Some(entry) = self.root.directory(name)? else {
            return Ok(());
        };
        let is_free = entry.try_lock()?;
        let away = self.draft_name()?;
        self.root.rename(name, &away)?;
        if is_free {
            self.root.remove(&away)?;
        }
        Ok(())
    }

    /// Lists the entries, the least recently used first.
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
            match (Facts::read(&entry, &key)?, last_use(&entry)) {
                (Some(Facts { disk_bytes, .. }), Ok(last_use)) => entries.push(EntryUse {
                    last_use,
                    disk_bytes,
                    key,
                }),
                _ => invalid.push(name),
            }
        }
        entries.sort();
        Ok((entries, invalid))
    }

    /// As [`StoreDirectory::entries`]. Removes entries without valid facts.
    fn valid_entries(&self, _names: &NamesLock) -> Result<Vec<EntryUse>, CacheError> {
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
        let _names = self.lock_names()?;
        let name = format!("{TREES}/{key}");
        let Some(entry) = self.root.directory(&name)? else {
            return Ok(true);
        };
        let is_free = entry.try_lock()?;
        if is_free {
            let away = self.draft_name()?;
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
        let entries = self.valid_entries(&self.lock_names()?)?;
        let sizes = entries.iter().map(|entry| entry.disk_bytes);
        let mut total = sizes.fold(0, u64::saturating_add);
        let mut removed = Collected::default();
        for entry in entries {
            if total <= size_bytes {
                break;
            }
            // Locks the names for each entry: together the removals may take minutes.
            if self.remove(&entry.key)? {
                total = total.saturating_sub(entry.disk_bytes);
                removed.trees += 1;
                removed.bytes = removed.bytes.saturating_add(entry.disk_bytes);
            }
        }
        Ok(removed)
    }
}
