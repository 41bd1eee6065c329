//! The caller's word that nothing is to be waited for any longer.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long is waited between two looks.
pub(super) const LOOK_EVERY: Duration = Duration::from_millis(200);

/// Is asked several times a second, while something is waited for, whether to go on.
#[derive(Clone, Default)]
pub struct Watch(Option<Arc<dyn Fn() -> bool + Send + Sync>>);

/// The caller wants an end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("cancelled")]
pub struct Cancelled;

impl Watch {
    /// Ends what waits once `is_over` says so.
    #[must_use]
    pub fn new(is_over: Arc<dyn Fn() -> bool + Send + Sync>) -> Self {
        Self(Some(is_over))
    }

    /// Whether to end.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.0.as_ref().is_some_and(|is_over| is_over())
    }

    /// Waits.
    ///
    /// # Errors
    /// [`Cancelled`], as soon as the caller wants an end.
    pub fn pause(&self, pause: Duration) -> Result<(), Cancelled> {
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
