//! The group of one run in every hierarchy: chosen, made, limited, read, killed, removed.
//!
//! In reading order: `layout` (where the hierarchies are), `choose` (which back end), `observe`
//! (the facts for it), `run_cgroup` (the life of one run's groups), `limits`, `counters`, `leftover`, `coverage` (what holds how
//! strongly), `scope` (the way out where systemd did not hand the group over).
//!
//! Nobody ever writes another process's id to `cgroup.procs`: that takes the lock over all thread
//! groups and costs an RCU grace period, 15 ms after idle. Version 2 is entered by
//! `CLONE_INTO_CGROUP`, version 1 by the child itself writing `0` to `tasks`.

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
pub use coverage::AxisCoverage;
pub use layout::Controller;
pub use leftover::remove_leftovers;
pub use observe::observe;
pub use run_cgroup::RunCgroup;
pub use scope::delegated_scope_argv;

/// Where the supervisor goes inside a group that is to hand out controllers.
const SUPERVISOR_LEAF: &str = "supervisor";

/// What the groups of one run limit; `None`: unlimited.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CgroupLimits {
    /// Memory of the whole tree, files in memory and swap included.
    pub memory_bytes: Option<u64>,
    /// Processes and threads at once.
    pub processes: Option<u64>,
    /// Share of the processors in thousandths: 1500 is one and a half.
    pub cpu_millis: Option<u64>,
}

/// How runs are limited on this host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Backend {
    /// One group in the version 2 tree.
    V2(Unified),
    /// A group in each version 1 hierarchy, and where possible one in the version 2 tree.
    V1(Hybrid),
    /// No group: resource limits and a watcher that polls.
    None { reason: String },
}

/// Version 2.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unified {
    /// The group beneath which runs are made.
    pub parent: String,
    /// Controllers that a run's group will have.
    pub controllers: Vec<Controller>,
    /// Those of them that the parent does not hand out yet.
    pub to_enable: Vec<Controller>,
    /// This process stands in the parent and must go into a leaf before controllers are enabled.
    pub move_to_leaf: bool,
    /// Controllers that a run's group will not have, and why.
    pub missing: Vec<(Controller, String)>,
    /// The parent is a scope that systemd made for us.
    pub in_delegated_scope: bool,
}

/// Version 1, with or without a version 2 tree beside it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hybrid {
    /// The groups beneath which runs are made, one for each hierarchy.
    pub parents: Vec<V1Parent>,
    /// The group of the version 2 tree: it has no controllers of ours, but kills at a stroke.
    pub unified: Option<String>,
    /// The group of the freezer hierarchy, only where there is no version 2 tree.
    pub freezer: Option<String>,
    /// Controllers that a run will not have, and why.
    pub missing: Vec<(Controller, String)>,
}

/// The group of one version 1 hierarchy beneath which runs are made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct V1Parent {
    pub path: String,
    /// The controllers of this hierarchy that we use.
    pub controllers: Vec<Controller>,
}

impl Backend {
    /// As it stands in the report: `v2`, `v2-scope`, `v1`, `none`.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::V2(unified) if unified.in_delegated_scope => "v2-scope",
            Self::V2(_) => "v2",
            Self::V1(_) => "v1",
            Self::None { .. } => "none",
        }
    }

    /// The same for a child that lives already: without the version 2 group beside version 1's,
    /// where the run loses neither a limit nor a counter by it.
    ///
    /// A process can be cloned into that group for nothing, and be moved into it for an RCU grace
    /// period. What it gives, an end at a stroke, the end of the pid namespace's init gives too,
    /// and init then stands in no group that could slow it down.
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

    /// Every directory that a run of this id can come to have, in the order in which they are
    /// made. To be recorded before [`Backend::create`].
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

/// Name of a run's group: by it, and by nothing else, a leftover is known as ours.
fn group_name(run_id: &str) -> String {
    format!("runner-{run_id}")
}

fn group_path(parent: &str, run_id: &str) -> String {
    format!("{}/{}", parent.trim_end_matches('/'), group_name(run_id))
}

/// What went wrong with the groups of a run.
#[derive(Debug, thiserror::Error)]
pub enum CgroupError {
    /// The host's groups cannot be looked at.
    #[error("cannot see which cgroups this host has")]
    Observe(#[source] CallError),
    /// The parent cannot hand out what a limit needs because it cannot be emptied of ourselves.
    #[error(
        "cannot move the supervisor into the leaf {leaf}, so that {parent} cannot hand out controllers"
    )]
    MoveToLeaf {
        /// The group that we were started in.
        parent: String,
        /// Where we should have gone.
        leaf: String,
        #[source]
        source: CallError,
    },
    /// The group cannot be made.
    #[error("cannot make the run's cgroup {group}; its parent must exist and be ours to write")]
    Make {
        group: String,
        #[source]
        source: CallError,
    },
    /// A limit was not taken.
    #[error("cannot set the limit {file} of {group} to {value}")]
    Limit {
        group: String,
        file: &'static str,
        value: String,
        #[source]
        source: CallError,
    },
    /// The way in cannot be opened for the child.
    #[error("cannot open the way into the run's cgroup {group}")]
    WayIn {
        group: String,
        #[source]
        source: CallError,
    },
    /// A counter cannot be read.
    #[error("cannot read the counters of the run's cgroup")]
    Count(#[source] CallError),
    /// What is in the group cannot be killed.
    #[error("cannot kill what is in the run's cgroup {group}")]
    Kill {
        group: String,
        #[source]
        source: CallError,
    },
    /// Something still lives in the group.
    #[error("{processes} processes still live in the run's cgroup {group} after {waited_ms} ms")]
    StillPopulated {
        group: String,
        /// How many, those in groups below not counted.
        processes: usize,
        /// How long it was waited for.
        waited_ms: u128,
    },
    /// The group cannot be removed; a later start will try again.
    #[error("cannot remove the run's cgroups {}; a later start tries again", groups.join(", "))]
    Remove {
        /// What is still there.
        groups: Vec<String>,
        /// Why the first of them is.
        #[source]
        source: CallError,
    },
    /// A recorded path does not have the form of a group of ours.
    #[error("{path} is not the path of a cgroup of run {run_id}; it is left alone")]
    NotOurs {
        path: String,
        /// The run that recorded it.
        run_id: String,
    },
}
