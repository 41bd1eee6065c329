//! Resource use of a run: counters of its cgroups, or samples of its processes.

use std::os::fd::BorrowedFd;

use crate::cgroups::{CgroupError, Counted, RunCgroup};
use crate::supervise::without_cgroup::{Sample, Sampler};

/// Counters of the run's cgroups, with samples for those that are missing.
#[derive(Debug)]
pub struct Meter<'run> {
    pub group: &'run mut RunCgroup,
    /// Final counts, once the cgroups are empty.
    pub counted: Option<Counted>,
    sampler: Option<Sampler<'run>>,
}

impl<'run> Meter<'run> {
    /// `proc` is the proc of the run's pid namespace, through which its processes are sampled. Only
    /// needed without a cgroup.
    pub fn new(
        group: &'run mut RunCgroup,
        proc: Option<BorrowedFd<'run>>,
        memory_limit_bytes: Option<u64>,
    ) -> Self {
        Self {
            group,
            counted: None,
            sampler: proc.map(|proc| Sampler::new(proc, memory_limit_bytes)),
        }
    }

    /// CPU time of the whole tree, microseconds; `None` if unknown.
    pub(super) fn cpu_time_us(&mut self) -> Option<u64> {
        if let Ok(Some(time)) = self.group.cpu_time() {
            return Some(time.total_us);
        }
        self.sample().map(|sample| sample.cpu_time_us)
    }

    /// Memory of the whole tree, bytes; `None` if unknown or limited by a cgroup.
    pub(super) fn memory_bytes(&mut self) -> Option<u64> {
        self.sample().map(|sample| sample.memory_bytes)
    }

    fn sample(&mut self) -> Option<Sample> {
        self.sampler.as_mut()?.sample().ok()
    }

    /// Takes the final counts if possible. Call it when the body's first process has ended.
    pub(super) fn body_ended(&mut self) {
        self.counted = self.group.count_and_remove();
    }

    /// Kills every process of the run, in addition to SIGKILL to init.
    pub(super) fn kill_all(&mut self) -> Result<(), CgroupError> {
        self.group.kill()
    }
}
