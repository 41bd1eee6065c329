//! The image of the body's root, in the report.

use serde::Serialize;

use crate::digest::Digest;

/// The image of a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ImageReport {
    /// Id of its template; `null`: the image of `--image`.
    pub id: Option<String>,
    /// Location: `docker://…` or `oci:DIR`.
    pub place: String,
    /// Digest of the manifest; `null`: the image is absent.
    #[cfg_attr(test, schemars(with = "Option<String>"))]
    pub digest: Option<Digest>,
    /// Number of layers, prepared layers included; `null`: the image is absent.
    pub layers: Option<u64>,
    /// Where the image was found.
    pub found: ImageFound,
    /// Whether the body may write to its root.
    pub root: RootKind,
    /// Uid and gid of the body; `null`: the image is absent.
    pub user: Option<ImageUserReport>,
}

/// Where an image was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum ImageFound {
    /// All layers were in the store, unpacked.
    Store,
    /// A part was fetched or unpacked.
    Pulled,
    /// In a plan: a run has to fetch it.
    Absent,
}

/// Whether the root is writable.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum RootKind {
    /// Writable; changes are removed with the run.
    Writable,
    /// Read-only, because of the host policy or of the kernel.
    ReadOnly,
}

/// The ids of a body in an image.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ImageUserReport {
    /// User id.
    pub uid: u32,
    /// Group id.
    pub gid: u32,
}
