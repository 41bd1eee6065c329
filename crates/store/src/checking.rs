//! Lists and verifies trees.

use std::collections::BTreeMap;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::time::SystemTime;

use rustix::fs::{AtFlags, FileType, Mode, OFlags};
use rustix::io::Errno;

use crate::cache::Cache;
use crate::entries::{TREE, TREES};
use crate::error::CacheError;
use crate::facts::{Facts, last_use};
use crate::files::{InUseDirectory, OpenDirectory};
use archive::{Entry, Tree, content_digest};
use spec::digest::Digest;
use spec::path::{RelPath, escape};
use sys::file::{names, open_beneath};

/// A tree in the listing of `cache ls`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listed {
    pub content: String,
    /// Bytes of all files.
    pub bytes: u64,
    pub disk_bytes: u64,
    /// Files, directories and links.
    pub entries: u64,
    pub last_use: SystemTime,
}

/// A damaged tree, which was removed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Damaged {
    /// Name in the cache.
    pub entry: String,
    pub problem: String,
}

impl Cache {
    /// Lists all trees, the most recently used first.
    ///
    /// # Errors
    /// [`CacheError`].
    pub fn list(&self) -> Result<Vec<Listed>, CacheError> {
        let mut listed = Vec::new();
        for key in self.directory.root.names(TREES)? {
            let Some(entry) = self.directory.root.directory(&format!("{TREES}/{key}"))? else {
                continue;
            };
            // `verify` reports invalid facts.
            if let (Some((facts, tree)), Ok(last_use)) =
                (Facts::read_with_tree(&entry, &key)?, last_use(&entry))
            {
                listed.push(Listed {
                    content: facts.content.to_string(),
                    bytes: facts.bytes,
                    disk_bytes: facts.disk_bytes,
                    entries: tree.len() as u64,
                    last_use,
                });
            }
        }
        listed.sort_by_key(|tree| std::cmp::Reverse(tree.last_use));
        Ok(listed)
    }
}

/// Verifies every tree and removes the damaged ones. Returns the number of intact trees.
///
/// # Errors
/// [`CacheError`]: the cache cannot be listed, or a damaged tree cannot be removed.
pub fn verify(cache: &Cache) -> Result<(u64, Vec<Damaged>), CacheError> {
    let mut intact = 0;
    let mut damaged = Vec::new();
    let root = &cache.directory.root;
    for key in root.names(TREES)? {
        let name = format!("{TREES}/{key}");
        let problem = match root.directory(&name) {
            Ok(None) => continue,
            Ok(Some(entry)) => {
                let entry = InUseDirectory::new(entry)?;
                // Removed or replaced before it was locked.
                if !root.is_still(&*entry, &name)? {
                    continue;
                }
                let problem = check_entry(&entry, &key)?;
                if problem.is_some() {
                    cache.directory.discard_judged(&key, &entry)?;
                }
                problem
            }
            Err(error) if error.is_other_file() => {
                root.unlink(&name)?;
                Some("is not a directory".to_owned())
            }
            Err(error) => return Err(error),
        };
        match problem {
            None => intact += 1,
            Some(problem) => damaged.push(Damaged {
                entry: key,
                problem,
            }),
        }
    }
    Ok((intact, damaged))
}

fn check_entry(entry: &OpenDirectory, key: &str) -> Result<Option<String>, CacheError> {
    let Some((facts, tree)) = Facts::read_with_tree(entry, key)? else {
        return Ok(Some("has no valid facts of this tree".to_owned()));
    };
    match entry.directory(TREE) {
        Ok(Some(root)) => Ok(check_tree(root.as_fd(), &tree, &facts.content)),
        Ok(None) => Ok(Some("has no tree".to_owned())),
        Err(error) if error.is_other_file() => Ok(Some("has no directory as its tree".to_owned())),
        Err(error) => Err(error),
    }
}

/// Compares the directory `root` with `tree`, owners and modes included, and with the digest
/// `content`. Returns the first mismatch, or the error of reading the directory.
#[must_use]
pub fn check_tree(root: BorrowedFd<'_>, tree: &Tree, content: &Digest) -> Option<String> {
    if let Some(problem) = check_names(root, tree) {
        return Some(problem);
    }
    match content_digest(tree, root) {
        Ok(found) if found == *content => None,
        Ok(found) => Some(format!("has the content digest {found}")),
        Err(error) => Some(spec::report::with_causes(&error)),
    }
}

/// Compares names, types, modes, owners and links: everything but the content of files.
fn check_names(root: BorrowedFd<'_>, tree: &Tree) -> Option<String> {
    let mut counts: BTreeMap<Vec<u8>, u64> = BTreeMap::from([(Vec::new(), 0)]);
    for (path, entry) in tree.iter() {
        let bytes = path.as_bytes();
        let parent = bytes.iter().rposition(|byte| *byte == b'/').unwrap_or(0);
        *counts.entry(bytes[..parent].to_vec()).or_default() += 1;
        if *entry == Entry::Directory {
            counts.entry(bytes.to_vec()).or_default();
        }
        if let Some(problem) = check_status(root, path, entry) {
            return Some(format!("{}: {problem}", escape(bytes)));
        }
    }
    counts.into_iter().find_map(|(directory, count)| {
        let path = match &directory[..] {
            b"" => ".".to_owned(),
            directory => escape(directory),
        };
        match count_names(root, &directory) {
            Ok(found) if found == count => None,
            Ok(found) => Some(format!("{path}/ has {found} entries instead of {count}")),
            Err(errno) => Some(format!("{path}: {errno}")),
        }
    })
}

