//! Progress reports and cancellation.

use std::time::Duration;

use crate::progress::Progress;

use crate::oci::error::OciError;

/// Longest time between two checks for cancellation.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Receives the progress of a transfer and can cancel it.
///
/// It is called for each piece of a body and several times a second during waits. The connections
/// of a registry share it.
pub trait Observer: Send + Sync {
    fn progress(&self, now: &Progress<'_>) {
        now.emit();
    }

    /// Whether the caller cancelled. Once true, it must stay true.
    fn is_cancelled(&self) -> bool;
}

/// Observer that ignores progress and never cancels.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoObserver;

impl Observer for NoObserver {
    fn progress(&self, _now: &Progress<'_>) {}

    fn is_cancelled(&self) -> bool {
        false
    }
}

impl dyn Observer + '_ {
    /// Fails if the caller cancelled.
    pub(super) fn check(&self, during: &'static str) -> Result<(), OciError> {
        if self.is_cancelled() {
            return Err(OciError::Cancelled { during });
        }
        Ok(())
    }

    /// Reports `cause` and sleeps.
    pub(super) fn pause(
        &self,
        cause: &str,
        pause: Duration,
        during: &'static str,
    ) -> Result<(), OciError> {
        self.check(during)?;
        self.progress(&Progress::Waiting { cause, pause });
        let mut left = pause;
        while !left.is_zero() {
            let now = left.min(POLL_INTERVAL);
            std::thread::sleep(now);
            left -= now;
            self.check(during)?;
        }
        Ok(())
    }
}
