//! What the watch asks: the groups' counters, or what the supervisor adds up by itself.

use std::time::Instant;

use crate::run::progress::Ticker;
use sandbox::cgroups::{Counted, RunCgroup};
use sandbox::supervise::watch::Meter;
use sandbox::supervise::without_cgroup::Sampler;

/// Counters of the run's groups, and of its processes where a group does not count.
#[derive(Debug)]
pub(super) struct RunMeter<'run> {
    pub group: &'run mut RunCgroup,
    /// What they counted, once nothing lives in them any more.
    pub counted: Option<Counted>,
    /// Adds up the processes; only where no group counts.
    pub sampler: Option<Sampler<'run>>,
    /// Tells that a preparation goes on.
    pub ticker: Option<Ticker<'run>>,
}

impl Meter for RunMeter<'_> {
    fn cpu_time_us(&mut self) -> Option<u64> {
        if let Ok(Some(time)) = self.group.cpu_time() {
            return Some(time.total_us);
        }
        self.sampler
            .as_mut()
            .and_then(|sampler| sampler.sample().ok())
            .map(|now| now.cpu_time_us)
    }

    fn memory_bytes(&mut self) -> Option<u64> {
        self.sampler
            .as_mut()
            .and_then(|sampler| sampler.sample().ok())
            .map(|now| now.memory_bytes)
    }

    fn body_ended(&mut self) {
        self.counted = self.group.settle();
    }

    fn next_turn(&self) -> Option<Instant> {
        self.ticker.as_ref().map(Ticker::next)
    }

    fn turn(&mut self, now: Instant) {
        if let Some(ticker) = &mut self.ticker {
            ticker.turn(now);
        }
    }

    fn kill_all(&mut self) -> Result<(), String> {
        self.group.kill().map_err(|error| error.to_string())
    }
}
