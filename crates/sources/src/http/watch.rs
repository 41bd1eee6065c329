//! Cancellation of waits.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

pub(super) const LOOK_EVERY: Duration = Duration::from_millis(200);

/// Callback that is polled several times a second while waiting.
#[derive(Clone, Default)]
pub(crate) struct Watch(Option<Arc<dyn Fn() -> bool + Send + Sync>>);

/// The caller cancelled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("cancelled")]
pub(crate) struct Cancelled;

impl Watch {
    /// Creates a watch that cancels once `is_over` returns true.
    #[must_use]
    pub(crate) fn new(is_over: Arc<dyn Fn() -> bool + Send + Sync>) -> Self {
        Self(Some(is_over))
    }

    /// Whether the caller cancelled.
    #[must_use]
    pub(crate) fn is_over(&self) -> bool {
        self.0.as_ref().is_some_and(|is_over| is_over())
    }

    /// Sleeps.
    ///
    /// # Errors
    /// [`Cancelled`], as soon as the caller cancels.
    pub(crate) fn pause(&self, pause: Duration) -> Result<(), Cancelled> {
        let started = Instant::now();
        loop {
            if self.is_over() {
                return Err(Cancelled);
            }
            let left = pause.saturating_sub(started.elapsed());
            if left.is_zero() {
                return Ok(());
            }
            std::thread::sleep(left.min(LOOK_EVERY));
        }
    }
}

impl fmt::Debug for Watch {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Watch({})", self.0.is_some())
    }
}
