//! The documents of `runner source … --json`, except `source build`. They have no published schema.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::digest::Digest;
use crate::oci::source_config::SourceConfig;
use crate::report::WarningReport;

/// `source pull`: the artifact in the store.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SourcePulled {
    pub reference: String,
    /// Digest of the manifest.
    pub digest: Digest,
    pub found: SourceFound,
    pub config: Option<SourceConfig>,
    pub layer: SourceLayer,
    pub bytes: u64,
    pub files: Option<u64>,
    /// Warnings of unpacking, and differences from the config.
    pub warnings: Vec<WarningReport>,
}

/// `source push`: the artifact in the registry.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SourcePushed {
    pub digest: Digest,
    pub reference: String,
    pub tag: String,
}

/// Where an artifact was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum SourceFound {
    /// All of it was in the store. No request was sent.
    Store,
    Pulled,
}

/// A compressed layer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SourceLayer {
    pub digest: Digest,
    pub bytes: u64,
    pub media_type: String,
}

/// `source inspect`: the contents of an artifact.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SourceInspected {
    pub reference: String,
    pub digest: Digest,
    pub found: SourceFound,
    pub artifact_type: String,
    pub config: Option<SourceConfig>,
    pub layer: SourceLayer,
    pub layer_in_store: bool,
    pub annotations: BTreeMap<String, String>,
}

/// `source list`: the store and its sources.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SourceListing {
    pub directory: String,
    /// Size limit of the store, images included.
    pub size_bytes: u64,
    pub used_bytes: u64,
    pub sources: Vec<SourceKept>,
}

/// A source in the store.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SourceKept {
    pub name: String,
    pub digest: Digest,
    pub layer_bytes: u64,
    /// Whether the layer is in the store. Otherwise it is fetched when it is needed.
    pub layer_in_store: bool,
    pub used_unix_s: u64,
}

/// `source gc` and `source rm`: the removed objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct SourceRemoval {
    /// Manifests, configs, layers and unfinished downloads.
    pub blobs: u64,
    pub trees: u64,
    /// Approximate.
    pub bytes: u64,
}
