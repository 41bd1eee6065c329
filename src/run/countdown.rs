//! The remaining wall time. Preparation counts, except for fetching.
//!
//! Unpacking, validation and staging depend on the untrusted bundle, so they count against the
//! limit. Fetching images and sources, installing `needs` and asking for secrets have limits of
//! their own and stop the clock. Creating the sandbox is not counted.

use std::cell::Cell;
use std::time::{Duration, Instant};

use crate::run::error::RunError;

/// A time limit and the time used.
#[derive(Debug)]
pub(super) struct Countdown {
    /// `None`: no limit, or not known yet.
    limit: Cell<Option<Duration>>,
    since: Instant,
    stopped: Cell<Duration>,
}

impl Countdown {
    /// Starts the clock; `limit` is the caller's, [`Duration::MAX`] for no limit.
    pub(super) fn start(limit: Option<Duration>) -> Self {
        Self {
            limit: Cell::new(limit.filter(|limit| *limit != Duration::MAX)),
            since: Instant::now(),
            stopped: Cell::default(),
        }
    }

    /// Sets the effective limit.
    pub(super) fn hold_to(&self, limit: Option<Duration>) {
        self.limit.set(limit);
    }

    /// Does `work` while the clock is stopped.
    pub(super) fn stopped<Done>(&self, work: impl FnOnce() -> Done) -> Done {
        let begun = Instant::now();
        let done = work();
        self.stopped.set(self.stopped.get() + begun.elapsed());
        done
    }

    /// The remaining time; `None` without a limit.
    pub(super) fn left(&self) -> Option<Duration> {
        let used = self.since.elapsed().saturating_sub(self.stopped.get());
        self.limit.get().map(|limit| limit.saturating_sub(used))
    }

    /// Fails if no time is left; `act` names the step for the message.
    ///
    /// # Errors
    /// [`RunError::TimedOut`].
    pub(super) fn check(&self, act: &'static str) -> Result<(), RunError> {
        match self.left() {
            Some(Duration::ZERO) => Err(RunError::TimedOut { act }),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_used_is_missing_and_what_stopped_the_clock_is_not() {
        let none = Countdown::start(Some(Duration::MAX));
        assert_eq!(none.left(), None);
        assert!(none.check("act").is_ok());
        none.hold_to(Some(Duration::ZERO));
        assert!(none.check("act").is_err());

        let used = Duration::from_secs(2);
        let limit = Duration::from_secs(3_600);
        let clock = Countdown {
            since: Instant::now().checked_sub(used).expect("it runs longer"),
            ..Countdown::start(Some(limit))
        };
        assert!(clock.left().is_some_and(|left| left <= limit - used));
        clock.hold_to(Some(used));
        assert_eq!(clock.left(), Some(Duration::ZERO));
        clock.stopped.set(limit);
        assert_eq!(clock.left(), Some(used));
        assert_eq!(clock.stopped(|| 7), 7);
    }
}
