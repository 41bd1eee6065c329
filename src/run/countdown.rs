//! The rest of the wall time limit until the body starts.
//!
//! Unpacking, validation and staging depend on the untrusted bundle, so they count against the
//! limit. Fetching images and sources and installing `needs` have limits of their own and pause the
//! clock. It starts once the sandbox exists, and is read for the last time before secrets are read.

use std::cell::Cell;
use std::time::{Duration, Instant};

use crate::run::error::RunError;

/// A time limit and the time used.
#[derive(Debug)]
pub(super) struct Countdown {
    /// `None`: no limit, or not known yet.
    limit: Cell<Option<Duration>>,
    started: Instant,
    paused: Cell<Duration>,
}

impl Countdown {
    /// Starts the clock. The caller's `limit` is [`Duration::MAX`] for no limit, and `None` if the
    /// manifest may set one.
    pub(super) fn start(limit: Option<Duration>) -> Self {
        Self {
            limit: Cell::new(limit.filter(|limit| *limit != Duration::MAX)),
            started: Instant::now(),
            paused: Cell::default(),
        }
    }

    pub(super) fn set_limit(&self, limit: Option<Duration>) {
        self.limit.set(limit);
    }

    pub(super) fn pause_during<Done>(&self, work: impl FnOnce() -> Done) -> Done {
        let paused_at = Instant::now();
        let done = work();
        self.paused.set(self.paused.get() + paused_at.elapsed());
        done
    }

    /// The remaining time; `None` without a limit.
    pub(super) fn remaining(&self) -> Option<Duration> {
        let used = self.started.elapsed().saturating_sub(self.paused.get());
        self.limit.get().map(|limit| limit.saturating_sub(used))
    }

    /// Fails if no time is left; `act` names the step for the message.
    pub(super) fn check(&self, act: &'static str) -> Result<(), RunError> {
        match self.remaining() {
            Some(Duration::ZERO) => Err(RunError::TimedOut { act }),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn used_time_counts_and_paused_time_does_not() {
        let none = Countdown::start(Some(Duration::MAX));
        assert_eq!(none.remaining(), None);
        assert!(none.check("act").is_ok());
        none.set_limit(Some(Duration::ZERO));
        assert!(none.check("act").is_err());

        let used = Duration::from_secs(2);
        let limit = Duration::from_secs(3_600);
        let clock = Countdown {
            started: Instant::now().checked_sub(used).expect("it runs longer"),
            ..Countdown::start(Some(limit))
        };
        assert!(clock.remaining().is_some_and(|left| left <= limit - used));
        clock.set_limit(Some(used));
        assert_eq!(clock.remaining(), Some(Duration::ZERO));
        clock.paused.set(limit);
        assert_eq!(clock.remaining(), Some(used));
        assert_eq!(clock.pause_during(|| 7), 7);
    }
}