fn count_names(root: BorrowedFd<'_>, directory: &[u8]) -> Result<u64, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW;
    let path = if directory.is_empty() {
        b"."
    } else {
        directory
    };
    let opened = open_beneath(root, path, flags, Mode::empty())?;
    Ok(names(&opened)?.len() as u64)
}

fn check_status(root: BorrowedFd<'_>, path: &RelPath, entry: &Entry) -> Option<String> {
    let name = path.as_bytes();
    let status = match rustix::fs::statat(root, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(status) => status,
        Err(errno) => return Some(errno.to_string()),
    };
    let (kind, mode) = match entry {
        Entry::File {
            executable: true, ..
        } => (FileType::RegularFile, 0o755),
        Entry::File { .. } => (FileType::RegularFile, 0o644),
        Entry::Directory => (FileType::Directory, 0o755),
        Entry::Symlink { .. } => (FileType::Symlink, 0o777),
    };
    let found_mode = status.st_mode & 0o7777;
    if FileType::from_raw_mode(status.st_mode) != kind || found_mode != mode {
        return Some(format!(
            "has the st_mode {:o} instead of {:o}",
            status.st_mode,
            kind.as_raw_mode() | mode
        ));
    }
    if status.st_uid != rustix::process::geteuid().as_raw() {
        return Some(format!("is owned by uid {}", status.st_uid));
    }
    if kind != FileType::Directory && status.st_nlink != 1 {
        return Some(format!("has {} hard links", status.st_nlink));
    }
    match entry {
        Entry::Symlink { target } => match rustix::fs::readlinkat(root, name, Vec::new()) {
            Ok(found) if found.as_bytes() == target => None,
            Ok(_) => Some("has another link target".to_owned()),
            Err(errno) => Some(errno.to_string()),
        },
        Entry::File { .. } | Entry::Directory => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::FACTS;
    use crate::location::CacheLocation;
    use std::path::Path;
    use std::time::Duration;

    fn cache_with_entry(ground: &Path, entry: &str) -> Cache {
        let location = CacheLocation {
            directory: ground.join("cache"),
            size_bytes: 1 << 20,
            in_memory: true,
        };
        let cache = Cache::open(&location).expect("opened");
        for part in ["building", TREES, &format!("{TREES}/{entry}")] {
            cache.directory.root.make_directory(part).expect("made");
        }
        cache
    }

    #[test]
    fn an_entry_that_is_removed_before_it_is_locked_is_not_damaged() {
        let ground = tempfile::tempdir().expect("a directory");
        let cache = cache_with_entry(ground.path(), "entry");
        let locked = cache.directory.root.directory(&format!("{TREES}/entry"));
        let locked = locked.expect("opened").expect("there");
        assert!(locked.try_lock().expect("tried"));
        let removal = std::thread::spawn(move || {
            // Long enough for `verify` to open the entry.
            std::thread::sleep(Duration::from_millis(300));
            std::fs::remove_dir(locked.path()).expect("removed");
        });
        assert_eq!(verify(&cache).expect("verified"), (0, Vec::new()));
        removal.join().expect("removed");
    }

    #[test]
    fn an_entry_that_replaced_a_damaged_one_is_kept() {
        let ground = tempfile::tempdir().expect("a directory");
        let cache = cache_with_entry(ground.path(), "entry");
        let root = &cache.directory.root;
        let name = format!("{TREES}/entry");
        let judged = root.directory(&name).expect("opened").expect("there");
        let judged = InUseDirectory::new(judged).expect("locked");
        root.rename(&name, "building/away").expect("renamed");
        root.make_directory(&name).expect("made");
        cache
            .directory
            .discard_judged("entry", &judged)
            .expect("done");
        assert!(root.directory(&name).expect("opened").is_some());
        root.remove(&name).expect("removed");
        root.rename("building/away", &name).expect("renamed");
        cache
            .directory
            .discard_judged("entry", &judged)
            .expect("done");
        assert!(root.directory(&name).expect("opened").is_none());
        // Not kept for a later sweep by the own lock.
        assert_eq!(root.names("building").expect("listed").len(), 0);
    }

    #[test]
    fn an_entry_without_its_tree_is_damaged() {
        let ground = tempfile::tempdir().expect("a directory");
        let content = Digest::of(b"content");
        let entry = content.hexadecimal();
        let cache = cache_with_entry(ground.path(), &entry);
        let root = &cache.directory.root;
        let facts = Facts {
            content,
            bytes: 0,
            disk_bytes: 0,
            boot: String::new(),
            files: None,
        };
        let directory = root.directory(&format!("{TREES}/{entry}"));
        let directory = directory.expect("opened").expect("there");
        let facts = facts.line();
        directory.write_new(FACTS, &facts).expect("written");
        let problem = "has no tree".to_owned();
        let found = verify(&cache).expect("verified");
        assert_eq!(found, (0, vec![Damaged { entry, problem }]));
        assert_eq!(verify(&cache).expect("verified"), (0, Vec::new()));
    }
}
