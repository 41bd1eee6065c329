//! Contents of the store and garbage collection, least recently used first.

use std::os::fd::AsFd as _;
use std::time::SystemTime;

use rustix::fs::OFlags;

use crate::oci::store::names::file_of;
use crate::oci::store::{
    BLOBS, LAYER_RULES, LAYERS, PARTIAL, PREPARED, SNAPSHOTS, Store, StoreError, blob_name,
};
use spec::digest::Digest;
use store::{EntryUse, NamesLock};
use sys::lock::try_claim_file;

/// What [`Store::gc`] removed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Gone {
    /// Includes abandoned downloads.
    pub blobs: u64,
    pub trees: u64,
    pub bytes: u64,
}

/// A named manifest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listed {
    pub name: String,
    pub digest: Digest,
    pub used: SystemTime,
}

#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Removable {
    used: SystemTime,
    bytes: u64,
    part: &'static str,
    name: String,
}

impl Store {
    /// Lists the named manifests in the store, most recently used first.
    ///
    /// # Errors
    /// [`StoreError::Cache`].
    pub fn list(&self) -> Result<Vec<Listed>, StoreError> {
        let mut listed = Vec::new();
        for (name, digest) in self.names()? {
            let path = self.path().join(blob_name(&digest));
            if let Ok(used) = std::fs::metadata(path).and_then(|status| status.modified()) {
                listed.push(Listed { name, digest, used });
            }
        }
        listed.sort_by_key(|one| std::cmp::Reverse(one.used));
        Ok(listed)
    }

    /// Returns the size of the whole store in bytes.
    ///
    /// # Errors
    /// [`StoreError::Cache`].
    pub fn used_bytes(&self) -> Result<u64, StoreError> {
        let all = self.removable()?;
        Ok(all.iter().fold(0, |sum, one| one.bytes.saturating_add(sum)))
    }

    /// Removes garbage and unused objects: all if `all`, else until the store fits its size
    /// limit.
    ///
    /// # Errors
    /// [`StoreError::Cache`].
    pub fn gc(&self, all: bool) -> Result<Gone, StoreError> {
        let names = self.directory.lock_names()?;
        self.directory.sweep(&names)?;
        let gone = self.shrink_to(&names, if all { 0 } else { self.size_bytes })?;
        self.forget_names()?;
        if self.is_made(SNAPSHOTS) {
            self.snapshots()?.collect(false)?;
        }
        for part in [LAYERS, PREPARED] {
            if self.is_made(part) {
                self.directory.below(part, LAYER_RULES)?.tidy()?;
            }
        }
        self.directory.remove_other_versions()?;
        Ok(gone)
    }

    /// Removes `name`, and those of the blobs and the snapshot that are not in use.
    ///
    /// # Errors
    /// [`StoreError::Cache`].
    pub fn forget(
        &self,
        name: &str,
        blobs: &[Digest],
        snapshot: Option<&Digest>,
    ) -> Result<Gone, StoreError> {
        let names = self.directory.lock_names()?;
        self.forget_name(&file_of(name))?;
        let mut gone = Gone::default();
        for one in self.removable()? {
            let is_named = |digest: &Digest| digest.hexadecimal() == one.name;
            let (goes, count) = match one.part {
                BLOBS => (blobs.iter().any(is_named), &mut gone.blobs),
                SNAPSHOTS => (snapshot.is_some_and(is_named), &mut gone.trees),
                _ => continue,
            };
            if goes && self.remove_unused(&names, &one)? {
                *count += 1;
                gone.bytes = gone.bytes.saturating_add(one.bytes);
            }
        }
        Ok(gone)
    }

    /// Shrinks the store to its size limit after a tree was added.
    ///
    /// # Errors
    /// [`StoreError::Cache`].
    pub fn settle(&self) -> Result<(), StoreError> {
        self.shrink(&self.directory.lock_names()?)
    }

    pub(super) fn shrink(&self, names: &NamesLock) -> Result<(), StoreError> {
        let gone = self.shrink_to(names, self.size_bytes)?;
        match gone.blobs {
            0 => Ok(()),
            _ => self.forget_names(),
        }
    }

    fn shrink_to(&self, names: &NamesLock, size_bytes: u64) -> Result<Gone, StoreError> {
        let mut all = self.removable()?;
        all.sort();
        let mut total = all
            .iter()
            .fold(0, |sum: u64, one| sum.saturating_add(one.bytes));
        let mut gone = Gone::default();
        for one in all {
            if total <= size_bytes {
                break;
            }
            if !self.remove_unused(names, &one)? {
                continue;
            }
            total = total.saturating_sub(one.bytes);
            gone.bytes = gone.bytes.saturating_add(one.bytes);
            match one.part {
                BLOBS | PARTIAL => gone.blobs += 1,
                _ => gone.trees += 1,
            }
        }
        Ok(gone)
    }

    fn removable(&self) -> Result<Vec<Removable>, StoreError> {
        let mut all = Vec::new();
        for part in [BLOBS, PARTIAL] {
            for name in self.directory.root().names(part)? {
                let status = std::fs::symlink_metadata(self.path().join(part).join(&name));
                // Another process removed or finished it.
                let Ok(status) = status else { continue };
                all.push(Removable {
                    used: status.modified().unwrap_or(SystemTime::UNIX_EPOCH),
                    bytes: status.len(),
                    part,
                    name,
                });
            }
        }
        for part in [SNAPSHOTS, LAYERS, PREPARED] {
            if !self.is_made(part) {
                continue;
            }
            let trees = match part {
                SNAPSHOTS => self.snapshots()?.entries()?,
                _ => self.directory.below(part, LAYER_RULES)?.entries()?,
            };
            let removable = |tree: EntryUse| Removable {
                used: tree.last_use,
                bytes: tree.disk_bytes,
                part,
                name: tree.key,
            };
            all.extend(trees.into_iter().map(removable));
        }
        Ok(all)
    }

    /// Returns `false` if it is in use.
    fn remove_unused(&self, _names: &NamesLock, one: &Removable) -> Result<bool, StoreError> {
        let key = &one.name;
        match one.part {
            BLOBS | PARTIAL => (),
            SNAPSHOTS => return Ok(self.snapshots()?.remove(key)?),
            part => return Ok(self.directory.below(part, LAYER_RULES)?.remove(key)?),
        }
        let root = self.directory.root();
        let name = format!("{}/{key}", one.part);
        let Some(file) = root.file(&name, OFlags::RDONLY)? else {
            return Ok(true);
        };
        let is_free = try_claim_file(file.as_fd()).map_err(root.failed("flock", &name))?;
        if is_free {
            root.unlink(&name)?;
        }
        Ok(is_free)
    }

    fn is_made(&self, part: &str) -> bool {
        self.path().join(part).exists()
    }
}
