//! What the verbs of `runner source` print with `--json`. As those of `runner cache`, and other than
//! what `source build` prints, the documents have no published schema.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::digest::Digest;
use crate::oci::source_config::SourceConfig;
use crate::report::WarningReport;

/// `source pull`: what is in the store now.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SourcePulled {
    /// What was asked for.
    pub reference: String,
    /// The manifest: what pins it.
    pub digest: Digest,
    /// Whether it was there already, or was asked for.
    pub found: SourceFound,
    /// What it says of itself; null where it says nothing.
    pub config: Option<SourceConfig>,
    /// The snapshot as it is sent.
    pub layer: SourceLayer,
    /// Bytes of all files.
    pub bytes: u64,
    /// How many files; null: unknown.
    pub files: Option<u64>,
    /// What unpacking warned of, and what the config says otherwise.
    pub warnings: Vec<WarningReport>,
}

/// `source push`: what is in the registry now.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SourcePushed {
    /// The manifest: what pins it.
    pub digest: Digest,
    /// Where it can be pulled from, pinned.
    pub reference: String,
    /// The tag that it was given; empty: none.
    pub tag: String,
}

/// Where an artifact was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum SourceFound {
    /// All of it was in the store, and nothing was asked for.
    Store,
    /// It was asked for.
    Pulled,
}

/// A layer as it is sent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SourceLayer {
    pub digest: Digest,
    pub bytes: u64,
    pub media_type: String,
}

/// `source inspect`: what an artifact says.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SourceInspected {
    /// What was asked for.
    pub reference: String,
    /// The manifest: what pins it.
    pub digest: Digest,
    /// Whether it was there already, or was asked for.
    pub found: SourceFound,
    pub artifact_type: String,
    /// What it says of itself; null where it says nothing.
    pub config: Option<SourceConfig>,
    /// The snapshot as it is sent.
    pub layer: SourceLayer,
    /// Whether the snapshot is in the store as it is sent.
    pub layer_in_store: bool,
    /// What whoever published it noted.
    pub annotations: BTreeMap<String, String>,
}

/// `source list`: where artifacts are kept, and which sources.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SourceListing {
    pub directory: String,
    /// Most that all may take together, images too.
    pub size_bytes: u64,
    pub used_bytes: u64,
    /// The one that was used last first.
    pub sources: Vec<SourceKept>,
}

/// One source in the store.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SourceKept {
    /// What it was pulled or built as.
    pub name: String,
    pub digest: Digest,
    /// The snapshot as it is sent.
    pub layer_bytes: u64,
    /// Whether that is there; else it is fetched when it is needed and not unpacked.
    pub layer_in_store: bool,
    /// When it was used last, seconds since 1970.
    pub used_unix_s: u64,
}

/// `source gc` and `source rm`: what was removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct SourceRemoval {
    /// Manifests, configs, layers as they are sent, and downloads that were not finished.
    pub blobs: u64,
    pub trees: u64,
    /// What all took, about.
    pub bytes: u64,
}
