//! Progress reports and cancellation.

use std::time::Duration;

use crate::oci::error::OciError;
use spec::digest::Digest;

/// Longest time without a look at the listener.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Receives progress and decides about cancellation.
///
/// It is called for each piece of a body and several times a second during waits, also from within
/// a connection. Hence `Send`, `Sync` and the `Arc` of a registry.
pub trait Listener: Send + Sync {
    fn progress(&self, now: &Progress<'_>);

    /// Returns whether the caller cancelled. Once true, it must stay true.
    fn is_cancelled(&self) -> bool;
}

/// Listener that ignores progress and never cancels.
#[derive(Debug, Clone, Copy, Default)]
pub struct Silent;

impl Listener for Silent {
    fn progress(&self, _now: &Progress<'_>) {}

    fn is_cancelled(&self) -> bool {
        false
    }
}

impl dyn Listener + '_ {
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

/// Current activity, for a terminal.
#[derive(Debug, Clone, Copy)]
pub enum Progress<'now> {
    Asking {
        /// Name of the origin, for messages.
        place: &'now str,
    },
    Receiving {
        digest: &'now Digest,
        bytes: u64,
        of_bytes: u64,
    },
    /// Part of a blob was unpacked; both counts are of compressed bytes.
    Unpacking {
        digest: &'now Digest,
        bytes: u64,
        of_bytes: u64,
    },
    Sending {
        digest: &'now Digest,
        bytes: u64,
        of_bytes: u64,
    },
    /// A retry follows after a pause.
    Waiting { cause: &'now str, pause: Duration },
    /// The activity ended, with success or failure.
    Done,
}
