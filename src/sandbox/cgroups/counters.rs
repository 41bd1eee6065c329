//! What the groups of a run counted. Each is `None` where this kernel does not count it.

use super::run_cgroup::RunCgroup;
use super::{CgroupError, Controller};

/// CPU time of the whole tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CpuTime {
    /// User and system together, microseconds.
    pub total_us: u64,
    /// In user mode, microseconds.
    pub user_us: Option<u64>,
    /// In the kernel, microseconds.
    pub system_us: Option<u64>,
}

impl RunCgroup {
    /// CPU time so far. Version 1: from when the body joined; version 2: from clone on.
    ///
    /// # Errors
    /// [`CgroupError::Count`].
    pub fn cpu_time(&self) -> Result<Option<CpuTime>, CgroupError> {
        if let Some(group) = self.v1_group(Controller::Cpuacct) {
            let nanoseconds = |file| group.read_number(file).map_err(CgroupError::Count);
            let Some(total) = nanoseconds("cpuacct.usage")? else {
                return Ok(None);
            };
            return Ok(Some(CpuTime {
                total_us: total / 1_000,
                user_us: nanoseconds("cpuacct.usage_user")?.map(|time| time / 1_000),
                system_us: nanoseconds("cpuacct.usage_sys")?.map(|time| time / 1_000),
            }));
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

    /// Highest memory of the whole tree, files in memory included. Version 2: Linux 5.19.
    ///
    /// # Errors
    /// [`CgroupError::Count`].
    pub fn memory_peak_bytes(&self) -> Result<Option<u64>, CgroupError> {
        match self.with(Controller::Memory) {
            Some((group, true)) => group.read_number("memory.peak"),
            Some((group, false)) => group.read_number("memory.max_usage_in_bytes"),
            None => Ok(None),
        }
        .map_err(CgroupError::Count)
    }

    /// Memory now.
    ///
    /// # Errors
    /// [`CgroupError::Count`].
    pub fn memory_bytes(&self) -> Result<Option<u64>, CgroupError> {
        match self.with(Controller::Memory) {
            Some((group, true)) => group.read_number("memory.current"),
            Some((group, false)) => group.read_number("memory.usage_in_bytes"),
            None => Ok(None),
        }
        .map_err(CgroupError::Count)
    }

    /// How much of the memory now is files in a tmpfs and shared memory, which ends with them and
    /// not with a process. What can be dropped and read again from a disk is not in it.
    ///
    /// # Errors
    /// [`CgroupError::Count`].
    pub fn memory_file_bytes(&self) -> Result<Option<u64>, CgroupError> {
        match self.with(Controller::Memory) {
            Some((group, true)) => group.read_keyed("memory.stat", "shmem"),
            Some((group, false)) => group.read_keyed("memory.stat", "total_shmem"),
            None => Ok(None),
        }
        .map_err(CgroupError::Count)
    }

    /// Processes that were killed for want of memory. Version 1: Linux 4.13.
    ///
    /// # Errors
    /// [`CgroupError::Count`].
    pub fn oom_kills(&self) -> Result<Option<u64>, CgroupError> {
        match self.with(Controller::Memory) {
            Some((group, true)) => group.read_keyed("memory.events", "oom_kill"),
            Some((group, false)) => group.read_keyed("memory.oom_control", "oom_kill"),
            None => Ok(None),
        }
        .map_err(CgroupError::Count)
    }

    /// Highest number of processes and threads at once. Linux 6.1 (`pids.peak`).
    ///
    /// # Errors
    /// [`CgroupError::Count`].
    pub fn processes_peak(&self) -> Result<Option<u64>, CgroupError> {
        match self.with(Controller::Pids) {
            Some((group, _)) => group.read_number("pids.peak").map_err(CgroupError::Count),
            None => Ok(None),
        }
    }

    /// How often a fork was refused because of the limit.
    ///
    /// # Errors
    /// [`CgroupError::Count`].
    pub fn process_limit_hits(&self) -> Result<Option<u64>, CgroupError> {
        match self.with(Controller::Pids) {
            Some((group, _)) => group
                .read_keyed("pids.events", "max")
                .map_err(CgroupError::Count),
            None => Ok(None),
        }
    }
}
