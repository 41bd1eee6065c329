//! The cgroups of one run: create, limit, kill and remove.

use std::os::fd::{BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::io::Errno;

use sys::cgroup::{self, Group};
use sys::file::CallError;

use super::counters::Counted;
use super::coverage;
use super::limits;
use super::{
    Backend, CgroupError, CgroupLimits, Controller, SUPERVISOR_LEAF, Unified, V1Parent, group_path,
};
use spec::limits::Coverage;

/// Wait for an emptying cgroup before it is reported as left.
pub(super) const REMOVE_PATIENCE: Duration = Duration::from_secs(2);
/// The same in `drop`.
const DROP_PATIENCE: Duration = Duration::from_millis(500);
/// Kill sweeps over a cgroup without `cgroup.kill`.
const KILL_SWEEPS_MAX: usize = 200;

/// The cgroups of one run. Call [`RunCgroup::close`]; drop kills and removes without reporting
/// errors, and the run's record keeps the rest.
#[derive(Debug)]
pub struct RunCgroup {
    run_id: String,
    mechanism: &'static str,
    planned: Vec<String>,
    /// In the order of creation; removed in reverse.
    made: Vec<String>,
    unified: Option<Group>,
    /// The version 2 cgroup has controllers, not only `cgroup.kill`.
    unified_limits: bool,
    freezer: Option<Group>,
    v1_parents: Vec<V1Parent>,
    v1: Vec<(Vec<Controller>, Group)>,
    missing: Vec<(Controller, String)>,
    swap_unlimited: Option<String>,
}

impl Backend {
    /// Creates the version 2 cgroup, which must exist before the child is cloned.
    ///
    /// If needed this first moves the supervisor into a leaf and enables controllers. A refused
    /// controller becomes a gap in [`RunCgroup::coverage`]. [`Backend::None`] creates no cgroups.
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

/// Enables the controllers with one write each, because one refusal fails a combined write. Returns
/// the refused ones.
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
    /// Directory for `CLONE_INTO_CGROUP`; `None` without a version 2 cgroup.
    #[must_use]
    pub fn clone_into(&self) -> Option<BorrowedFd<'_>> {
        self.unified.as_ref().map(Group::directory)
    }

    /// Creates the version 1 cgroups and sets the limits. Call it after clone, to run in parallel
    /// to the child.
    ///
    /// Returns the open `tasks` files of version 1. The child writes `0` to each before it unshares
    /// its cgroup namespace.
    ///
    /// # Errors
    /// [`CgroupError::Make`], [`CgroupError::Limit`], [`CgroupError::WayIn`].
    pub fn apply(&mut self, limits: &CgroupLimits) -> Result<Vec<OwnedFd>, CgroupError> {
        if self.unified_limits {
            self.limit_v2(limits)?;
            return Ok(Vec::new());
        }
        for parent in std::mem::take(&mut self.v1_parents) {
            // Without a limit this cgroup would only add an unused counter.
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

    /// Every directory that this run may have, as [`Backend::planned_paths`].
    #[must_use]
    pub fn paths(&self) -> Vec<String> {
        self.planned.clone()
    }

    /// How each limit is enforced, after [`Backend::create`] and [`RunCgroup::apply`].
    #[must_use]
    pub fn coverage(&self) -> Vec<Coverage> {
        coverage::of(
            self.mechanism,
            &self.missing,
            self.swap_unlimited.as_deref(),
        )
    }

    /// Sends SIGKILL to all processes in the run's cgroups. They may still be dying on return.
    ///
    /// The caller also kills init: it is in none of them without a version 2 tree, and neither is a
    /// child that has not joined yet.
    ///
    /// Uses `cgroup.kill` (Linux 5.14). Without it forks are refused (`pids.max`), the cgroup is
    /// frozen if possible, and listed processes are killed until none is left.
    ///
    /// # Errors
    /// [`CgroupError::Kill`].
    pub fn kill(&self) -> Result<(), CgroupError> {
        let failed = |group: &Group| {
            let group = group.path().to_owned();
            move |source| CgroupError::Kill { group, source }
        };
        if self.made.is_empty() {
            // All are empty.
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
        // Prefer one with all processes; any of version 1, because the body is in all or none.
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

    /// Counts and removes the cgroups while init is dying; `None` if a process may still be in
    /// them. [`RunCgroup::close`] removes what remains.
    ///
    /// Only works if init is in none of them: version 1 with a preforked child.
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

    /// Waits until the cgroups are empty, so that the counters are final.
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

    /// Removes the cgroups, last created first, and waits for dying processes.
    ///
    /// # Errors
    /// [`CgroupError::Remove`] with all that is left; a later start finds it in the run's record.
    pub fn close(mut self) -> Result<(), CgroupError> {
        self.remove_all(REMOVE_PATIENCE)
    }

    pub(super) fn unified(&self) -> Option<&Group> {
        self.unified.as_ref()
    }

    pub(super) fn v1_group(&self, controller: Controller) -> Option<&Group> {
        self.v1
            .iter()
            .find(|(controllers, _)| controllers.contains(&controller))
            .map(|(_, group)| group)
    }

    /// The cgroup with `controller`, and whether it is version 2.
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
        // Errors cannot be reported here; a later start cleans up from the record. Without a free
        // descriptor killing fails, but an empty cgroup can still be removed.
        let patience = match self.kill() {
            Ok(()) => DROP_PATIENCE,
            Err(_) => Duration::ZERO,
        };
        if self.remove_all(patience).is_ok() {
            self.made.clear();
        }
    }
}

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

/// Freezes and returns the file and value that thaw; `None` without a freezer.
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
