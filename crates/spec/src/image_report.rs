//! The image of the body's root, in the report.

use serde::Serialize;

use crate::digest::Digest;

/// The image of a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ImageReport {
    /// The template that names it; `null`: `--image` did.
    pub id: Option<String>,
    /// Where it lies: `docker://…` or `oci:DIR`.
    pub place: String,
    /// Of its manifest; `null` where it is not here.
    #[cfg_attr(test, schemars(with = "Option<String>"))]
    pub digest: Option<Digest>,
    /// How many layers were joined, prepared ones included; `null` where it is not here.
    pub layers: Option<u64>,
    /// Where it was found.
    pub found: ImageFound,
    /// Whether the body may write its root.
    pub root: RootKind,
    /// Who the body is in it; `null` where it is not here.
    pub user: Option<ImageUserReport>,
}

/// Where an image was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum ImageFound {
    /// All of it was in the store.
    Store,
    /// Something of it was fetched or unpacked.
    Pulled,
    /// A plan: a run would have to fetch it.
    Absent,
}

/// Whether the root can be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum RootKind {
    /// For this run only.
    Writable,
    /// Not at all: the host's policy says so, or its kernel cannot.
    ReadOnly,
}

/// The ids of a body in an image.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ImageUserReport {
    /// Its uid.
    pub uid: u32,
    /// Its gid.
    pub gid: u32,
}
