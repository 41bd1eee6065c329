//! The use of a run over time, in a bounded number of samples.

use std::time::{Duration, Instant};

use crate::cgroups::RunCgroup;
use spec::limits::milliseconds;
use spec::usage_sample::UsageSample;

const PERIOD: Duration = Duration::from_millis(250);
const SAMPLES_MAX: usize = 240;

/// Samples at equal distances, which double whenever there would be too many.
#[derive(Debug)]
pub(super) struct Curve {
    started: Instant,
    period: Duration,
    next: Instant,
    samples: Vec<UsageSample>,
}

impl Curve {
    /// The first sample is due at once.
    pub(super) fn new(started: Instant) -> Self {
        Self {
            started,
            period: PERIOD,
            next: started,
            samples: Vec::with_capacity(SAMPLES_MAX),
        }
    }

    /// When the next sample is due.
    pub(super) fn next(&self) -> Instant {
        self.next
    }

    /// Reads the counters of the run. Without any there is no sample.
    pub(super) fn measure(&mut self, group: &RunCgroup, now: Instant) {
        let usage = group.usage();
        let sample = UsageSample {
            at_ms: milliseconds(now.duration_since(self.started)),
            memory_bytes: usage.memory_bytes,
            cpu_time_us: usage.cpu_time_us,
            processes: usage.processes,
            oom_kills: group.oom_kills().ok().flatten(),
        };
        self.add(sample, now);
    }

    fn add(&mut self, sample: UsageSample, now: Instant) {
        let UsageSample {
            at_ms: _,
            memory_bytes,
            cpu_time_us,
            processes,
            oom_kills,
        } = sample;
        let counters = [memory_bytes, cpu_time_us, processes, oom_kills];
        if counters.iter().any(Option::is_some) {
            if self.samples.len() == SAMPLES_MAX {
                let mut index = 0_usize;
                self.samples.retain(|_| {
                    index += 1;
                    !index.is_multiple_of(2)
                });
                self.period *= 2;
            }
            self.samples.push(sample);
        }
        self.next = now + self.period;
    }

    pub(super) fn into_samples(self) -> Vec<UsageSample> {
        self.samples
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sampled(seconds: u64) -> Vec<UsageSample> {
        let started = Instant::now();
        let mut curve = Curve::new(started);
        while curve.next() < started + Duration::from_secs(seconds) {
            let now = curve.next();
            let sample = UsageSample {
                at_ms: milliseconds(now.duration_since(started)),
                processes: Some(1),
                ..UsageSample::default()
            };
            curve.add(sample, now);
        }
        curve.into_samples()
    }

    #[test]
    fn the_samples_of_any_time_are_bounded_and_equally_far_apart() {
        for (seconds, count, distance_ms) in [
            (1, 4, 250),
            (60, 240, 250),
            (61, 122, 500),
            (120, 240, 500),
            (86_400, 169, 512_000),
        ] {
            let samples = sampled(seconds);
            assert_eq!(samples.len(), count, "{seconds} s");
            assert_eq!(samples[0].at_ms, 0);
            for pair in samples.windows(2) {
                assert_eq!(pair[1].at_ms - pair[0].at_ms, distance_ms, "{seconds} s");
            }
        }
    }

    #[test]
    fn a_run_without_counters_has_no_samples() {
        let started = Instant::now();
        let mut curve = Curve::new(started);
        curve.add(UsageSample::default(), started);
        assert_eq!(curve.next(), started + PERIOD);
        assert_eq!(curve.into_samples(), []);
    }
}
