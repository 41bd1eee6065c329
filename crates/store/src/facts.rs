//! Facts of an entry: one line of JSON, and a body in a format of the caller. The mtime of the file is
//! the last use of the entry.

use std::time::SystemTime;

use serde::{Deserialize, Serialize};

use crate::error::CacheError;
use crate::files::{OpenDirectory, json};
use archive::{Tree, listing};
use spec::digest::Digest;

pub(crate) const FACTS: &str = "facts";
/// Maximum size of facts: 100,000 entries with 160 bytes of names each, and as much again.
const FACTS_BYTES_MAX: u64 = 64 << 20;
/// Maximum size of the first line: a digest, a boot and numbers.
const HEAD_BYTES_MAX: u64 = 4 << 10;

/// The first line of the facts of an entry.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Facts {
    /// The digest in the name of the entry: detects a renamed directory.
    pub(crate) content: Digest,
    pub(crate) bytes: u64,
    pub(crate) disk_bytes: u64,
    pub(crate) boot: String,
    /// Number of regular files; `None` in facts of an earlier version.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) files: Option<u64>,
}

impl Facts {
    /// The first line. The body follows it.
    pub(crate) fn line(&self) -> Vec<u8> {
        let mut bytes = json(self);
        bytes.push(b'\n');
        bytes
    }

    /// With the list of `tree` as the body.
    pub(crate) fn with_tree(&self, tree: &Tree) -> Vec<u8> {
        let mut bytes = self.line();
        listing::append(tree, &mut bytes);
        bytes
    }

    /// Reads the first line; `None` if it is incomplete or of another entry than `key`.
    pub(crate) fn read(entry: &OpenDirectory, key: &str) -> Result<Option<Self>, CacheError> {
        let bytes = entry.read(FACTS, HEAD_BYTES_MAX)?;
        Ok(bytes.and_then(|bytes| Some(Self::parse(&bytes, key)?.0)))
    }

    /// Reads the facts of a tree with its list.
    pub(crate) fn read_with_tree(
        entry: &OpenDirectory,
        key: &str,
    ) -> Result<Option<(Self, Tree)>, CacheError> {
        let Some(bytes) = entry.read(FACTS, FACTS_BYTES_MAX)? else {
            return Ok(None);
        };
        Ok(Self::parse(&bytes, key).and_then(|(facts, body)| Some((facts, listing::read(body)?))))
    }

    fn parse<'bytes>(bytes: &'bytes [u8], key: &str) -> Option<(Self, &'bytes [u8])> {
        let end = bytes.iter().position(|byte| *byte == b'\n')?;
        let facts: Self = serde_json::from_slice(&bytes[..end]).ok()?;
        (facts.content.hexadecimal() == key).then_some((facts, &bytes[end + 1..]))
    }
}

pub(crate) fn last_use(entry: &OpenDirectory) -> std::io::Result<SystemTime> {
    std::fs::metadata(entry.path().join(FACTS))?.modified()
}

/// Reads the lines after the first; `None` if there is no first line.
pub(crate) fn read_body(entry: &OpenDirectory) -> Result<Option<Vec<u8>>, CacheError> {
    let bytes = entry.read(FACTS, FACTS_BYTES_MAX)?;
    Ok(bytes.and_then(|mut bytes| {
        let end = bytes.iter().position(|byte| *byte == b'\n')?;
        bytes.drain(..=end);
        Some(bytes)
    }))
}

/// Reads the list of a tree; `None` if it is missing or invalid.
pub(crate) fn read_listing(entry: &OpenDirectory) -> Result<Option<Tree>, CacheError> {
    Ok(read_body(entry)?.and_then(|bytes| listing::read(&bytes)))
}
