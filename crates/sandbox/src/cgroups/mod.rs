//! The cgroups of one run in every hierarchy.
//!
//! In reading order: `layout` (where the hierarchies are), `choose` (the back end), `observe`
//! (facts for the choice), `run_cgroup` (the life cycle), `limits`, `counters`, `leftover`,
//! `coverage` (how limits are enforced), `scope` (systemd scope, if the cgroup is not delegated).
//!
//! A process never writes the pid of another one to `cgroup.procs`: that takes the lock over all
//! thread groups and costs an RCU grace period, 15 ms after idle. Version 2 is joined by
//! `CLONE_INTO_CGROUP`, version 1 by the child writing `0` to `tasks`.

mod choose;
mod counters;
mod coverage;
mod layout;
mod leftover;
mod limits;
mod observe;
mod run_cgroup;
mod scope;

use sys::file::CallError;

pub use choose::{GroupFacts, HostCgroups, ScopeOwner, choose, should_reexec};
pub use counters::{Counted, CpuTime};
pub use layout::Controller;
pub use leftover::remove_leftovers;
pub use observe::observe;
pub use run_cgroup::RunCgroup;
pub use scope::delegated_scope_argv;

/// The supervisor moves into this leaf before controllers are enabled.
const SUPERVISOR_LEAF: &str = "supervisor";

/// Limits of the cgroups of one run; `None`: unlimited.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CgroupLimits {
    /// Memory of the whole tree, including page cache and swap.
    pub memory_bytes: Option<u64>,
    pub processes: Option<u64>,
    /// CPU share in thousandths: 1500 is one and a half.
    pub cpu_millis: Option<u64>,
}

/// How runs are limited on this host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Backend {
    /// A cgroup in the version 2 tree.
    V2(Unified),
    /// A cgroup in each version 1 hierarchy, and if possible one in the version 2 tree.
    V1(Hybrid),
    /// Resource limits and polling.
    None { reason: String },
}

/// Version 2.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unified {
    pub parent: String,
    pub controllers: Vec<Controller>,
    /// Controllers that the parent must enable first.
    pub to_enable: Vec<Controller>,
    /// This process is in the parent and must move before controllers are enabled.
    pub move_to_leaf: bool,
    /// Unavailable controllers, with reasons.
    pub missing: Vec<(Controller, String)>,
    pub in_delegated_scope: bool,
}

/// Version 1, with or without a version 2 tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hybrid {
    /// One for each hierarchy.
    pub parents: Vec<V1Parent>,
    /// The version 2 cgroup: without controllers, used for `cgroup.kill`.
    pub unified: Option<String>,
    /// The cgroup of the freezer hierarchy, used without a version 2 tree.
    pub freezer: Option<String>,
    pub missing: Vec<(Controller, String)>,
}

/// Parent of the runs' cgroups in one version 1 hierarchy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct V1Parent {
    pub path: String,
    pub controllers: Vec<Controller>,
}

impl Backend {
    /// Name in the report: `v2`, `v2-scope`, `v1`, `none`.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::V2(unified) if unified.in_delegated_scope => "v2-scope",
            Self::V2(_) => "v2",
            Self::V1(_) => "v1",
            Self::None { .. } => "none",
        }
    }

    /// Returns the back end for a running child: without the version 2 cgroup if version 1 has all
    /// limits and counters.
    ///
    /// Cloning into that cgroup is free, but moving costs an RCU grace period. It only adds
    /// `cgroup.kill`, which ending the init of the pid namespace replaces.
    #[must_use]
    pub fn for_living_child(self) -> Self {
        let needed = [Controller::Memory, Controller::Pids, Controller::Cpuacct];
        match self {
            Self::V1(hybrid)
                if needed.iter().all(|controller| {
                    let mut known = hybrid.parents.iter().flat_map(|parent| &parent.controllers);
                    known.any(|held| held == controller)
                }) =>
            {
                Self::V1(Hybrid {
                    unified: None,
                    ..hybrid
                })
            }
            other => other,
        }
    }

    /// Lists every directory of a run in the order of creation. Record them before
    /// [`Backend::create`].
    #[must_use]
    pub fn planned_paths(&self, run_id: &str) -> Vec<String> {
        let parents: Vec<&str> = match self {
            Self::V2(unified) => vec![&unified.parent],
            Self::V1(hybrid) => hybrid
                .unified
                .iter()
                .chain(&hybrid.freezer)
                .map(String::as_str)
                .chain(hybrid.parents.iter().map(|parent| parent.path.as_str()))
                .collect(),
            Self::None { .. } => Vec::new(),
        };
        parents
            .into_iter()
            .map(|parent| group_path(parent, run_id))
            .collect()
    }
}

/// Only this name identifies a leftover of the runner.
fn group_name(run_id: &str) -> String {
    format!("runner-{run_id}")
}

fn group_path(parent: &str, run_id: &str) -> String {
    format!("{}/{}", parent.trim_end_matches('/'), group_name(run_id))
}

/// Error of the cgroups of a run.
#[derive(Debug, thiserror::Error)]
pub enum CgroupError {
    #[error("cannot see which cgroups this host has")]
    Observe(#[source] CallError),
    /// The supervisor cannot leave the parent, so that its controllers cannot be enabled.
    #[error(
        "cannot move the supervisor into the leaf {leaf}, so that {parent} cannot hand out controllers"
    )]
    MoveToLeaf {
        parent: String,
        leaf: String,
        #[source]
        source: CallError,
    },
    #[error("cannot make the run's cgroup {group}; its parent must exist and be writable")]
    Make {
        group: String,
        #[source]
        source: CallError,
    },
    #[error("cannot set the limit {file} of {group} to {value}")]
    Limit {
        group: String,
        file: &'static str,
        value: String,
        #[source]
        source: CallError,
    },
    /// `tasks` cannot be opened for the child.
    #[error("cannot open the way into the run's cgroup {group}")]
    WayIn {
        group: String,
        #[source]
        source: CallError,
    },
    #[error("cannot read the counters of the run's cgroup")]
    Count(#[source] CallError),
    #[error("cannot kill what is in the run's cgroup {group}")]
    Kill {
        group: String,
        #[source]
        source: CallError,
    },
    #[error("{processes} processes still live in the run's cgroup {group} after {waited_ms} ms")]
    StillPopulated {
        group: String,
        /// Without those in child cgroups.
        processes: usize,
        waited_ms: u128,
    },
    /// The cgroup cannot be removed; a later start retries.
    #[error("cannot remove the run's cgroups {}; a later start tries again", groups.join(", "))]
    Remove {
        groups: Vec<String>,
        #[source]
        source: CallError,
    },
    /// A recorded path is not the name of a run's cgroup.
    #[error("{path} is not the path of a cgroup of run {run_id}; it is left alone")]
    NotOurs {
        path: String,
        /// The run that recorded it.
        run_id: String,
    },
}
