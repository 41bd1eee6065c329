//! Preparation runs in the report: what was installed before the body started.

use serde::Serialize;

use crate::digest::Digest;
use crate::egress_report::HostTraffic;
use crate::report::Denial;

/// One layer of packages that the body's root has.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct PreparationReport {
    /// `native`, `npm` or `pip`.
    pub kind: &'static str,
    /// What it is for, as the manifest says it, escaped; empty where only the bundle's own lists ask.
    pub needs: Vec<String>,
    /// Where the packages come from, as the host configuration says it.
    pub from: Vec<String>,
    /// Whom its run may reach.
    pub allowed: Vec<String>,
    /// What the layer is kept under: the digest of all that decides what is in it.
    #[cfg_attr(test, schemars(with = "String"))]
    pub key: Digest,
    /// Whether it was there.
    pub found: PreparationFound,
    /// Bytes of all its files; absent where nothing was installed yet.
    pub bytes: Option<u64>,
    /// Native packages, each with its version, in the order in which they were unpacked.
    pub packages: Vec<String>,
    /// Those among them that bring scripts for their installation. The scripts were not run.
    pub scripts_not_run: Vec<String>,
    /// Hosts that its run reached.
    pub hosts: Vec<HostTraffic>,
    /// What its run tried and was refused.
    pub denials: Vec<Denial>,
    /// How long its run took; absent where there was none.
    pub duration_ms: Option<u64>,
}

/// Where a prepared layer came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum PreparationFound {
    /// It was made before.
    Store,
    /// It was made for this run.
    Made,
    /// It is not there: a plan makes none, and a run that failed has none.
    Absent,
}
