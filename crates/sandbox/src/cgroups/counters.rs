//! Counters of a run's cgroups. Each is `None` if the kernel does not have it.

use super::run_cgroup::RunCgroup;
use super::{CgroupError, Controller};

/// CPU time of the whole tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CpuTime {
    /// User and system, microseconds.
    pub total_us: u64,
    pub user_us: Option<u64>,
    pub system_us: Option<u64>,
}

/// All counters of a run that has ended. Unreadable ones are `None`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counted {
    pub cpu_time: Option<CpuTime>,
    pub memory_peak_bytes: Option<u64>,
    /// Tmpfs and shared memory at the end, bytes; only after an OOM kill.
    pub memory_file_bytes: Option<u64>,
    pub processes_peak: Option<u64>,
    /// Forks that the limit of processes refused.
    pub refused_forks: Option<u64>,
    pub oom_kills: Option<u64>,
}

impl RunCgroup {
    /// Reads all counters. Call it when the cgroups are empty.
    #[must_use]
    pub fn count(&self) -> Counted {
        let oom_kills = self.oom_kills().ok().flatten();
        let processes_peak = self.processes_peak().ok().flatten();
        Counted {
            cpu_time: self.cpu_time().ok().flatten(),
            memory_peak_bytes: self.memory_peak_bytes().ok().flatten(),
            memory_file_bytes: match oom_kills {
                None | Some(0) => None,
                Some(_) => self.memory_file_bytes().ok().flatten(),
            },
            processes_peak,
            refused_forks: match (processes_peak, self.process_limit) {
                (_, None) => None,
                (Some(peak), Some(limit)) if peak < limit => Some(0),
                _ => self.process_limit_hits().ok().flatten(),
            },
            oom_kills,
        }
    }

    /// CPU time so far. Version 1 counts from the join of the body, version 2 from the clone.
    pub fn cpu_time(&self) -> Result<Option<CpuTime>, CgroupError> {
        if let Some(group) = self.v1_group(Controller::Cpuacct) {
            let nanoseconds = |file| group.read_number(file).map_err(CgroupError::Count);
            let Some(total) = nanoseconds("cpuacct.usage")? else {
                return Ok(None);
            };
            let user = nanoseconds("cpuacct.usage_user")?;
            let system = nanoseconds("cpuacct.usage_sys")?;
            return Ok(Some(split(total / 1_000, user.zip(system))));
        }
        let Some(group) = self.unified() else {
            return Ok(None);
        };
        let microseconds = |key| {
            group
                .read_keyed("cpu.stat", key)
                .map_err(CgroupError::Count)
        };
        let Some(total_us) = microseconds("usage_usec")? else {
            return Ok(None);
        };
        Ok(Some(CpuTime {
            total_us,
            user_us: microseconds("user_usec")?,
            system_us: microseconds("system_usec")?,
        }))
    }

    /// Peak memory of the whole tree, including page cache. Version 2: Linux 5.19.
    pub fn memory_peak_bytes(&self) -> Result<Option<u64>, CgroupError> {
        let v1 = Counter::Number("memory.max_usage_in_bytes");
        self.read(Controller::Memory, Counter::Number("memory.peak"), v1)
    }

    /// Current memory of tmpfs files and shared memory, which outlives a process. Excludes page
    /// cache of disks.
    pub fn memory_file_bytes(&self) -> Result<Option<u64>, CgroupError> {
        let v2 = Counter::Keyed("memory.stat", "shmem");
        let v1 = Counter::Keyed("memory.stat", "total_shmem");
        self.read(Controller::Memory, v2, v1)
    }

    /// Number of OOM kills. Version 1: Linux 4.13.
    pub fn oom_kills(&self) -> Result<Option<u64>, CgroupError> {
        let v2 = Counter::Keyed("memory.events", "oom_kill");
        let v1 = Counter::Keyed("memory.oom_control", "oom_kill");
        let counted = self.read(Controller::Memory, v2, v1)?;
        Ok(counted.map(|kills| kills + self.leaves.oom_kills))
    }

    /// Peak number of processes and threads. Linux 6.1 (`pids.peak`).
    pub fn processes_peak(&self) -> Result<Option<u64>, CgroupError> {
        let counter = Counter::Number("pids.peak");
        self.read(Controller::Pids, counter, counter)
    }

    /// Number of forks refused by the limit.
    pub fn process_limit_hits(&self) -> Result<Option<u64>, CgroupError> {
        let counter = Counter::Keyed("pids.events", "max");
        let counted = self.read(Controller::Pids, counter, counter)?;
        // Before Linux 6.11 they are counted where the process is.
        let shared = self.leaves.shared.as_ref();
        let shared = shared.map(|group| group.read_keyed("pids.events", "max"));
        let shared = shared.transpose().map_err(CgroupError::Count)?.flatten();
        let below = self.leaves.refused_forks + shared.unwrap_or(0);
        Ok(counted.map(|refused| refused + below))
    }

    /// Reads a counter of `controller`: `v2` or `v1`, by the version of its cgroup.
    pub(super) fn read(
        &self,
        controller: Controller,
        v2: Counter,
        v1: Counter,
    ) -> Result<Option<u64>, CgroupError> {
        let Some(group) = self.group_with(controller) else {
            return Ok(None);
        };
        match if self.is_v2() { v2 } else { v1 } {
            Counter::Number(file) => group.read_number(file),
            Counter::Keyed(file, key) => group.read_keyed(file, key),
        }
        .map_err(CgroupError::Count)
    }
}

#[derive(Clone, Copy)]
pub(super) enum Counter {
    Number(&'static str),
    Keyed(&'static str, &'static str),
}

/// Splits the total by the ratio of the sampled parts: version 1 measures the total but samples the
/// parts at each tick, so their sum may be larger. Without samples all is user time, as in wait4(2).
fn split(total_us: u64, sampled: Option<(u64, u64)>) -> CpuTime {
    let Some((user, system)) = sampled else {
        return CpuTime {
            total_us,
            user_us: None,
            system_us: None,
        };
    };
    let both = (u128::from(user) + u128::from(system)).max(1);
    let system_us = u128::from(total_us) * u128::from(system) / both;
    let system_us = u64::try_from(system_us).unwrap_or(total_us).min(total_us);
    CpuTime {
        total_us,
        user_us: Some(total_us - system_us),
        system_us: Some(system_us),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parts_of_cpu_time_add_up_to_the_total() {
        let of = |total, user, system| {
            let time = split(total, Some((user, system)));
            (time.user_us, time.system_us)
        };
        assert_eq!(of(1_000, 0, 0), (Some(1_000), Some(0)));
        assert_eq!(of(1_000, 9_000, 3_000), (Some(750), Some(250)));
        assert_eq!(of(u64::MAX, 0, u64::MAX), (Some(0), Some(u64::MAX)));
        assert_eq!(split(5, None).user_us, None);
    }
}
