//! Progress reports and cancellation.

use std::time::Duration;

use crate::progress::Progress;

use crate::oci::error::OciError;

/// Longest time between two checks for cancellation.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Decides about cancellation, and may add to the events of a transfer.
///
/// It is called for each piece of a body and several times a second during waits, also from within
/// a connection. Hence `Send`, `Sync` and the `Arc` of a registry.
pub trait Observer: Send + Sync {
    fn progress(&self, now: &Progress<'_>) {
        now.emit();
    }

    /// Returns whether the caller cancelled. Once true, it must stay true.
    fn is_cancelled(&self) -> bool;
}

/// Observer that emits nothing and never cancels.
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
        match self.is_cancelled() {
            true => Err(OciError::Cancelled { during }),
            false => Ok(()),
        }
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
            let now = left.min(LOOK_EVERY);
            std::thread::sleep(now);
            left -= now;
            self.check(during)?;
        }
        Ok(())
    }
}
