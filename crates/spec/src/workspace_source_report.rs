//! Workspace sources in the report.

use serde::Serialize;

use crate::digest::Digest;

/// One workspace source.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct WorkspaceSourceReport {
    /// As the manifest calls it.
    pub id: String,
    /// As the manifest names it.
    pub reference: String,
    /// Of its OCI manifest, also where a tag named it; absent where it could not be had.
    #[cfg_attr(test, schemars(with = "Option<String>"))]
    pub digest: Option<Digest>,
    /// Where it appears inside.
    pub mount_path: String,
    /// The directory of it that appears there; absent: all of it.
    pub subpath: Option<String>,
    /// Whether the body may write there, for this run only.
    pub writable: bool,
    /// How the body sees it; absent where it is left out.
    pub view: Option<SourceView>,
    /// Where it came from.
    pub found: SourceFound,
}

/// How the body sees a workspace source.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum SourceView {
    /// The kept tree itself, read-only.
    ReadOnly,
    /// The kept tree lies below what belongs to this run.
    Overlayfs,
    /// A copy of the kept tree.
    Copy,
}

/// Where a workspace source came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum SourceFound {
    /// It was kept, unpacked, from an earlier time.
    Store,
    /// It was pulled, or unpacked, for this run.
    Pulled,
    /// It could not be had, and is not required.
    Absent,
}
