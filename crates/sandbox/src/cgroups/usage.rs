//! What a run uses now: the only place that reads it.

use super::Controller;
use super::counters::Counter;
use super::run_cgroup::RunCgroup;

/// What a run uses; `None`: this host does not measure it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CurrentUsage {
    /// Without the page cache that the kernel drops first, as `docker stats` counts.
    pub memory_bytes: Option<u64>,
    /// User and system, since the start.
    pub cpu_time_us: Option<u64>,
    /// Processes and threads.
    pub processes: Option<u64>,
}

impl RunCgroup {
    /// Reads what the run uses now.
    #[must_use]
    pub fn usage(&self) -> CurrentUsage {
        let number = |controller, v2, v1| {
            let read = self.read(controller, v2, v1);
            read.ok().flatten()
        };
        let memory = number(
            Controller::Memory,
            Counter::Number("memory.current"),
            Counter::Number("memory.usage_in_bytes"),
        );
        let cache = number(
            Controller::Memory,
            Counter::Keyed("memory.stat", "inactive_file"),
            Counter::Keyed("memory.stat", "total_inactive_file"),
        );
        let processes = Counter::Number("pids.current");
        let cpu_time = self.cpu_time().ok().flatten();
        CurrentUsage {
            memory_bytes: memory.map(|bytes| bytes.saturating_sub(cache.unwrap_or(0))),
            cpu_time_us: cpu_time.map(|time| time.total_us),
            processes: number(Controller::Pids, processes, processes),
        }
    }
}
