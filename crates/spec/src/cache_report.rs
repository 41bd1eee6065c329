//! The documents of `runner cache … --json`.

use serde::Serialize;

/// `cache ls`: the cache of unpacked bundles.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct CacheListing {
    pub directory: String,
    pub in_memory: bool,
    pub size_bytes: u64,
    pub used_bytes: u64,
    /// Most recently used first.
    pub trees: Vec<KeptTree>,
}

/// An unpacked bundle.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct KeptTree {
    pub content_digest: String,
    pub bytes: u64,
    /// Approximate.
    pub disk_bytes: u64,
    pub entries: u64,
    pub used_unix_s: u64,
}

/// `cache gc`: the removed trees.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct CacheRemoval {
    pub trees: u64,
    /// Approximate.
    pub bytes: u64,
}

/// `cache verify`: intact and damaged trees.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct CacheVerdict {
    pub whole: u64,
    /// These trees are removed.
    pub damaged: Vec<DamagedTree>,
}

/// A tree that does not match its digest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct DamagedTree {
    pub entry: String,
    pub problem: String,
}
