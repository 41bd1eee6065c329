//! The cgroups of single commands of a sandbox that stays, below those of the sandbox: its limits hold for
//! all of them together.
//!
//! With version 2 a cgroup whose children have controllers has no processes, so init and the commands
//! without a cgroup of their own are in a child, too. A command joins by writing `0` to a file that the
//! supervisor has opened: the filter of init refuses clone3(2), so it cannot clone into a cgroup.

use std::os::fd::OwnedFd;

use rustix::io::Errno;

use sys::cgroup::{self, Group};

use super::counters::Counted;
use super::run_cgroup::{RunCgroup, kill_until_empty};
use super::{CgroupError, CgroupLimits, Controller, V1Parent, group_path};
use spec::sandboxes::CommandLimits;
use sys::file::CallError;

/// Of init and of commands without a cgroup of their own.
const SHARED: &str = "shared";
/// With a number: of one command.
const COMMAND: &str = "command-";

/// What a cgroup of a sandbox knows of those below it.
#[derive(Debug, Default)]
pub(super) struct Leaves {
    /// With version 2.
    pub(super) shared: Option<Group>,
    made: u64,
    /// What version 1 counted in leaves that are gone: only there, and not above.
    pub(super) oom_kills: u64,
    pub(super) refused_forks: u64,
}

impl RunCgroup {
    /// Prepares a new cgroup for [`RunCgroup::create_leaf`]. Call it before the clone.
    ///
    /// # Errors
    /// [`CgroupError::Create`], [`CgroupError::Limit`].
    pub(crate) fn prepare_for_leaves(&mut self) -> Result<(), CgroupError> {
        let Some(group) = self.unified.as_ref().filter(|_| self.unified_limits) else {
            return Ok(());
        };
        let missing = |controller| self.missing.iter().any(|(absent, _)| *absent == controller);
        let present = Controller::OF_V2.into_iter();
        let present = present.filter(|controller| !missing(*controller));
        let enabled: Vec<String> = present.map(|one| format!("+{}", one.name())).collect();
        let (file, value) = ("cgroup.subtree_control", enabled.join(" "));
        let written = group.write(file, &value);
        written.map_err(|source| CgroupError::Limit {
            group: group.path().to_owned(),
            file,
            value,
            source,
        })?;
        let path = group_path(group.path(), SHARED);
        let opened = cgroup::make(&path).and_then(|()| Group::open(&path));
        self.leaves.shared = Some(opened.map_err(|source| CgroupError::Create {
            group: path,
            source,
        })?);
        Ok(())
    }

    /// Whether a cgroup of one command can enforce all these limits.
    #[must_use]
    pub fn can_limit(&self, limits: &CommandLimits) -> bool {
        let has = |controller| {
            let mut missing = self.missing.iter();
            if self.unified_limits {
                return missing.all(|(absent, _)| *absent != controller);
            }
            let mut parents = self.v1_parents.iter();
            self.v1_group(controller).is_some()
                || parents.any(|parent| parent.controllers.contains(&controller))
        };
        [
            (limits.memory_bytes, Controller::Memory),
            (limits.processes, Controller::Pids),
            (limits.cpu_millis, Controller::Cpu),
            (limits.cpu_time_ms, Controller::Cpuacct),
        ]
        .into_iter()
        .all(|(limit, controller)| limit.is_none() || has(controller))
    }

    /// Creates the cgroup of one command below this one, with its limits, and opens the files to which its
    /// first process writes `0`. `None`: there is no cgroup that counts or limits.
    ///
    /// # Errors
    /// [`CgroupError::Create`], [`CgroupError::Limit`], [`CgroupError::OpenTasks`].
    pub(crate) fn create_leaf(
        &mut self,
        limits: &CgroupLimits,
    ) -> Result<Option<(Self, Vec<OwnedFd>)>, CgroupError> {
        if limits.cpu_millis.is_some() {
            self.create_cpu_group()?;
        }
        self.count_below()?;
        self.leaves.made += 1;
        let name = format!("{COMMAND}{}", self.leaves.made);
        let mut leaf = Self::new(name, self.mechanism, self.missing.clone());
        leaf.unified_limits = self.unified_limits;
        let below = |(controllers, group): &(Vec<Controller>, Group)| V1Parent {
            path: group.path().to_owned(),
            controllers: controllers.clone(),
        };
        leaf.v1_parents = self.v1.iter().map(below).collect();
        if let Some(group) = self.unified.as_ref().filter(|_| self.unified_limits) {
            leaf.unified = Some(leaf.create_group(group.path())?);
        }
        let mut joins = leaf.apply(limits)?;
        if let Some(group) = &leaf.unified {
            let opened = group.open_processes();
            joins.push(opened.map_err(|source| CgroupError::OpenTasks {
                group: group.path().to_owned(),
                source,
            })?);
        }
        Ok((!joins.is_empty()).then_some((leaf, joins)))
    }

