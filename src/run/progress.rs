//! What a run does before its body starts, as events: what it pulls, unpacks and installs.
//!
//! TRACE is for a line that comes and goes, DEBUG for what was done, INFO for what a caller has to know.

use std::sync::OnceLock;
use std::time::Instant;

use sources::progress::Progress;

/// One thing that is done before the body starts. An event has its end, with success or failure.
#[derive(Debug)]
pub(super) struct Act {
    /// `image oci:DIR`, `source models`, `npm packages left-pad`.
    what: String,
    begun: Instant,
    how: OnceLock<&'static str>,
}

impl Act {
    /// Emits nothing yet: what is in the store takes no time.
    pub(super) fn begin(what: String) -> Self {
        Self {
            what,
            begun: Instant::now(),
            how: OnceLock::new(),
        }
    }

    /// Bytes have come, or an answer is waited for.
    pub(super) fn transfer(&self, progress: &Progress<'_>) {
        progress.emit_for(&self.what);
    }

    pub(super) fn installing(&self) {
        tracing::trace!("{}: installing", self.what);
    }

    /// It succeeded; the first word counts.
    pub(super) fn succeeded(&self, how: &'static str) {
        self.how.get_or_init(|| how);
    }
}

impl Drop for Act {
    fn drop(&mut self) {
        let how = self.how.get().copied().unwrap_or("failed");
        let tenths = self.begun.elapsed().as_millis() / 100;
        tracing::debug!("{}: {how}, {}.{} s", self.what, tenths / 10, tenths % 10);
    }
}
