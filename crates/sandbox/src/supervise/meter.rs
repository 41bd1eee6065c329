//! Resource use of a run: counters of its cgroups, or samples of its processes.

use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use crate::cgroups::{CgroupError, Counted, CurrentUsage, RunCgroup};
use crate::supervise::curve::Curve;
use crate::supervise::without_cgroup::{Sample, Sampler};
use spec::usage_sample::UsageSample;

/// Counters of the run's cgroups, with samples for those that are missing.
#[derive(Debug)]
pub struct Meter<'run> {
    pub group: &'run mut RunCgroup,
    /// Final counts, once the cgroups are empty.
    pub counted: Option<Counted>,
    sampler: Option<Sampler<'run>>,
    curve: Option<Curve>,
}

const SAMPLE_PERIOD_MIN: Duration = Duration::from_millis(10);

/// When to look at CPU time again of which `used` is below `limit`: not before all CPUs together can have
/// used the rest.
pub(crate) fn time_to_next_sample(limit: Duration, used: Duration, processors: u32) -> Duration {
    let left = limit.saturating_sub(used) / processors.max(1);
    left.max(SAMPLE_PERIOD_MIN)
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
            curve: None,
        }
    }

    /// From now on, samples the counters of the cgroups for the report.
    pub fn start_curve(&mut self) {
        self.curve = Some(Curve::new(Instant::now()));
    }

    /// The samples; `None`: nothing was sampled.
    pub fn take_samples(&mut self) -> Option<Vec<UsageSample>> {
        let samples = self.curve.take()?.into_samples();
        (!samples.is_empty()).then_some(samples)
    }

    /// When the next sample of the curve is due.
    pub(super) fn next_of_curve(&self) -> Option<Instant> {
        self.curve.as_ref().map(Curve::next)
    }

    pub(super) fn extend_curve(&mut self, now: Instant) {
        if let Some(curve) = &mut self.curve {
            curve.measure(self.group, now);
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

    /// What the run uses now, by its cgroups, else by a sample of its processes.
    pub(super) fn usage(&mut self) -> CurrentUsage {
        let counted = self.group.usage();
        let sample = self.sample();
        CurrentUsage {
            memory_bytes: counted
                .memory_bytes
                .or(sample.map(|sample| sample.memory_bytes)),
            cpu_time_us: counted
                .cpu_time_us
                .or(sample.map(|sample| sample.cpu_time_us)),
            processes: counted.processes.or(sample.map(|sample| sample.processes)),
        }
    }

    fn sample(&mut self) -> Option<Sample> {
        self.sampler.as_mut()?.sample().ok()
    }

    /// Takes the final counts if possible. Call it when the body's first process has ended.
    pub(super) fn body_ended(&mut self, now: Instant) {
        self.extend_curve(now);
        self.counted = self.group.count_and_remove();
    }

    /// Kills every process of the run, in addition to SIGKILL to init.
    pub(super) fn kill_all(&mut self) -> Result<(), CgroupError> {
        self.group.kill()
    }
}
