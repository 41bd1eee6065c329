//! Preparation runs in the report.

use serde::Serialize;

use crate::digest::Digest;
use crate::egress_report::HostTraffic;
use crate::report::Denial;

/// A layer of packages in the body's root, which a preparation run installed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct PreparationReport {
    /// `native`, `npm` or `pip`.
    pub kind: &'static str,
    /// Needs of the manifest, escaped; empty: only the package lists of the bundle require it.
    pub needs: Vec<String>,
    /// Sources of the packages in the host configuration.
    pub from: Vec<String>,
    /// Hosts that the preparation run may reach.
    pub allowed: Vec<String>,
    /// Key of the layer in the store: the digest of everything that determines its content.
    #[cfg_attr(test, schemars(with = "String"))]
    pub key: Digest,
    /// Where the layer was found.
    pub found: PreparationFound,
    /// Size of all files; `null`: nothing was installed yet.
    pub bytes: Option<u64>,
    /// Native packages with their versions, in the order of unpacking.
    pub packages: Vec<String>,
    /// Native packages with installation scripts. The scripts were not run.
    pub scripts_not_run: Vec<String>,
    /// Hosts that the preparation run reached.
    pub hosts: Vec<HostTraffic>,
    /// Denials of the preparation run.
    pub denials: Vec<Denial>,
    /// Duration of the preparation run; `null`: there was none.
    pub duration_ms: Option<u64>,
}

/// Where a prepared layer was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum PreparationFound {
    /// It was in the store.
    Store,
    /// It was made for this run.
    Made,
    /// It does not exist: in a plan, or after a failed preparation run.
    Absent,
}
