//! The groups of one run: a guard that makes them, limits them, kills what is in them, removes them.

use std::os::fd::{BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::io::Errno;

use sys::cgroup::{self, Group};
use sys::file::CallError;

use super::counters::Counted;
use super::coverage::{self, AxisCoverage};
use super::limits;
use super::{
    Backend, CgroupError, CgroupLimits, Controller, SUPERVISOR_LEAF, Unified, V1Parent, group_path,
};

/// How long an emptying group is waited for before it is reported as left.
pub(super) const REMOVE_PATIENCE: Duration = Duration::from_secs(2);
/// The same for a guard that nobody closed.
const DROP_PATIENCE: Duration = Duration::from_millis(500);
/// How often a group without `cgroup.kill` is swept before it is given up.
const KILL_SWEEPS_MAX: usize = 200;

/// The groups of one run. [`RunCgroup::close`] it; dropped, it kills and removes as far as it can
/// and tells nobody, and what is left then stands in the run's record.
#[derive(Debug)]
pub struct RunCgroup {
    run_id: String,
    mechanism: &'static str,
    planned: Vec<String>,
    /// In the order of making; removed in reverse.
    made: Vec<String>,
    unified: Option<Group>,
    /// The version 2 group has the controllers, not only the kill switch.
    unified_limits: bool,
    freezer: Option<Group>,
    v1_parents: Vec<V1Parent>,
    v1: Vec<(Vec<Controller>, Group)>,
    missing: Vec<(Controller, String)>,
    swap_unlimited: Option<String>,
}

impl Backend {
    /// Makes what must be there before the child is cloned: the group of the version 2 tree.
    ///
    /// In a version 2 tree this first moves the supervisor into a leaf and enables controllers,
    /// where that is needed. A controller that is refused becomes a gap in
    /// [`RunCgroup::coverage`]. [`Backend::None`] gives a run without groups.
    ///
    /// # Errors
    /// [`CgroupError::MoveToLeaf`], [`CgroupError::Make`].
    pub fn create(&self, run_id: &str) -> Result<RunCgroup, CgroupError> {
        let mut run = RunCgroup {
            run_id: run_id.to_owned(),
            mechanism: "none",
            planned: self.planned_paths(run_id),
            made: Vec::new(),
            unified: None,
            unified_limits: false,
            freezer: None,
            v1_parents: Vec::new(),
            v1: Vec::new(),
            missing: Vec::new(),
            swap_unlimited: None,
        };
        match self {
            Self::V2(unified) => {
                run.mechanism = "cgroup-v2";
                run.missing = unified.missing.clone();
                run.missing.extend(hand_out(unified)?);
                run.unified = Some(run.make(&unified.parent)?);
                run.unified_limits = true;
            }
            Self::V1(hybrid) => {
                run.mechanism = "cgroup-v1";
                run.missing = hybrid.missing.clone();
                run.v1_parents = hybrid.parents.clone();
                if let Some(parent) = &hybrid.unified {
                    run.unified = Some(run.make(parent)?);
                }
                if let Some(parent) = &hybrid.freezer {
                    run.freezer = Some(run.make(parent)?);
                }
            }
            Self::None { reason } => {
                run.missing = Controller::ALL
                    .into_iter()
                    .map(|controller| (controller, reason.clone()))
                    .collect();
            }
        }
        Ok(run)
    }
}

/// Enables the controllers, one write each: in a combined write one refusal fails all.
/// Returns those that were refused.
fn hand_out(unified: &Unified) -> Result<Vec<(Controller, String)>, CgroupError> {
    if unified.to_enable.is_empty() {
        return Ok(Vec::new());
    }
    let parent = &unified.parent;
    if unified.move_to_leaf {
        let leaf = group_path(parent, SUPERVISOR_LEAF);
        let moved = match cgroup::make(&leaf) {
            Err(error) if error.errno != Errno::EXIST => Err(error),
            _ => Group::open(&leaf).and_then(|group| group.join()),
        };
        moved.map_err(|source| CgroupError::MoveToLeaf {
            parent: parent.clone(),
            leaf,
            source,
        })?;
    }
    let group = Group::open(parent).map_err(|source| CgroupError::Make {
        group: parent.clone(),
        source,
    })?;
    let mut refused = Vec::new();
    for controller in &unified.to_enable {
        let enable = format!("+{}", controller.name());
        if let Err(error) = group.write("cgroup.subtree_control", &enable) {
            refused.push((*controller, error.to_string()));
        }
    }
    Ok(refused)
}

impl RunCgroup {
    /// The directory for `CLONE_INTO_CGROUP`; `None` where there is no version 2 group.
    #[must_use]
    pub fn clone_into(&self) -> Option<BorrowedFd<'_>> {
        self.unified.as_ref().map(Group::directory)
    }

    /// Sets the limits, making the version 1 groups first. To be called after clone, so that it
    /// runs beside the child's own work.
    ///
    /// Returns the opened `tasks` files of version 1. The child writes `0` to each, in any order,
    /// before it unshares its cgroup namespace.
    ///
    /// # Errors
    /// [`CgroupError::Make`], [`CgroupError::Limit`], [`CgroupError::WayIn`].
    pub fn apply(&mut self, limits: &CgroupLimits) -> Result<Vec<OwnedFd>, CgroupError> {
        if self.unified_limits {
            self.limit_v2(limits)?;
            return Ok(Vec::new());
        }
        for parent in std::mem::take(&mut self.v1_parents) {
            // Without a limit the group would count nothing that anybody reads.
            if parent.controllers == [Controller::Cpu] && limits.cpu_millis.is_none() {
                continue;
            }
            let group = self.make(&parent.path)?;
            self.limit_v1(&group, &parent, limits)?;
            self.v1.push((parent.controllers, group));
        }
        let groups = self.v1.iter().map(|(_, group)| group);
        groups
            .chain(&self.freezer)
            .map(|group| {
                group.open_tasks().map_err(|source| CgroupError::WayIn {
                    group: group.path().to_owned(),
                    source,
                })
            })
            .collect()
    }

    /// Every directory that this run may have; the same as [`Backend::planned_paths`].
    #[must_use]
    pub fn paths(&self) -> Vec<String> {
        self.planned.clone()
    }

    /// How strongly each limit holds, after what [`Backend::create`] and [`RunCgroup::apply`] met.
    #[must_use]
    pub fn coverage(&self) -> Vec<AxisCoverage> {
        coverage::of(
            self.mechanism,
            &self.missing,
            self.swap_unlimited.as_deref(),
        )
    }

    /// Sends SIGKILL to everything in the run's groups. It may still be dying on return.
    ///
    /// A child that has not joined yet is not in them, and neither is init where there is no
    /// version 2 tree: the caller kills init as well.
    ///
    /// `cgroup.kill` where there is one (Linux 5.14); else forks are refused (`pids.max`), the
    /// group is frozen where it can be, and all that is listed is killed until nothing is.
    ///
    /// # Errors
    /// [`CgroupError::Kill`].
    pub fn kill(&self) -> Result<(), CgroupError> {
        let failed = |group: &Group| {
            let group = group.path().to_owned();
            move |source| CgroupError::Kill { group, source }
        };
        if self.made.is_empty() {
            // Nothing lived in them any more.
            return Ok(());
        }
        if let Some(group) = &self.unified {
            match group.kill_all() {
                Ok(()) => return Ok(()),
                Err(error) if error.errno == Errno::NOENT => (),
                Err(error) => return Err(failed(group)(error)),
            }
        }
        if let Some((group, _)) = self.with(Controller::Pids) {
            group.write("pids.max", "0").map_err(failed(group))?;
        }
        // A group that has everything; of version 1's any, since the body is in all or in none.
        let Some(group) = self
            .unified
            .as_ref()
            .or(self.freezer.as_ref())
            .or_else(|| self.v1.first().map(|(_, group)| group))
        else {
            return Ok(());
        };
        sweep(group).map_err(failed(group))
    }

    /// Counts and removes the groups while init is still dying, where nothing lives in them any
    /// more; `None`: something may. What cannot be removed now is left to [`RunCgroup::close`].
    ///
    /// Only where init is in none of them: version 1 beside a child that lived before.
    pub fn settle(&mut self) -> Option<Counted> {
        if self.unified.is_some() || self.freezer.is_some() {
            return None;
        }
        let (processes, _) = self.with(Controller::Pids)?;
        if !matches!(processes.read_number("pids.current"), Ok(Some(0))) {
            return None;
        }
        let counted = self.count();
        self.made.retain(|path| cgroup::remove(path).is_err());
        Some(counted)
    }

    /// Waits until nothing lives in the groups, so that the counters stand still.
    ///
    /// # Errors
    /// [`CgroupError::StillPopulated`] after `patience`; [`CgroupError::Count`].
    pub fn wait_until_empty(&self, patience: Duration) -> Result<(), CgroupError> {
        let started = Instant::now();
        let groups = self.unified.iter().chain(&self.freezer);
        for group in groups.chain(self.v1.iter().map(|(_, group)| group)) {
            let mut pause = Duration::from_micros(100);
            while group.is_populated().map_err(CgroupError::Count)? {
                let left = patience.saturating_sub(started.elapsed());
                if left.is_zero() {
                    return Err(CgroupError::StillPopulated {
                        group: group.path().to_owned(),
                        processes: group.processes().map_err(CgroupError::Count)?.len(),
                        waited_ms: started.elapsed().as_millis(),
                    });
                }
                group
                    .wait_for_change(pause.min(left))
                    .map_err(CgroupError::Count)?;
                pause = (pause * 2).min(Duration::from_millis(20));
            }
        }
        Ok(())
    }

    /// Removes the groups, last made first, waiting for what is still dying in them.
    ///
    /// # Errors
    /// [`CgroupError::Remove`] with all that is left; a later start finds it in the run's record.
    pub fn close(mut self) -> Result<(), CgroupError> {
        self.remove_all(REMOVE_PATIENCE)
    }

    /// The version 2 group.
    pub(super) fn unified(&self) -> Option<&Group> {
        self.unified.as_ref()
    }

    /// The version 1 group that has `controller`.
    pub(super) fn v1_group(&self, controller: Controller) -> Option<&Group> {
        self.v1
            .iter()
            .find(|(controllers, _)| controllers.contains(&controller))
            .map(|(_, group)| group)
    }

    /// The group that has `controller`, and whether it is a version 2 one.
    pub(super) fn with(&self, controller: Controller) -> Option<(&Group, bool)> {
        if self.missing.iter().any(|(absent, _)| *absent == controller) {
            return None;
        }
        match self.unified_limits {
            true => self.unified.as_ref().map(|group| (group, true)),
            false => self.v1_group(controller).map(|group| (group, false)),
        }
    }

    fn make(&mut self, parent: &str) -> Result<Group, CgroupError> {
        let path = group_path(parent, &self.run_id);
        let made = cgroup::make(&path).and_then(|()| {
            self.made.push(path.clone());
            Group::open(&path)
        });
        made.map_err(|source| CgroupError::Make {
            group: path,
            source,
        })
    }

    fn limit_v2(&mut self, limits: &CgroupLimits) -> Result<(), CgroupError> {
        if let Some((group, _)) = self.with(Controller::Memory)
            && let Some(bytes) = limits.memory_bytes
        {
            let swap_limited = limits::memory_v2(group, bytes)?;
            self.note_swap(swap_limited);
        }
        if let Some((group, _)) = self.with(Controller::Pids) {
            limits::processes(group, limits.processes)?;
        }
        if let Some((group, _)) = self.with(Controller::Cpu) {
            limits::cpu_v2(group, limits.cpu_millis)?;
        }
        Ok(())
    }

    fn limit_v1(
        &mut self,
        group: &Group,
        parent: &V1Parent,
        limits: &CgroupLimits,
    ) -> Result<(), CgroupError> {
        for controller in &parent.controllers {
            match (controller, limits.memory_bytes) {
                (Controller::Memory, Some(bytes)) => {
                    let swap_limited = limits::memory_v1(group, bytes)?;
                    self.note_swap(swap_limited);
                }
                (Controller::Pids, _) => limits::processes(group, limits.processes)?,
                (Controller::Cpu, _) => limits::cpu_v1(group, &parent.path, limits.cpu_millis)?,
                (Controller::Memory, None) | (Controller::Cpuacct, _) => (),
            }
        }
        Ok(())
    }

    fn note_swap(&mut self, limited: bool) {
        // The first line is the heading.
        let host_swaps =
            || std::fs::read_to_string("/proc/swaps").map_or(true, |text| 1 < text.lines().count());
        if !limited && host_swaps() {
            self.swap_unlimited =
                Some("this kernel does not count swap, and the host has some".to_owned());
        }
    }

    fn remove_all(&mut self, patience: Duration) -> Result<(), CgroupError> {
        let deadline = Instant::now() + patience;
        let mut left = Vec::new();
        let mut first: Option<CallError> = None;
        for path in std::mem::take(&mut self.made).into_iter().rev() {
            if let Err(error) = remove_when_empty(&path, deadline) {
                left.push(path);
                first.get_or_insert(error);
            }
        }
        match first {
            None => Ok(()),
            Some(source) => Err(CgroupError::Remove {
                groups: left,
                source,
            }),
        }
    }
}

