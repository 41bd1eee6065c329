//! The files of the cache: facts, entries of the indexes, directories.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::Path;

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use crate::error::{CacheError, failed};
use crate::shelf::{FACTS, TREE};
use archive::Tree;
use archive::listing;
use sys::file;

const DIRECTORY_MODE: u32 = 0o700;
pub(super) const FILE_MODE: u32 = 0o600;
/// The longest facts: 100,000 entries with 160 bytes of names each, and as much again.
const FACTS_BYTES_MAX: u64 = 64 << 20;
/// The longest first line of facts: a digest, a boot and numbers.
const HEAD_BYTES_MAX: u64 = 4 << 10;

/// The head of the facts of a tree; its listing follows after a newline.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Facts {
    /// The content that the tree is, so that a directory that was renamed by hand is none.
    pub(super) content: String,
    pub(super) bytes: u64,
    pub(super) disk_bytes: u64,
    pub(super) boot: String,
    /// Regular files; facts that an earlier version wrote do not say it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) files: Option<u64>,
}

pub(super) fn facts_bytes(facts: &Facts, tree: &Tree, path: &Path) -> Result<Vec<u8>, CacheError> {
    let mut bytes = json(facts, path)?;
    bytes.push(b'\n');
    bytes.extend(listing::write(tree));
    Ok(bytes)
}

/// The facts of the entry that is called `key`; `None` where they are not whole, or another's.
pub(super) fn read_facts(
    entry: &OwnedFd,
    path: &Path,
    key: &str,
) -> Result<Option<(Facts, Tree)>, CacheError> {
    let Some(bytes) = read_at(entry, FACTS, path, FACTS_BYTES_MAX)? else {
        return Ok(None);
    };
    Ok(head_of(&bytes, key).and_then(|(facts, rest)| Some((facts, listing::read(rest)?))))
}

/// The first line of the facts of the entry that is called `key`.
pub(super) fn read_head(
    entry: &OwnedFd,
    path: &Path,
    key: &str,
) -> Result<Option<Facts>, CacheError> {
    let bytes = read_at(entry, FACTS, path, HEAD_BYTES_MAX)?;
    Ok(bytes.and_then(|bytes| Some(head_of(&bytes, key)?.0)))
}

/// What follows on the first line of the facts of an entry; `None` where there is none.
pub(super) fn read_body(entry: &OwnedFd, path: &Path) -> Result<Option<Vec<u8>>, CacheError> {
    let bytes = read_at(entry, FACTS, path, FACTS_BYTES_MAX)?;
    Ok(bytes.and_then(|mut bytes| {
        let end = bytes.iter().position(|byte| *byte == b'\n')?;
        bytes.drain(..=end);
        Some(bytes)
    }))
}

/// The list of a tree that an entry holds; `None` where it has none.
pub(super) fn read_listing(entry: &OwnedFd, path: &Path) -> Result<Option<Tree>, CacheError> {
    Ok(read_body(entry, path)?.and_then(|bytes| listing::read(&bytes)))
}

fn head_of<'bytes>(bytes: &'bytes [u8], key: &str) -> Option<(Facts, &'bytes [u8])> {
    let end = bytes.iter().position(|byte| *byte == b'\n')?;
    let facts: Facts = serde_json::from_slice(&bytes[..end]).ok()?;
    let is_this = facts.content.strip_prefix("sha256:") == Some(key);
    is_this.then_some((facts, &bytes[end + 1..]))
}

pub(super) fn open_tree(entry: &OwnedFd, path: &Path) -> Result<OwnedFd, CacheError> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::openat(entry, TREE, flags, Mode::empty()).map_err(failed("openat", path))
}

/// Marks an entry as used now.
pub(super) fn touch(entry: &OwnedFd, path: &Path) -> Result<(), CacheError> {
    // A cache on a file system that became read-only is as good as before.
    file::touch(entry.as_fd(), FACTS).map_err(failed("utimensat", path))
}

pub(super) fn make_directory(at: &OwnedFd, name: &str, path: &Path) -> Result<(), CacheError> {
    match rustix::fs::mkdirat(at, name, Mode::from_raw_mode(DIRECTORY_MODE)) {
        Ok(()) | Err(Errno::EXIST) => Ok(()),
        Err(errno) => Err(failed("mkdirat", path)(errno)),
    }
}

pub(super) fn read_at(
    at: &OwnedFd,
    name: &str,
    path: &Path,
    bytes_max: u64,
) -> Result<Option<Vec<u8>>, CacheError> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let file = match rustix::fs::openat(at, name, flags, Mode::empty()) {
        Ok(file) => File::from(file),
        Err(Errno::NOENT) => return Ok(None),
        Err(errno) => return Err(failed("openat", path)(errno)),
    };
    let mut bytes = Vec::new();
    file.take(bytes_max)
        .read_to_end(&mut bytes)
        .map_err(|error| failed("read", path)(errno_of(&error)))?;
    Ok(Some(bytes))
}

pub(super) fn write_new(
    at: &OwnedFd,
    name: &str,
    bytes: &[u8],
    path: &Path,
) -> Result<(), CacheError> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = rustix::fs::openat(at, name, flags, Mode::from_raw_mode(FILE_MODE))
        .map_err(failed("openat", path))?;
    File::from(file)
        .write_all(bytes)
        .map_err(|error| failed("write", path)(errno_of(&error)))
}

pub(super) fn json(value: &impl Serialize, path: &Path) -> Result<Vec<u8>, CacheError> {
    serde_json::to_vec(value).map_err(|_never| failed("write", path)(Errno::INVAL))
}

/// Removes a file, or a directory with all that is in it; that it is gone is fine.
pub(super) fn remove(path: &Path) -> Result<(), CacheError> {
    let removed = match std::fs::symlink_metadata(path) {
        Ok(status) if status.is_dir() => std::fs::remove_dir_all(path),
        Ok(_) => std::fs::remove_file(path),
        Err(error) => Err(error),
    };
    match removed {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(failed("unlink", path)(errno_of(&error)))
        }
        _ => Ok(()),
    }
}

pub(super) fn errno_of(error: &std::io::Error) -> Errno {
    Errno::from_io_error(error).unwrap_or(Errno::IO)
}