    /// The version 1 cgroup of the sandbox for its share of processors, which it has no limit of.
    fn create_cpu_group(&mut self) -> Result<(), CgroupError> {
        let is_cpu = |parent: &V1Parent| parent.controllers.contains(&Controller::Cpu);
        if let Some(found) = self.v1_parents.iter().position(is_cpu) {
            let V1Parent { path, controllers } = self.v1_parents.remove(found);
            let group = self.create_group(&path)?;
            self.v1.push((controllers, group));
        }
        Ok(())
    }

    /// Lets version 1 count memory of leaves above them, too, which kernels before 5.11 may not do.
    fn count_below(&self) -> Result<(), CgroupError> {
        let Some(group) = self.v1_group(Controller::Memory) else {
            return Ok(());
        };
        let (file, value) = ("memory.use_hierarchy", "1");
        let set = match group.read_number(file) {
            Ok(Some(0)) => group.write(file, value),
            Ok(_) => return Ok(()),
            Err(error) => Err(error),
        };
        set.map_err(|source| CgroupError::Limit {
            group: group.path().to_owned(),
            file,
            value: value.to_owned(),
            source,
        })
    }

    /// Adds what a leaf of this cgroup counted that is removed. Version 2 counts it here itself.
    pub(crate) fn add_of_leaf(&mut self, counted: &Counted) {
        if !self.unified_limits {
            self.leaves.oom_kills += counted.oom_kills.unwrap_or(0);
            self.leaves.refused_forks += counted.refused_forks.unwrap_or(0);
        }
    }

    /// Removes the cgroups in which no process is. Returns whether none is left.
    pub(crate) fn remove_if_empty(&mut self) -> bool {
        let stays = |path: &String| match cgroup::remove(path) {
            Ok(()) => false,
            Err(error) => error.errno != Errno::NOENT,
        };
        self.created.retain(stays);
        self.created.is_empty()
    }
}

/// Kills the processes of a cgroup and of its leaves.
///
/// # Errors
/// [`CgroupError::Kill`].
pub(super) fn kill_all(group: &Group) -> Result<(), CgroupError> {
    let failed = CgroupError::kill(group.path());
    for path in leaves(group.path()).map_err(&failed)? {
        match Group::open(&path) {
            Ok(leaf) => kill_until_empty(&leaf).map_err(CgroupError::kill(&path))?,
            Err(error) if error.errno == Errno::NOENT => (),
            Err(error) => return Err(CgroupError::kill(&path)(error)),
        }
    }
    kill_until_empty(group).map_err(&failed)
}

/// Removes the leaves of a cgroup in which no process is.
pub(super) fn remove_empty(path: &str) -> Result<(), CallError> {
    for leaf in leaves(path)? {
        match cgroup::remove(&leaf) {
            Err(error) if !matches!(error.errno, Errno::BUSY | Errno::NOENT) => return Err(error),
            _ => (),
        }
    }
    Ok(())
}

fn leaves(path: &str) -> Result<Vec<String>, CallError> {
    let is_leaf = |name: &String| name == SHARED || name.starts_with(COMMAND);
    let found = match cgroup::children(path) {
        Err(error) if error.errno == Errno::NOENT => Vec::new(),
        other => other?,
    };
    let found = found.iter().filter(|name| is_leaf(name));
    Ok(found.map(|name| group_path(path, name)).collect())
}
