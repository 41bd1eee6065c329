//! What goes: garbage of dead processes, what was not used for longest, entries of nothing.

use std::collections::BTreeSet;
use std::time::SystemTime;

use rustix::io::Errno;

use crate::error::{CacheError, failed};
use crate::files::{Facts, read_head};
use crate::shelf::{FACTS, Names, Shelf, TREES};
use crate::store::{ARCHIVES, Cache, IDENTITIES};

/// Most files that are known by their identity; each costs a page.
const IDENTITIES_MAX: usize = 4096;

/// What [`Cache::collect`] removed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Collected {
    /// Trees that were not in use.
    pub trees: u64,
    pub bytes: u64,
}

/// What of a shelf may go.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Shelved {
    /// When it was used last.
    pub used: SystemTime,
    pub disk_bytes: u64,
    pub key: String,
}

impl Shelf {
    /// What there is, the one that was not used for longest first. Nothing is written.
    ///
    /// # Errors
    /// [`CacheError`].
    pub fn shelved(&self) -> Result<Vec<Shelved>, CacheError> {
        let mut entries = Vec::new();
        for key in self.names(TREES)? {
            entries.extend(self.looked_at(key)?.flatten());
        }
        entries.sort();
        Ok(entries)
    }

    /// As [`Shelf::shelved`]; what has no facts is removed.
    pub(super) fn entries(&self, _names: &Names) -> Result<Vec<Shelved>, CacheError> {
        let mut entries = Vec::new();
        for key in self.names(TREES)? {
            let name = format!("{TREES}/{key}");
            match self.looked_at(key)? {
                Some(Some(entry)) => entries.push(entry),
                Some(None) => self.move_away(&name)?,
                None => (),
            }
        }
        entries.sort();
        Ok(entries)
    }

    /// `None`: it is gone; an empty one: it has no facts.
    fn looked_at(&self, key: String) -> Result<Option<Option<Shelved>>, CacheError> {
        let name = format!("{TREES}/{key}");
        let path = self.path.join(&name);
        let Some(entry) = self.open_directory(&name)? else {
            return Ok(None);
        };
        let used = std::fs::metadata(path.join(FACTS)).and_then(|status| status.modified());
        Ok(Some(match (read_head(&entry, &path, &key)?, used) {
            (Some(Facts { disk_bytes, .. }), Ok(used)) => Some(Shelved {
                used,
                disk_bytes,
                key,
            }),
            _ => None,
        }))
    }

    /// Removes the entry `key`; `false`: it is in use.
    ///
    /// # Errors
    /// [`CacheError`].
    pub fn remove(&self, key: &str) -> Result<bool, CacheError> {
        self.remove_unused(&self.lock_names()?, key)
    }

    /// Removes what dead processes left, what has no facts, and what other versions of the rules
    /// made.
    ///
    /// # Errors
    /// [`CacheError`].
    pub fn tidy(&self) -> Result<(), CacheError> {
        let names = self.lock_names()?;
        self.sweep(&names)?;
        self.entries(&names)?;
        self.remove_other_versions()
    }

    /// Removes what was not used for longest and is not in use, until the rest is small enough.
    pub(super) fn shrink_to(
        &self,
        names: &Names,
        size_bytes: u64,
    ) -> Result<Collected, CacheError> {
        let entries = self.entries(names)?;
        let mut total = entries
            .iter()
            .fold(0_u64, |sum, entry| sum.saturating_add(entry.disk_bytes));
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

impl Cache {
    /// Its trees, the one that was not used for longest first.
    ///
    /// # Errors
    /// [`CacheError`].
    pub fn shelved(&self) -> Result<Vec<Shelved>, CacheError> {
        self.shelf.shelved()
    }

    /// Removes the tree `key`; `false`: it is in use.
    ///
    /// # Errors
    /// [`CacheError`].
    pub fn remove(&self, key: &str) -> Result<bool, CacheError> {
        self.shelf.remove(key)
    }

    /// Removes what was not used for longest and is not in use, until the rest is small enough;
    /// then entries of the indexes that name nothing any more.
    pub(super) fn shrink(&self, names: &Names) -> Result<(), CacheError> {
        let removed = self.shelf.shrink_to(names, self.size_bytes)?;
        if 0 < removed.trees || IDENTITIES_MAX < self.shelf.names(IDENTITIES)?.len() {
            self.forget_the_gone()?;
        }
        Ok(())
    }

    /// Removes entries of the indexes whose tree is gone, and the older half of too many.
    fn forget_the_gone(&self) -> Result<(), CacheError> {
        let trees: BTreeSet<String> = self.shelf.names(TREES)?.into_iter().collect();
        let names_a_tree = |name: &str| -> Result<bool, CacheError> {
            let bytes = self.shelf.read(name, 64 << 10)?.unwrap_or_default();
            let record: Option<serde_json::Value> = serde_json::from_slice(&bytes).ok();
            let content = record
                .as_ref()
                .and_then(|record| record.get("content")?.as_str());
            let key = content.and_then(|content| content.strip_prefix("sha256:"));
            Ok(key.is_some_and(|key| trees.contains(key)))
        };
        for size in self.shelf.names(ARCHIVES)? {
            let of_size = format!("{ARCHIVES}/{size}");
            for key in self.shelf.names(&of_size)? {
                let name = format!("{of_size}/{key}");
                if !names_a_tree(&name)? {
                    self.shelf.forget(&name)?;
                }
            }
            let path = self.shelf.path.join(&of_size);
            match rustix::fs::rmdir(&path) {
                Ok(()) | Err(Errno::NOTEMPTY | Errno::NOENT) => (),
                Err(errno) => return Err(failed("rmdir", &path)(errno)),
            }
        }
        let mut kept: Vec<(SystemTime, String)> = Vec::new();
        for key in self.shelf.names(IDENTITIES)? {
            let name = format!("{IDENTITIES}/{key}");
            let path = self.shelf.path.join(&name);
            let written = std::fs::metadata(&path).and_then(|status| status.modified());
            match (names_a_tree(&name)?, written) {
                (true, Ok(written)) => kept.push((written, name)),
                _ => self.shelf.forget(&name)?,
            }
        }
        if IDENTITIES_MAX < kept.len() {
            kept.sort();
            for (_, name) in &kept[..kept.len() / 2] {
                self.shelf.forget(name)?;
            }
        }
        Ok(())
    }

    /// Removes garbage, and every tree that is not in use where `all`; else only what is above the
    /// size.
    ///
    /// # Errors
    /// [`CacheError`].
    pub fn collect(&self, all: bool) -> Result<Collected, CacheError> {
        let names = self.shelf.lock_names()?;
        self.shelf.sweep(&names)?;
        let removed = self
            .shelf
            .shrink_to(&names, if all { 0 } else { self.size_bytes })?;
        self.forget_the_gone()?;
        self.shelf.remove_other_versions()?;
        Ok(removed)
    }
}
