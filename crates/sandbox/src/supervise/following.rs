//! Tells of a body's denials while it runs: in batches, so that a body that makes many of them costs little.

use std::time::{Duration, Instant};

use crate::refused_calls::RefusedCalls;

/// Least time between the beginnings of two batches.
const PERIOD: Duration = Duration::from_millis(100);
/// Longest time of a batch, but for its last entry.
const BATCH_TIME: Duration = Duration::from_millis(5);

/// Who is told of denials while the body runs.
pub trait Follower {
    /// Looks at what is new, until `until` at most. Returns whether there is more.
    fn follow(&mut self, calls: &RefusedCalls, until: Instant) -> bool;
}

pub(super) struct Following<'run> {
    follower: Option<&'run mut dyn Follower>,
    /// Distinct events until the last batch.
    known: usize,
    has_more: bool,
    next: Instant,
}

impl<'run> Following<'run> {
    pub(super) fn new(follower: Option<&'run mut dyn Follower>, now: Instant) -> Self {
        Self {
            follower,
            known: 0,
            has_more: false,
            next: now,
        }
    }

    /// When [`Following::turn`] has work.
    pub(super) fn deadline(&self, calls: &RefusedCalls) -> Option<Instant> {
        self.follower.as_ref()?;
        (self.has_more || calls.distinct() > self.known).then_some(self.next)
    }

    pub(super) fn turn(&mut self, calls: &RefusedCalls, now: Instant) {
        if self.deadline(calls).is_none_or(|at| now < at) {
            return;
        }
        if let Some(follower) = &mut self.follower {
            self.known = calls.distinct();
            self.has_more = follower.follow(calls, now + BATCH_TIME);
            self.next = now + PERIOD;
        }
    }
}
