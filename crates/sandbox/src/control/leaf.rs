//! The cgroup of one command: its limits, what it counts, and its removal once nothing runs in it.

use std::os::fd::OwnedFd;
use std::time::Duration;

use crate::cgroups::{CgroupError, CgroupLimits, Counted, RunCgroup};
use crate::host::processors;
use crate::supervise::meter::time_to_next_sample;
use spec::report::Usage;
use spec::sandboxes::CommandLimits;

/// How often one is looked at in which a command has left processes.
const REMOVE_PERIOD: Duration = Duration::from_secs(1);

/// Times are those of [`super::clock::Clock`].
#[derive(Debug)]
pub(super) struct Leaf {
    group: RunCgroup,
    cpu_time: Option<Duration>,
    /// When the CPU time is looked at.
    next_sample: Option<Duration>,
}

impl Leaf {
    /// Creates it below `group`, and opens the files to which the command's first process writes `0`. `None`:
    /// there is no cgroup that counts or limits.
    ///
    /// # Errors
    /// [`CgroupError`].
    pub(super) fn create(
        group: &mut RunCgroup,
        limits: &CommandLimits,
        now: Duration,
    ) -> Result<Option<(Self, Vec<OwnedFd>)>, CgroupError> {
        let created = group.create_leaf(&CgroupLimits {
            memory_bytes: limits.memory_bytes,
            processes: limits.processes,
            cpu_millis: limits.cpu_millis,
            kills_one: false,
        })?;
        let cpu_time = limits.cpu_time_ms.map(Duration::from_millis);
        Ok(created.map(|(group, joins)| {
            let mut leaf = Self {
                group,
                cpu_time,
                next_sample: None,
            };
            leaf.schedule(Duration::ZERO, now);
            (leaf, joins)
        }))
    }

    /// When [`Leaf::is_exhausted`] has something to do.
    pub(super) fn next_sample(&self) -> Option<Duration> {
        self.next_sample
    }

    /// Whether the CPU time has been used up. Looks at it only when a sample is due.
    pub(super) fn is_exhausted(&mut self, now: Duration) -> bool {
        let (Some(limit), Some(next)) = (self.cpu_time, self.next_sample) else {
            return false;
        };
        if now < next {
            return false;
        }
        let used = self.cpu_time_used();
        if used >= limit {
            return true;
        }
        self.schedule(used, now);
        false
    }

    fn schedule(&mut self, used: Duration, now: Duration) {
        let wait = |limit| time_to_next_sample(limit, used, processors());
        self.next_sample = self.cpu_time.map(|limit| now.saturating_add(wait(limit)));
    }

    fn cpu_time_used(&self) -> Duration {
        // Unreadable: the counter goes on, and the next sample sees it.
        let time = self.group.cpu_time().ok().flatten();
        time.map_or(Duration::ZERO, |time| Duration::from_micros(time.total_us))
    }

    pub(super) fn count(&self) -> Measured {
        let counted = self.group.count();
        let used = counted.cpu_time.map(|time| time.total_us);
        let used = used.map(Duration::from_micros);
        Measured {
            counted,
            cpu_time_reached: self.cpu_time.is_some_and(|limit| used >= Some(limit)),
        }
    }

    /// Kills everything in it.
    ///
    /// # Errors
    /// [`CgroupError::Kill`].
    pub(super) fn kill(&self) -> Result<(), CgroupError> {
        self.group.kill()
    }

    /// Removes it if nothing runs in it.
    fn remove_if_empty(&mut self) -> bool {
        self.group.remove_if_empty()
    }
}

/// What a leaf counted.
#[derive(Debug, Clone, Copy)]
pub(super) struct Measured {
    pub(super) counted: Counted,
    pub(super) cpu_time_reached: bool,
}

impl Measured {
    pub(super) fn usage(&self, wall_time_ms: u64) -> Usage {
        let milliseconds = |time_us: Option<u64>| time_us.map(|time_us| time_us / 1_000);
        let cpu_time = self.counted.cpu_time;
        Usage {
            wall_time_ms,
            user_time_ms: milliseconds(cpu_time.and_then(|time| time.user_us)),
            system_time_ms: milliseconds(cpu_time.and_then(|time| time.system_us)),
            memory_peak_bytes: self.counted.memory_peak_bytes,
            processes_peak: self.counted.processes_peak,
            written_bytes: None,
            oom_kills: self.counted.oom_kills,
        }
    }
}

/// The cgroups of commands whose first process has ended.
#[derive(Debug, Default)]
pub(super) struct LeftLeaves {
    /// In which processes are left.
    left: Vec<Leaf>,
    /// When they are looked at.
    next_removal: Option<Duration>,
    /// Of those that were removed, for the report of the sandbox.
    removed: Counted,
}

impl LeftLeaves {
    /// Takes one whose command has ended or was not started. It stays until it is empty.
    pub(super) fn add(&mut self, leaf: Leaf, now: Duration) {
        self.left.push(leaf);
        self.remove_empty(now);
    }

    pub(super) fn next_due(&self) -> Option<Duration> {
        let samples = self.left.iter().filter_map(Leaf::next_sample);
        samples.chain(self.next_removal).min()
    }

    /// Removes those that are empty, and kills what has used up the CPU time of its command.
    ///
    /// # Errors
    /// [`CgroupError::Kill`]; it is tried again.
    pub(super) fn check(&mut self, now: Duration) -> Result<(), CgroupError> {
        let mut killed = Ok(());
        for leaf in &mut self.left {
            if leaf.is_exhausted(now) {
                killed = killed.and(leaf.kill());
                leaf.next_sample = Some(now.saturating_add(REMOVE_PERIOD));
            }
        }
        if self.next_removal.is_some_and(|at| at <= now) || killed.is_err() {
            self.remove_empty(now);
        }
        killed
    }

    fn remove_empty(&mut self, now: Duration) {
        for mut leaf in std::mem::take(&mut self.left) {
            // Its counters go with it.
            let counted = leaf.group.count();
            match leaf.remove_if_empty() {
                true => self.keep_count(&counted),
                false => self.left.push(leaf),
            }
        }
        let is_any = !self.left.is_empty();
        self.next_removal = is_any.then(|| now.saturating_add(REMOVE_PERIOD));
    }

    fn keep_count(&mut self, counted: &Counted) {
        let add = |sum: &mut Option<u64>, more: Option<u64>| {
            *sum = Some(sum.unwrap_or(0) + more.unwrap_or(0));
        };
        add(&mut self.removed.oom_kills, counted.oom_kills);
        add(&mut self.removed.refused_forks, counted.refused_forks);
    }

    /// Adds to the cgroup of the sandbox what all have counted, once everything in them has ended.
    pub(super) fn finish(&mut self, running: Vec<Leaf>, group: &mut RunCgroup) {
        self.left.extend(running);
        for leaf in std::mem::take(&mut self.left) {
            let counted = leaf.group.count();
            self.keep_count(&counted);
        }
        group.add_of_leaf(&self.removed);
    }
}
