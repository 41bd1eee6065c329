//! The cgroups of one run in every hierarchy.
//!
//! In reading order: `layout` (mounted hierarchies), `choose` (selects the back end), `observe`
//! (facts for the choice), `run_cgroup` (the life cycle), `limits`, `counters`, `leaf` (those of one command),
//! `leftover` (cgroups of dead runs), `usage` (what a run uses now), `coverage` (how limits are enforced), `scope` (systemd scope, if the cgroup is not
//! delegated).
//!
//! Moving another process by its pid in `cgroup.procs` takes a lock over all thread groups and waits
//! for an RCU grace period, 15 ms after idle. So the child joins the version 2 cgroup by
//! `CLONE_INTO_CGROUP`, and the version 1 cgroups by writing `0` to their `tasks`.

mod choose;
mod counters;
mod coverage;
mod layout;
mod leaf;
mod leftover;
mod limits;
mod observe;
mod run_cgroup;
mod scope;
mod usage;

use rustix::io::Errno;

use sys::file::CallError;

pub use choose::{GroupFacts, HostCgroups, ScopeOwner, choose, should_reexec};
pub use counters::{Counted, CpuTime};
pub use layout::Controller;
pub use leftover::remove_leftovers;
pub use observe::observe;
pub use run_cgroup::RunCgroup;
pub use scope::delegated_scope_argv;
pub use usage::CurrentUsage;

/// Leaf cgroup into which the supervisor moves before controllers are enabled.
const SUPERVISOR_LEAF: &str = "supervisor";

/// Limits of the cgroups of one run; `None`: unlimited.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CgroupLimits {
    /// Memory of all processes in the cgroup, with page cache and swap.
    pub memory_bytes: Option<u64>,
    pub processes: Option<u64>,
    /// CPU share in thousandths of a CPU: 1500 is one and a half CPUs.
    pub cpu_millis: Option<u64>,
    /// Out of memory, the kernel kills one process and not all: of a sandbox that stays.
    pub kills_one: bool,
}

/// How runs are limited on this host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Backend {
    /// A cgroup in the version 2 tree.
    V2(Unified),
    /// A cgroup in each version 1 hierarchy, and if possible one in the version 2 tree.
    V1(Hybrid),
    None {
        reason: String,
    },
}

/// The version 2 hierarchy, in which the runs' cgroups are created.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unified {
    pub parent: String,
    pub controllers: Vec<Controller>,
    /// Controllers that must first be enabled in the parent.
    pub to_enable: Vec<Controller>,
    /// This process is in the parent and must leave it before controllers are enabled.
    pub move_to_leaf: bool,
    /// Unavailable controllers with reasons.
    pub missing: Vec<(Controller, String)>,
    /// The parent is a systemd scope that the runner requested.
    pub in_delegated_scope: bool,
}

/// The version 1 hierarchies, with or without a version 2 tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hybrid {
    pub parents: Vec<V1Parent>,
    /// Parent in the version 2 tree, which has no controllers and is used for `cgroup.kill`.
    pub unified: Option<String>,
    /// Parent in the freezer hierarchy, used without a version 2 tree.
    pub freezer: Option<String>,
    /// Unavailable controllers with reasons.
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

    /// Returns the mechanism in [`spec::limits::Coverage`], and the unavailable controllers with reasons.
    fn mechanism(&self) -> (&'static str, Vec<(Controller, String)>) {
        match self {
            Self::V2(unified) => ("cgroup-v2", unified.missing.clone()),
            Self::V1(hybrid) => ("cgroup-v1", hybrid.missing.clone()),
            Self::None { reason } => {
                let missing = Controller::ALL.map(|controller| (controller, reason.clone()));
                ("none", missing.to_vec())
            }
        }
    }

    /// Returns the back end for a child that runs already. If version 1 has memory, pids and cpuacct,
    /// the version 2 cgroup is left out.
    ///
    /// A running child can only be moved into it, which waits for an RCU grace period; cloning into it
    /// is free. That cgroup would only add `cgroup.kill`; killing the init of the pid namespace does
    /// the same.
    #[must_use]
    pub fn for_running_child(self) -> Self {
        let needed = [Controller::Memory, Controller::Pids, Controller::Cpuacct];
        match self {
            Self::V1(hybrid)
                if needed.iter().all(|controller| {
                    let mut parents = hybrid.parents.iter();
                    parents.any(|parent| parent.controllers.contains(controller))
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

    /// Lists every cgroup directory of a run in the order of creation. Record them before
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
            .map(|parent| group_path(parent, &group_name(run_id)))
            .collect()
    }
}

/// Name of the cgroup of a run. Cleanup removes only cgroups with this name.
fn group_name(run_id: &str) -> String {
    format!("runner-{run_id}")
}

fn group_path(parent: &str, name: &str) -> String {
    format!("{}/{name}", parent.trim_end_matches('/'))
}

/// Error of the cgroups of a run.
#[derive(Debug, thiserror::Error)]
pub enum CgroupError {
    #[error("cannot inspect the cgroups of this host")]
    Observe(#[source] CallError),
    #[error(
        "cannot move the supervisor into {leaf}, so the controllers of {parent} cannot be enabled"
    )]
    MoveToLeaf {
        parent: String,
        leaf: String,
        #[source]
        source: CallError,
    },
    #[error("cannot create the run's cgroup {group}; its parent must exist and be writable")]
    Create {
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
    #[error("cannot open the tasks file of the run's cgroup {group}")]
    OpenTasks {
        group: String,
        #[source]
        source: CallError,
    },
    #[error("cannot read the counters of the run's cgroup")]
    Count(#[source] CallError),
    #[error("cannot kill the processes in the run's cgroup {group}")]
    Kill {
        group: String,
        #[source]
        source: CallError,
    },
    #[error("cannot stop or continue the processes in the run's cgroup {group}")]
    Freeze {
        group: String,
        #[source]
        source: CallError,
    },
    #[error("cannot remove the run's cgroups {}; a later start retries", groups.join(", "))]
    Remove {
        groups: Vec<String>,
        #[source]
        source: CallError,
    },
    #[error("recorded path {path} is not a cgroup of run {run_id}: not removed")]
    Foreign { path: String, run_id: String },
}

impl CgroupError {
    /// The errno of its cause.
    pub(crate) fn errno(&self) -> Errno {
        match self {
            Self::Observe(source)
            | Self::MoveToLeaf { source, .. }
            | Self::Create { source, .. }
            | Self::Limit { source, .. }
            | Self::OpenTasks { source, .. }
            | Self::Count(source)
            | Self::Kill { source, .. }
            | Self::Freeze { source, .. }
            | Self::Remove { source, .. } => source.errno,
            Self::Foreign { .. } => Errno::INVAL,
        }
    }

    fn freeze(group: &str) -> impl Fn(CallError) -> Self {
        move |source| Self::Freeze {
            group: group.to_owned(),
            source,
        }
    }

    fn kill(group: &str) -> impl Fn(CallError) -> Self {
        move |source| Self::Kill {
            group: group.to_owned(),
            source,
        }
    }
}
