//! What goes: garbage of dead processes, what was not used for longest, entries of nothing.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::SystemTime;

use rustix::fs::Mode;
use rustix::fs::{Dir, OFlags};
use rustix::io::Errno;
use std::os::fd::AsFd as _;

use crate::cache::error::{CacheError, failed};
use crate::cache::files::{errno_of, read_facts, remove};
use crate::cache::store::{ARCHIVES, BUILDING, Cache, FACTS, IDENTITIES, TREES};
use crate::kernel::lock::try_claim_file;

/// Most files that are known by their identity; each costs a page.
const IDENTITIES_MAX: usize = 4096;

/// What [`Cache::collect`] removed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Collected {
    /// Trees that were not in use.
    pub trees: u64,
    /// Their bytes.
    pub bytes: u64,
}

impl Cache {
    /// Names in a part of the cache; none where it was not made yet.
    pub(super) fn names(&self, part: &str) -> Result<Vec<String>, CacheError> {
        let path = self.path.join(part);
        let Some(directory) = self.open_directory(part)? else {
            return Ok(Vec::new());
        };
        let mut names = Vec::new();
        for entry in Dir::read_from(&directory).map_err(failed("getdents64", &path))? {
            let entry = entry.map_err(failed("getdents64", &path))?;
            // Names of ours are plain; what is none of ours is for nobody to remove but its maker.
            if let Ok(name) = entry.file_name().to_str()
                && name != "."
                && name != ".."
            {
                names.push(name.to_owned());
            }
        }
        Ok(names)
    }

    /// Removes what nobody works on any more; the names are locked.
    pub(super) fn sweep(&self) -> Result<(), CacheError> {
        for name in self.names(BUILDING)? {
            let name = format!("{BUILDING}/{name}");
            let path = self.path.join(&name);
            let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
            let left = match rustix::fs::openat(&self.root, &name, flags, Mode::empty()) {
                Ok(left) => left,
                // Whoever made it gave up, which needs no lock.
                Err(Errno::NOENT) => continue,
                Err(errno) => return Err(failed("openat", &path)(errno)),
            };
            let is_free = try_claim_file(left.as_fd()).map_err(failed("flock", &path))?;
            if is_free {
                remove(&path)?;
            }
        }
        Ok(())
    }

    /// Removes what was not used for longest and is not in use, until the rest is small enough;
    /// then entries of the indexes that name nothing any more. The names are locked.
    pub(super) fn shrink(&self) -> Result<(), CacheError> {
        let removed = self.shrink_to(self.size_bytes)?;
        if 0 < removed.trees || IDENTITIES_MAX < self.names(IDENTITIES)?.len() {
            self.forget_the_gone()?;
        }
        Ok(())
    }

    fn shrink_to(&self, size_bytes: u64) -> Result<Collected, CacheError> {
        let mut trees: Vec<(SystemTime, u64, String)> = Vec::new();
        for key in self.names(TREES)? {
            let name = format!("{TREES}/{key}");
            let path = self.path.join(&name);
            let Some(entry) = self.open_directory(&name)? else {
                continue;
            };
            let used = std::fs::metadata(path.join(FACTS)).and_then(|status| status.modified());
            match (read_facts(&entry, &path, &key)?, used) {
                (Some((facts, _)), Ok(used)) => trees.push((used, facts.disk_bytes, name)),
                _ => {
                    drop(entry);
                    self.move_away(&name)?;
                }
            }
        }
        trees.sort();
        let mut total = trees
            .iter()
            .fold(0_u64, |sum, (_, bytes, _)| sum.saturating_add(*bytes));
        let mut removed = Collected::default();
        for (_, bytes, name) in trees {
            if total <= size_bytes {
                break;
            }
            if self.remove_unused(&name)? {
                total = total.saturating_sub(bytes);
                removed.trees += 1;
                removed.bytes = removed.bytes.saturating_add(bytes);
            }
        }
        Ok(removed)
    }

    /// `false`: it is in use.
    fn remove_unused(&self, name: &str) -> Result<bool, CacheError> {
        let path = self.path.join(name);
        let Some(entry) = self.open_directory(name)? else {
            return Ok(true);
        };
        let is_free = try_claim_file(entry.as_fd()).map_err(failed("flock", &path))?;
        if is_free {
            let away = self.draft()?;
            rustix::fs::renameat(&self.root, name, &self.root, &away)
                .map_err(failed("renameat", &path))?;
            remove(&self.path.join(&away))?;
        }
        Ok(is_free)
    }

    /// Removes entries of the indexes whose tree is gone, and the older half of too many.
    fn forget_the_gone(&self) -> Result<(), CacheError> {
        let trees: BTreeSet<String> = self.names(TREES)?.into_iter().collect();
        let names_a_tree = |name: &str| -> Result<bool, CacheError> {
            let bytes = self.read(name, 64 << 10)?.unwrap_or_default();
            let record: Option<serde_json::Value> = serde_json::from_slice(&bytes).ok();
            let content = record
                .as_ref()
                .and_then(|record| record.get("content")?.as_str());
            let key = content.and_then(|content| content.strip_prefix("sha256:"));
            Ok(key.is_some_and(|key| trees.contains(key)))
        };
        for size in self.names(ARCHIVES)? {
            let of_size = format!("{ARCHIVES}/{size}");
            for key in self.names(&of_size)? {
                let name = format!("{of_size}/{key}");
                if !names_a_tree(&name)? {
                    self.forget(&name)?;
                }
            }
            let path = self.path.join(&of_size);
            match rustix::fs::rmdir(&path) {
                Ok(()) | Err(Errno::NOTEMPTY | Errno::NOENT) => (),
                Err(errno) => return Err(failed("rmdir", &path)(errno)),
            }
        }
        let mut kept: Vec<(SystemTime, String)> = Vec::new();
        for key in self.names(IDENTITIES)? {
            let name = format!("{IDENTITIES}/{key}");
            let path = self.path.join(&name);
            let written = std::fs::metadata(&path).and_then(|status| status.modified());
            match (names_a_tree(&name)?, written) {
                (true, Ok(written)) => kept.push((written, name)),
                _ => self.forget(&name)?,
            }
        }
        if IDENTITIES_MAX < kept.len() {
            kept.sort();
            for (_, name) in &kept[..kept.len() / 2] {
                self.forget(name)?;
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
        let _names = self.lock_names()?;
        self.sweep()?;
        let removed = self.shrink_to(if all { 0 } else { self.size_bytes })?;
        self.forget_the_gone()?;
        self.remove_other_versions()?;
        Ok(removed)
    }

    /// Trees that other versions of the rules made: a run of that version would make them anew.
    fn remove_other_versions(&self) -> Result<(), CacheError> {
        let above = self.path.parent().unwrap_or(&self.path);
        let unreadable = |error: &std::io::Error| failed("getdents64", above)(errno_of(error));
        let here: Vec<PathBuf> = std::fs::read_dir(above)
            .map_err(|error| unreadable(&error))?
            .filter_map(|entry| Some(entry.ok()?.path()))
            .collect();
        for path in here {
            let name = path.file_name().and_then(|name| name.to_str());
            let is_version = name.is_some_and(|name| {
                !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_digit())
            });
            if is_version && path != self.path {
                remove(&path)?;
            }
        }
        Ok(())
    }
}
