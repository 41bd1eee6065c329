//! Workspace sources in the report.

use serde::Serialize;

use crate::digest::Digest;

/// A workspace source.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct WorkspaceSourceReport {
    /// Id in the manifest.
    pub id: String,
    /// Reference in the manifest.
    pub reference: String,
    /// Digest of the OCI manifest, also of a tag; `null`: the source is absent.
    #[cfg_attr(test, schemars(with = "Option<String>"))]
    pub digest: Option<Digest>,
    /// Mount point inside.
    pub mount_path: String,
    /// Mounted directory of the source; `null`: the whole source.
    pub subpath: Option<String>,
    /// Whether the body may write there. Changes are removed with the run.
    pub writable: bool,
    /// How the body sees the source; `null`: it is left out.
    pub view: Option<SourceView>,
    /// Where the source was found.
    pub found: SourceFound,
}

/// How the body sees a workspace source.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum SourceView {
    /// The kept tree, mounted read-only.
    ReadOnly,
    /// An overlayfs with the kept tree as its lower layer.
    Overlayfs,
    /// A copy of the kept tree.
    Copy,
}

/// Where a workspace source was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum SourceFound {
    /// It was in the store, unpacked.
    Store,
    /// It was pulled or unpacked for this run.
    Pulled,
    /// It could not be pulled and is optional.
    Absent,
}
