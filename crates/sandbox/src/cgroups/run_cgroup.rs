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
    Backend, CgroupError, CgroupLimits, Controller, SUPERVISOR_LEAF, Unified, V1Parent, group_name,
    group_path, leaf,
};
use spec::limits::Coverage;

/// Maximum wait for a cgroup to become empty before removal fails.
pub(super) const REMOVE_PATIENCE: Duration = Duration::from_secs(2);
/// The same in `drop`.
const DROP_PATIENCE: Duration = Duration::from_millis(500);
const KILL_ROUNDS_MAX: usize = 200;

/// The cgroups of one run. Call [`RunCgroup::close`]: drop also kills and removes, but reports no
/// errors. What it cannot remove stays in the run's record.
#[derive(Debug)]
pub struct RunCgroup {
    /// Of the directory in each hierarchy.
    pub(super) name: String,
    pub(super) mechanism: &'static str,
    /// In the order of creation; removed in reverse.
    pub(super) created: Vec<String>,
    pub(super) unified: Option<Group>,
    /// The version 2 cgroup has controllers, not only `cgroup.kill`.
    pub(super) unified_limits: bool,
    freezer: Option<Group>,
    /// In which no version 1 cgroup was created.
    pub(super) v1_parents: Vec<V1Parent>,
    pub(super) v1: Vec<(Vec<Controller>, Group)>,
    pub(super) missing: Vec<(Controller, String)>,
    swap_unlimited: Option<String>,
    pub(super) process_limit: Option<u64>,
    /// File and value that let the stopped processes go on.
    thaw: Option<(&'static str, &'static str)>,
    /// Of a sandbox that stays.
    pub(super) leaves: leaf::Leaves,
}

impl Backend {
    /// Creates the cgroups that must exist before the child is cloned: version 2 and the freezer.
    ///
    /// If needed, first moves the supervisor into a leaf and enables controllers. A refused
    /// controller becomes a gap in [`RunCgroup::coverage`]. [`Backend::None`] creates no cgroups.
    pub fn create(&self, run_id: &str) -> Result<RunCgroup, CgroupError> {
        let (mechanism, missing) = self.mechanism();
        let mut run = RunCgroup::new(group_name(run_id), mechanism, missing);
        match self {
            Self::V2(unified) => {
                run.missing.extend(enable_controllers(unified)?);
                run.unified = Some(run.create_group(&unified.parent)?);
                run.unified_limits = true;
            }
            Self::V1(hybrid) => {
                run.v1_parents = hybrid.parents.clone();
                if let Some(parent) = &hybrid.unified {
                    run.unified = Some(run.create_group(parent)?);
                }
                if let Some(parent) = &hybrid.freezer {
                    run.freezer = Some(run.create_group(parent)?);
                }
            }
            Self::None { .. } => (),
        }
        Ok(run)
    }
}

