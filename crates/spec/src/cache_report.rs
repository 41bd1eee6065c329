//! What `runner cache` prints with `--json`.

use serde::Serialize;

/// `cache ls`: where unpacked bundles are kept, and which.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct CacheListing {
    pub directory: String,
    /// Whether it lies in memory.
    pub in_memory: bool,
    /// Most that the trees may take together.
    pub size_bytes: u64,
    pub used_bytes: u64,
    /// The one that was used last first.
    pub trees: Vec<KeptTree>,
}

/// One unpacked bundle.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct KeptTree {
    pub content_digest: String,
    /// Bytes of all files.
    pub bytes: u64,
    /// What it takes, about.
    pub disk_bytes: u64,
    /// Files, directories and links.
    pub entries: u64,
    /// When a run last used it, seconds since 1970.
    pub used_unix_s: u64,
}

/// `cache gc`: what was removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct CacheRemoval {
    pub trees: u64,
    /// What they took, about.
    pub bytes: u64,
}

/// `cache verify`: what was read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct CacheVerdict {
    /// Trees that are what their names say.
    pub whole: u64,
    /// Those that were not; they are removed.
    pub damaged: Vec<DamagedTree>,
}

/// A tree that was not what its name says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct DamagedTree {
    /// Its name in the cache.
    pub entry: String,
    /// What was wrong with it.
    pub problem: String,
}
