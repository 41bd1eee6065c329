//! The JSON document of `runner source build`. Its schema is `schemas/source-build.schema.json`.

use serde::Serialize;

use crate::digest::Digest;
use crate::oci::source_config::SourceConfig;
use crate::report::WarningReport;

/// What was built.
#[derive(Debug, Clone, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(extend("$id" = "urn:runner:schema:source-build")))]
pub struct SourceBuilt {
    /// What the store calls it: `NAME:VERSION`.
    pub name: String,
    /// Of the manifest: what the artifact is called by.
    #[cfg_attr(test, schemars(with = "String"))]
    pub digest: Digest,
    /// Where it can be pulled from, pinned: for `workspaceSources` of a manifest. Absent where it
    /// was not pushed.
    pub reference: Option<String>,
    /// The layout that it was written into.
    pub layout: Option<String>,
    /// When it was created: UTC, RFC 3339.
    pub created: String,
    /// Its config.
    pub config: SourceConfig,
    /// Of the config.
    #[cfg_attr(test, schemars(with = "String"))]
    pub config_digest: Digest,
    /// The snapshot.
    pub layer: BuiltLayer,
    /// What is left out although nobody asked for it: the first hundred.
    pub left_out: Vec<LeftOutEntry>,
    /// How many those are in all.
    pub left_out_count: u64,
    /// What a person should know.
    pub warnings: Vec<WarningReport>,
}

/// The snapshot of an artifact.
#[derive(Debug, Clone, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct BuiltLayer {
    /// Of the archive.
    #[cfg_attr(test, schemars(with = "String"))]
    pub digest: Digest,
    /// Of the tar in it: the identity of the files.
    #[cfg_attr(test, schemars(with = "String"))]
    pub content_digest: Digest,
    /// Of the archive.
    pub archive_bytes: u64,
    /// Of all files.
    pub bytes: u64,
    /// Files and directories.
    pub entries: u64,
}

/// Something that is left out.
#[derive(Debug, Clone, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct LeftOutEntry {
    /// Where, in the source, escaped.
    pub path: String,
    /// What it is.
    pub what: String,
}