impl Drop for RunCgroup {
    fn drop(&mut self) {
        if self.made.is_empty() {
            return;
        }
        // Nobody is left to be told. What fails here stays in the run's record, and a later start
        // kills and removes it. Without a free descriptor nothing can be killed, and an empty
        // group can be removed all the same.
        let patience = match self.kill() {
            Ok(()) => DROP_PATIENCE,
            Err(_) => Duration::ZERO,
        };
        if self.remove_all(patience).is_ok() {
            self.made.clear();
        }
    }
}

/// Kills what is listed until nothing is, frozen meanwhile where the group can be.
pub(super) fn sweep(group: &Group) -> Result<(), CallError> {
    let mut pause = Duration::from_micros(50);
    for _ in 0..KILL_SWEEPS_MAX {
        let frozen = freeze(group)?;
        let listed = group.kill_listed();
        if let Some((file, thaw)) = frozen {
            // A frozen process of version 1 ignores SIGKILL until it is thawed.
            group.write(file, thaw)?;
        }
        if listed? == 0 {
            return Ok(());
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(10));
    }
    Err(CallError::new(
        "kill",
        format!("what is in {}: each round finds more", group.path()),
        Errno::BUSY,
    ))
}

/// Freezes; returns how to thaw. `None`: this group has no freezer.
fn freeze(group: &Group) -> Result<Option<(&'static str, &'static str)>, CallError> {
    for (file, freeze, thaw) in [
        ("cgroup.freeze", "1", "0"),
        ("freezer.state", "FROZEN", "THAWED"),
    ] {
        match group.write(file, freeze) {
            Ok(()) => return Ok(Some((file, thaw))),
            Err(error) if error.errno == Errno::NOENT => (),
            Err(error) => return Err(error),
        }
    }
    Ok(None)
}

pub(super) fn remove_when_empty(path: &str, deadline: Instant) -> Result<(), CallError> {
    let mut pause = Duration::from_micros(100);
    loop {
        match cgroup::remove(path) {
            Ok(()) => return Ok(()),
            Err(error) if error.errno == Errno::NOENT => return Ok(()),
            Err(error) if error.errno == Errno::BUSY && Instant::now() < deadline => (),
            Err(error) => return Err(error),
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(20));
    }
}
