//! Lists and verifies trees.

use std::collections::BTreeMap;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::time::SystemTime;

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags};
use rustix::io::Errno;

use crate::cache::Cache;
use crate::entries::{TREE, TREES};
use crate::error::CacheError;
use crate::facts::{Facts, last_use};
use crate::files::OpenDirectory;
use archive::{Entry, Tree, content_digest};
use spec::digest::Digest;
use spec::path::{RelPath, escape};
use sys::file::open_beneath;

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
                entry.share()?;
                check_entry(&entry, &key)?
            }
            Err(_no_directory) => Some("is not a directory".to_owned()),
        };
        match problem {
            None => intact += 1,
            Some(problem) => {
                match cache.directory.discard(&key) {
                    Ok(()) => (),
                    Err(_no_directory) => root.unlink(&name)?,
                }
                damaged.push(Damaged {
                    entry: key,
                    problem,
                });
            }
        }
    }
    Ok((intact, damaged))
}

fn check_entry(entry: &OpenDirectory, key: &str) -> Result<Option<String>, CacheError> {
    let Some((facts, tree)) = Facts::read_with_tree(entry, key)? else {
        return Ok(Some("has no valid facts of this tree".to_owned()));
    };
    match entry.existing_directory(TREE) {
        Ok(root) => check_tree(root.as_fd(), &tree, &facts.content),
        Err(error) => Ok(Some(error.to_string())),
    }
}

/// Compares the directory `root` with `tree`, owners and modes included, and with the digest
/// `content`. Returns the first mismatch.
///
/// # Errors
/// [`CacheError`]: this process cannot read it.
pub fn check_tree(
    root: BorrowedFd<'_>,
    tree: &Tree,
    content: &Digest,
) -> Result<Option<String>, CacheError> {
    if let Some(problem) = check_names(root, tree)? {
        return Ok(Some(problem));
    }
    Ok(match content_digest(tree, root) {
        Ok(found) if found == *content => None,
        Ok(found) => Some(format!("has the content digest {found}")),
        Err(error) => Some(spec::report::with_causes(&error)),
    })
}

/// Compares names, types, modes, owners and links: everything but the content of files.
fn check_names(root: BorrowedFd<'_>, tree: &Tree) -> Result<Option<String>, CacheError> {
    let mut counts: BTreeMap<Vec<u8>, u64> = BTreeMap::from([(Vec::new(), 0)]);
    for (path, entry) in tree.iter() {
        let bytes = path.as_bytes();
        let parent = bytes.iter().rposition(|byte| *byte == b'/').unwrap_or(0);
        *counts.entry(bytes[..parent].to_vec()).or_default() += 1;
        if *entry == Entry::Directory {
            counts.entry(bytes.to_vec()).or_default();
        }
        if let Some(problem) = check_status(root, path, entry) {
            return Ok(Some(format!("{}: {problem}", escape(bytes))));
        }
    }
    for (directory, count) in counts {
        match count_names(root, &directory) {
            Ok(found) if found == count => (),
            Ok(found) => {
                let path = escape(&directory);
                return Ok(Some(format!(
                    "{path}/ has {found} entries instead of {count}"
                )));
            }
            Err(errno) => return Ok(Some(format!("{}: {errno}", escape(&directory)))),
        }
    }
    Ok(None)
}

fn count_names(root: BorrowedFd<'_>, directory: &[u8]) -> Result<u64, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW;
    let path = if directory.is_empty() {
        b"."
    } else {
        directory
    };
    let opened = open_beneath(root, path, flags, Mode::empty())?;
    let mut count = 0;
    for entry in Dir::read_from(&opened)? {
        let entry = entry?;
        count += u64::from(![c".", c".."].contains(&entry.file_name()));
    }
    Ok(count)
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
