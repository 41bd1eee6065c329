//! A rate limit per second.

use std::time::{Duration, Instant};

#[derive(Debug)]
pub(crate) struct RateLimit {
    per_second: u32,
    /// Start of the current second.
    second: Instant,
    used: u32,
}

impl RateLimit {
    pub(crate) const fn new(per_second: u32, now: Instant) -> Self {
        Self {
            per_second,
            second: now,
            used: 0,
        }
    }

    /// Counts one event. Returns whether it is within the limit.
    pub(crate) fn allows(&mut self, now: Instant) -> bool {
        if self.next_second() <= now {
            *self = Self::new(self.per_second, now);
        }
        self.used = self.used.saturating_add(1);
        self.used <= self.per_second
    }

    /// When events are allowed again.
    pub(crate) fn next_second(&self) -> Instant {
        self.second + Duration::from_secs(1)
    }
}
