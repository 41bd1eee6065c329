//! Trees that are found by a key of their maker's own, with a note of his: layers of images.
//!
//! Nobody could verify one against its key without making it anew, so that it is written to the
//! disk before it gets its name: one of an earlier boot is as good as one of this boot.

use std::os::fd::{AsFd as _, OwnedFd};
use std::path::PathBuf;

use crate::error::{CacheError, failed};
use crate::files::{Facts, json, open_tree, read_body, read_head, write_new};
use crate::identity::hexadecimal;
use crate::shelf::{Building, FACTS, HeldEntry, Shelf, TREE, TREES};
use spec::digest::Digest;

/// What the facts of such a tree name instead of a boot.
const WRITTEN: &str = "written";

/// A tree in use: nobody removes it while this lives.
#[derive(Debug)]
pub struct OnShelf {
    /// The directory that holds the tree.
    pub root: OwnedFd,
    /// Its path, free of links.
    pub path: PathBuf,
    /// Bytes of all files.
    pub bytes: u64,
    pub disk_bytes: u64,
    entry: OwnedFd,
}

impl OnShelf {
    /// The note of whoever made it.
    ///
    /// # Errors
    /// [`CacheError::Call`].
    pub fn note(&self) -> Result<Vec<u8>, CacheError> {
        Ok(read_body(&self.entry, &self.path)?.unwrap_or_default())
    }

    fn of(held: HeldEntry) -> Result<Self, CacheError> {
        let HeldEntry { entry, path, head } = held;
        let path = path.join(TREE);
        Ok(Self {
            root: open_tree(&entry, &path)?,
            path,
            bytes: head.bytes,
            disk_bytes: head.disk_bytes,
            entry,
        })
    }
}

impl Shelf {
    /// The tree `key`, marked as used now.
    ///
    /// # Errors
    /// [`CacheError`].
    pub fn held(&self, key: &Digest) -> Result<Option<OnShelf>, CacheError> {
        let key = hexadecimal(key);
        let Some(held) = self.hold(&key)? else {
            return Ok(None);
        };
        if held.head.boot != WRITTEN {
            drop(held);
            self.discard(&format!("{TREES}/{key}"))?;
            return Ok(None);
        }
        held.touch()?;
        OnShelf::of(held).map(Some)
    }

    /// Makes what was built the tree `key`, unless it is there already; in use from now on.
    ///
    /// # Errors
    /// [`CacheError`]; what was built is gone.
    pub fn keep(
        &self,
        building: Building,
        key: &Digest,
        bytes: u64,
        disk_bytes: u64,
        note: &[u8],
    ) -> Result<OnShelf, CacheError> {
        let head = Facts {
            content: key.to_string(),
            bytes,
            disk_bytes,
            boot: WRITTEN.to_owned(),
            files: None,
        };
        let key = hexadecimal(key);
        let path = self.path.join(format!("{TREES}/{key}"));
        let mut facts = json(&head, &path)?;
        facts.push(b'\n');
        facts.extend_from_slice(note);
        write_new(&building.entry, FACTS, &facts, &path)?;
        rustix::fs::syncfs(building.entry.as_fd()).map_err(failed("syncfs", &path))?;
        let names = self.lock_names()?;
        let entry = self.place(&names, building, &key, |there| {
            Ok(read_head(there, &path, &key)?.is_some_and(|head| head.boot == WRITTEN))
        })?;
        drop(names);
        OnShelf::of(HeldEntry { entry, path, head })
    }
}