/// Enables the controllers with one write each, because one refusal would fail a combined write.
/// Returns the refused ones.
fn enable_controllers(unified: &Unified) -> Result<Vec<(Controller, String)>, CgroupError> {
    if unified.to_enable.is_empty() {
        return Ok(Vec::new());
    }
    let parent = &unified.parent;
    if unified.move_to_leaf {
        let leaf = group_path(parent, &group_name(SUPERVISOR_LEAF));
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
    let group = Group::open(parent).map_err(|source| CgroupError::Create {
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
    pub(super) fn new(
        name: String,
        mechanism: &'static str,
        missing: Vec<(Controller, String)>,
    ) -> Self {
        Self {
            name,
            mechanism,
            created: Vec::new(),
            unified: None,
            unified_limits: false,
            freezer: None,
            v1_parents: Vec::new(),
            v1: Vec::new(),
            missing,
            swap_unlimited: None,
            process_limit: None,
            thaw: None,
            leaves: leaf::Leaves::default(),
        }
    }

    /// Directory for `CLONE_INTO_CGROUP`; `None` without a version 2 cgroup.
    #[must_use]
    pub fn clone_into(&self) -> Option<BorrowedFd<'_>> {
        let entered = self.leaves.shared.as_ref().or(self.unified.as_ref());
        entered.map(Group::directory)
    }

    /// Creates the version 1 cgroups and sets the limits. Call it after the clone, so that it runs in
    /// parallel to the child.
    ///
    /// Returns the open `tasks` files of version 1. The child must write `0` to each before it
    /// unshares its cgroup namespace.
    pub fn apply(&mut self, limits: &CgroupLimits) -> Result<Vec<OwnedFd>, CgroupError> {
        self.process_limit = limits.processes;
        if self.unified_limits {
            self.limit_v2(limits)?;
            return Ok(Vec::new());
        }
        for parent in std::mem::take(&mut self.v1_parents) {
            // Without a limit the cgroup would only add an unused counter.
            if parent.controllers == [Controller::Cpu] && limits.cpu_millis.is_none() {
                self.v1_parents.push(parent);
                continue;
            }
            let group = self.create_group(&parent.path)?;
            self.limit_v1(&group, &parent, limits)?;
            self.v1.push((parent.controllers, group));
        }
        let groups = self.v1.iter().map(|(_, group)| group);
        groups
            .chain(&self.freezer)
            .map(|group| {
                group.open_tasks().map_err(|source| CgroupError::OpenTasks {
                    group: group.path().to_owned(),
                    source,
                })
            })
            .collect()
    }

    /// The created cgroup directories, in the order of creation.
    #[must_use]
    pub fn paths(&self) -> Vec<String> {
        self.created.clone()
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

    /// Sends SIGKILL to all processes in the run's cgroups. On return they may still be dying.
    ///
    /// The caller must also kill init: without a version 2 tree init is in no cgroup of the run, and
    /// neither is a child that has not joined yet.
    ///
    /// Uses `cgroup.kill` (Linux 5.14). Without it, forbids forks (`pids.max`), freezes the cgroup if
    /// possible, and kills the listed processes until none is left.
    pub fn kill(&self) -> Result<(), CgroupError> {
        if self.created.is_empty() {
            // `count_and_remove` has removed all.
            return Ok(());
        }
        if let Some(group) = &self.unified {
            match group.kill_all() {
                Ok(()) => return Ok(()),
                Err(error) if error.errno == Errno::NOENT => (),
                Err(error) => return Err(CgroupError::kill(group.path())(error)),
            }
        }
        if let Some(group) = self.group_with(Controller::Pids) {
            let result = group.write("pids.max", "0");
            result.map_err(CgroupError::kill(group.path()))?;
        }
        // Any of version 1 will do, because the body is in all of them or none.
        match self.groups().next() {
            Some(group) => leaf::kill_all(group),
            None => Ok(()),
        }
    }

    /// Whether there is a group that `RunCgroup::pause` freezes.
    #[must_use]
    pub fn can_pause(&self) -> bool {
        self.with_all_processes().is_some()
    }

    /// Stops all processes of the run until [`RunCgroup::resume`] (cgroup freezer). Each stops when it next
    /// leaves the kernel. Returns `false` without a freezer.
    ///
    /// # Errors
    /// [`CgroupError::Freeze`].
    pub(crate) fn pause(&mut self) -> Result<bool, CgroupError> {
        let Some(group) = self.with_all_processes() else {
            return Ok(false);
        };
        let frozen = freeze(group).map_err(CgroupError::freeze(group.path()))?;
        self.thaw = frozen;
        Ok(frozen.is_some())
    }

    /// Lets them go on. Does nothing if they are not stopped.
    ///
    /// # Errors
    /// [`CgroupError::Freeze`].
    pub(crate) fn resume(&mut self) -> Result<(), CgroupError> {
        if let Some((group, (file, value))) = self.with_all_processes().zip(self.thaw) {
            let written = group.write(file, value);
            written.map_err(CgroupError::freeze(group.path()))?;
        }
        self.thaw = None;
        Ok(())
    }

    /// The group that can be frozen, in which init is, too.
    fn with_all_processes(&self) -> Option<&Group> {
        self.unified.as_ref().or(self.freezer.as_ref())
    }

    /// Reads the counters and removes the cgroups while init is dying. Returns `None` if a process
    /// may still be in them. [`RunCgroup::close`] removes what remains.
    ///
    /// Only works if init is in none of the cgroups: with version 1 and a preforked child.
    pub(crate) fn count_and_remove(&mut self) -> Option<Counted> {
        if self.unified.is_some() || self.freezer.is_some() {
            return None;
        }
        let group = self.group_with(Controller::Pids)?;
        if !matches!(group.read_number("pids.current"), Ok(Some(0))) {
            return None;
        }
        let counted = self.count();
        self.remove_if_empty();
        Some(counted)
    }

    /// Removes the cgroups, last created first. Waits for dying processes.
    ///
    /// # Errors
    /// [`CgroupError::Remove`] with all remaining cgroups. A later start finds them in the run's
    /// record.
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

    pub(super) fn group_with(&self, controller: Controller) -> Option<&Group> {
        if self.missing.iter().any(|(absent, _)| *absent == controller) {
            None
        } else if self.unified_limits {
            self.unified.as_ref()
        } else {
            self.v1_group(controller)
        }
    }

    pub(super) fn is_v2(&self) -> bool {
        self.unified_limits
    }

    /// All open cgroups. One with all processes, including init, comes first.
    fn groups(&self) -> impl Iterator<Item = &Group> {
        let v1 = self.v1.iter().map(|(_, group)| group);
        self.unified.iter().chain(&self.freezer).chain(v1)
    }

    pub(super) fn create_group(&mut self, parent: &str) -> Result<Group, CgroupError> {
        let path = group_path(parent, &self.name);
        let created = cgroup::make(&path).and_then(|()| {
            self.created.push(path.clone());
            Group::open(&path)
        });
        created.map_err(|source| CgroupError::Create {
            group: path,
            source,
        })
    }

    fn limit_v2(&mut self, limits: &CgroupLimits) -> Result<(), CgroupError> {
        let memory = self.group_with(Controller::Memory);
        if let Some((group, bytes)) = memory.zip(limits.memory_bytes) {
            let swap_limited = limits::memory_v2(group, bytes, limits.kills_one)?;
            self.note_swap(swap_limited);
        }
        let pids = self.group_with(Controller::Pids);
        if let Some((group, processes)) = pids.zip(limits.processes) {
            limits::processes(group, processes)?;
        }
        let cpu = self.group_with(Controller::Cpu);
        if let Some((group, cpu_millis)) = cpu.zip(limits.cpu_millis) {
            limits::cpu_v2(group, cpu_millis)?;
        }
        Ok(())
    }

    fn limit_v1(
        &mut self,
        group: &Group,
        parent: &V1Parent,
        limits: &CgroupLimits,
    ) -> Result<(), CgroupError> {
        let has = |controller| parent.controllers.contains(&controller);
        if let Some(bytes) = limits.memory_bytes.filter(|_| has(Controller::Memory)) {
            let swap_limited = limits::memory_v1(group, bytes)?;
            self.note_swap(swap_limited);
        }
        if let Some(processes) = limits.processes.filter(|_| has(Controller::Pids)) {
            limits::processes(group, processes)?;
        }
        if let Some(cpu_millis) = limits.cpu_millis.filter(|_| has(Controller::Cpu)) {
            limits::cpu_v1(group, &parent.path, cpu_millis)?;
        }
        Ok(())
    }

    fn note_swap(&mut self, is_limited: bool) {
        // The first line is the heading.
        let has_swap =
            || std::fs::read_to_string("/proc/swaps").map_or(true, |text| text.lines().count() > 1);
        if !is_limited && has_swap() {
            self.swap_unlimited =
                Some("this kernel does not count swap, and the host has swap".to_owned());
        }
    }

    fn remove_all(&mut self, patience: Duration) -> Result<(), CgroupError> {
        let deadline = Instant::now() + patience;
        let mut remaining = Vec::new();
        let mut first: Option<CallError> = None;
        for path in std::mem::take(&mut self.created).into_iter().rev() {
            if let Err(error) = remove_when_empty(&path, deadline) {
                remaining.push(path);
                first.get_or_insert(error);
            }
        }
        match first {
            None => Ok(()),
            Some(source) => Err(CgroupError::Remove {
                groups: remaining,
                source,
            }),
        }
    }
}

impl Drop for RunCgroup {
    fn drop(&mut self) {
        if self.created.is_empty() {
            return;
        }
        // Killing fails without a free descriptor, but an empty cgroup can still be removed.
        let patience = match self.kill() {
            Ok(()) => DROP_PATIENCE,
            Err(_) => Duration::ZERO,
        };
        // Errors cannot be reported here; a later start cleans up from the record.
        drop(self.remove_all(patience));
    }
}

pub(super) fn kill_until_empty(group: &Group) -> Result<(), CallError> {
    let mut pause = Duration::from_micros(50);
    for _ in 0..KILL_ROUNDS_MAX {
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
        format!("processes of {}: each round finds more", group.path()),
        Errno::BUSY,
    ))
}

/// Freezes the cgroup. Returns the file and value that thaw it; `None` without a freezer.
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
            Err(error) if error.errno == Errno::BUSY && Instant::now() < deadline => {
                leaf::remove_empty(path)?;
            }
            Err(error) => return Err(error),
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(20));
    }
}
