//! Contents of the store and garbage collection, least recently used first.

use std::os::fd::AsFd as _;
use std::time::SystemTime;

use rustix::fs::OFlags;

use crate::oci::store::names::file_of;
use crate::oci::store::{
    BLOBS, LAYER_RULES, LAYERS, PARTIAL, PREPARED, SNAPSHOTS, Store, StoreError, blob_name,
};
use spec::digest::Digest;
use store::EntryUse;
use sys::lock::try_claim_file;

/// Objects that were removed from the store.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Removed {
    /// Includes abandoned downloads.
    pub blobs: u64,
    pub trees: u64,
    pub bytes: u64,
}

/// A manifest with a name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamedManifest {
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
    pub fn list(&self) -> Result<Vec<NamedManifest>, StoreError> {
        let mut manifests = Vec::new();
        for (name, digest) in self.names()? {
            let path = self.path().join(blob_name(&digest));
            if let Ok(used) = std::fs::metadata(path).and_then(|status| status.modified()) {
                manifests.push(NamedManifest { name, digest, used });
            }
        }
        manifests.sort_by_key(|manifest| std::cmp::Reverse(manifest.used));
        Ok(manifests)
    }

    /// Returns the size of the whole store in bytes.
    pub fn used_bytes(&self) -> Result<u64, StoreError> {
        Ok(total_bytes(&self.removable()?))
    }

    /// Removes garbage and unused objects: all if `all`, else the least recently used until the
    /// size limit is met.
    pub fn gc(&self, all: bool) -> Result<Removed, StoreError> {
        self.directory.sweep(&self.directory.lock_names()?)?;
        let removed = self.shrink_to(if all { 0 } else { self.size_bytes })?;
        self.remove_stale_names()?;
        if self.has_part(SNAPSHOTS) {
            self.snapshots()?.collect(false)?;
        }
        for part in [LAYERS, PREPARED] {
            if self.has_part(part) {
                self.directory.below(part, LAYER_RULES)?.tidy()?;
            }
        }
        self.directory.remove_other_versions()?;
        Ok(removed)
    }

    /// Removes `name`, and the blobs and the snapshot unless they are in use.
    pub fn remove(
        &self,
        name: &str,
        blobs: &[Digest],
        snapshot: Option<&Digest>,
    ) -> Result<Removed, StoreError> {
        self.remove_name(&file_of(name))?;
        let mut removed = Removed::default();
        for one in self.removable()? {
            let is_named = |digest: &Digest| digest.hexadecimal() == one.name;
            let (is_selected, count) = match one.part {
                BLOBS => (blobs.iter().any(is_named), &mut removed.blobs),
                SNAPSHOTS => (snapshot.is_some_and(is_named), &mut removed.trees),
                _ => continue,
            };
            if is_selected && self.remove_unused(&one)? {
                *count += 1;
                removed.bytes = removed.bytes.saturating_add(one.bytes);
            }
        }
        Ok(removed)
    }

    /// Shrinks the store to its size limit. Call it after a tree was added.
    pub fn enforce_size_limit(&self) -> Result<(), StoreError> {
        let removed = self.shrink_to(self.size_bytes)?;
        if removed.blobs > 0 {
            self.remove_stale_names()?;
        }
        Ok(())
    }

    fn shrink_to(&self, size_bytes: u64) -> Result<Removed, StoreError> {
        let mut all = self.removable()?;
        all.sort();
        let mut total = total_bytes(&all);
        let mut removed = Removed::default();
        for one in all {
            if total <= size_bytes {
                break;
            }
            if !self.remove_unused(&one)? {
                continue;
            }
            total = total.saturating_sub(one.bytes);
            removed.bytes = removed.bytes.saturating_add(one.bytes);
            match one.part {
                BLOBS | PARTIAL => removed.blobs += 1,
                _ => removed.trees += 1,
            }
        }
        Ok(removed)
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
            if !self.has_part(part) {
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

    /// Returns whether it was removed: `false` if it is in use. Locks the names for this object
    /// alone, since many removals may take minutes.
    fn remove_unused(&self, one: &Removable) -> Result<bool, StoreError> {
        let key = &one.name;
        match one.part {
            BLOBS | PARTIAL => (),
            SNAPSHOTS => return Ok(self.snapshots()?.remove(key)?),
            part => return Ok(self.directory.below(part, LAYER_RULES)?.remove(key)?),
        }
        let _names = self.directory.lock_names()?;
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

    fn has_part(&self, part: &str) -> bool {
        self.path().join(part).exists()
    }
}

fn total_bytes(all: &[Removable]) -> u64 {
    all.iter().fold(0, |sum, one| sum.saturating_add(one.bytes))
}
