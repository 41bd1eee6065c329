//! The time of a sandbox that stays. It stands still while the sandbox is paused.

use std::time::{Duration, Instant};

#[derive(Debug)]
pub(super) struct Clock {
    start: Instant,
    paused_since: Option<Instant>,
    /// Of earlier pauses.
    paused: Duration,
}

impl Clock {
    pub(super) fn new(start: Instant) -> Self {
        Self {
            start,
            paused_since: None,
            paused: Duration::ZERO,
        }
    }

    pub(super) fn is_paused(&self) -> bool {
        self.paused_since.is_some()
    }

    /// All pauses together.
    pub(super) fn paused_for(&self, now: Instant) -> Duration {
        let current = self.paused_since.map(|since| now.duration_since(since));
        self.paused + current.unwrap_or_default()
    }

    pub(super) fn pause(&mut self, now: Instant) {
        self.paused_since.get_or_insert(now);
    }

    pub(super) fn resume(&mut self, now: Instant) {
        self.paused = self.paused_for(now);
        self.paused_since = None;
    }

    /// Time since the start, without pauses.
    pub(super) fn elapsed(&self, now: Instant) -> Duration {
        now.duration_since(self.start)
            .saturating_sub(self.paused_for(now))
    }

    /// When [`Clock::elapsed`] will be `at`; `None`: it stands still, or that is beyond every clock.
    pub(super) fn instant_of(&self, at: Duration, now: Instant) -> Option<Instant> {
        if self.is_paused() {
            return None;
        }
        now.checked_add(at.saturating_sub(self.elapsed(now)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_add_up_and_one_that_goes_on_counts_until_now() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut clock = Clock::new(start);
        assert_eq!(clock.paused_for(at(5)), Duration::ZERO);
        clock.pause(at(10));
        // A second request changes nothing.
        clock.pause(at(12));
        assert_eq!(clock.paused_for(at(13)), Duration::from_secs(3));
        assert_eq!(clock.instant_of(Duration::from_secs(11), at(13)), None);
        clock.resume(at(20));
        clock.resume(at(25));
        assert_eq!(clock.paused_for(at(30)), Duration::from_secs(10));
        assert_eq!(clock.elapsed(at(30)), Duration::from_secs(20));
        assert_eq!(
            clock.instant_of(Duration::from_secs(21), at(30)),
            Some(at(31))
        );
        assert_eq!(
            clock.instant_of(Duration::from_secs(2), at(30)),
            Some(at(30))
        );
        assert_eq!(clock.instant_of(Duration::MAX, at(30)), None);
        clock.pause(at(30));
        assert_eq!(clock.paused_for(at(31)), Duration::from_secs(11));
    }
}
