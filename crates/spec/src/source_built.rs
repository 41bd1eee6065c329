//! The JSON document of `runner source build`. Its schema is `schemas/source-build.schema.json`.

use serde::Serialize;

use crate::digest::Digest;
use crate::oci::source_config::SourceConfig;
use crate::report::WarningReport;

/// The built artifact.
#[derive(Debug, Clone, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(extend("$id" = "urn:runner:schema:source-build")))]
pub struct SourceBuilt {
    /// Name in the store: `NAME:VERSION`.
    pub name: String,
    /// Digest of the manifest, which identifies the artifact.
    #[cfg_attr(test, schemars(with = "String"))]
    pub digest: Digest,
    /// Pinned reference in the registry, for `workspaceSources` of a manifest; `null`: not pushed.
    pub reference: Option<String>,
    /// The OCI layout that it was written to.
    pub layout: Option<String>,
    /// Creation time: UTC, RFC 3339.
    pub created: String,
    /// The config.
    pub config: SourceConfig,
    /// Digest of the config.
    #[cfg_attr(test, schemars(with = "String"))]
    pub config_digest: Digest,
    /// The snapshot.
    pub layer: BuiltLayer,
    /// Entries that are left out without a flag of the caller; at most 100.
    pub left_out: Vec<LeftOutEntry>,
    /// Number of all entries that are left out without a flag.
    pub left_out_count: u64,
    /// Warnings.
    pub warnings: Vec<WarningReport>,
}

/// The snapshot of an artifact.
#[derive(Debug, Clone, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct BuiltLayer {
    /// Digest of the archive.
    #[cfg_attr(test, schemars(with = "String"))]
    pub digest: Digest,
    /// Digest of the tar in the archive, which identifies the files.
    #[cfg_attr(test, schemars(with = "String"))]
    pub content_digest: Digest,
    /// Size of the archive.
    pub archive_bytes: u64,
    /// Size of all files.
    pub bytes: u64,
    /// Number of files and directories.
    pub entries: u64,
}

/// An entry of the source that is left out.
#[derive(Debug, Clone, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct LeftOutEntry {
    /// Path in the source, escaped.
    pub path: String,
    /// Kind of the entry.
    pub what: String,
}
