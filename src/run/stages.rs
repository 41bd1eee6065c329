//! What the stages of a run hand on: each type is made by one stage and consumed by the next.

use crate::run::contract::IoContract;
use crate::run::planning::PlannedRun;
use crate::run::sources::Sources;
use crate::run::supervision::Supervised;
use crate::run::unpacking::Bundle;
use sandbox::launch::{ImageRoot, Launched};
use sandbox::prepare::Prepared;
use sandbox::supervise::streams::Pipes;
use store::InUse;

/// A child that waits in its namespaces.
pub(super) struct Waiting {
    pub(super) prepared: Prepared,
    /// The supervisor's ends of the body's pipes.
    pub(super) pipes: Pipes,
    /// A command is planned while the child makes its namespaces.
    pub(super) planned: Option<PlannedRun>,
}

/// The bundle is in the writable space or in the cache.
pub(super) struct Unpacked {
    pub(super) waiting: Waiting,
    pub(super) bundle: Option<Bundle>,
}

pub(super) struct Planned {
    pub(super) prepared: Prepared,
    pub(super) pipes: Pipes,
    pub(super) bundle: Option<Bundle>,
    pub(super) run: PlannedRun,
    /// Keeps the cached tree from being removed while the body may read it.
    pub(super) in_use: Option<InUse>,
}

/// The image and the workspace sources are mounted.
pub(super) struct Materialized {
    pub(super) planned: Planned,
    pub(super) sources: Sources,
    pub(super) root: Option<ImageRoot>,
}

/// The inputs are validated and staged.
pub(super) struct Staged {
    pub(super) materialized: Materialized,
    pub(super) contract: IoContract,
}

pub(super) struct Running {
    pub(super) launched: Launched,
    pub(super) pipes: Pipes,
    pub(super) supervised: Supervised,
    pub(super) in_use: Vec<InUse>,
}

pub(super) struct Ended {
    pub(super) launched: Launched,
    pub(super) supervised: Supervised,
    /// Standard output, if it is the output document.
    pub(super) stdout: Option<Vec<u8>>,
    /// Some of its processes could not be killed.
    pub(super) unkillable: bool,
    pub(super) _in_use: Vec<InUse>,
}
