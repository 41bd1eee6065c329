//! Progress events before the body starts: pulling, unpacking, installing.
//!
//! TRACE: transient lines; DEBUG: completed steps; INFO: facts that a caller needs.

use std::sync::OnceLock;
use std::time::Instant;

use sources::progress::Progress;

/// One step before the body starts, with an event at its end.
#[derive(Debug)]
pub(super) struct Act {
    /// `image oci:DIR`, `source models`, `npm packages left-pad`.
    what: String,
    begun: Instant,
    how: OnceLock<&'static str>,
}

impl Act {
    /// Emits nothing yet: a hit in the store takes no time.
    pub(super) fn begin(what: String) -> Self {
        Self {
            what,
            begun: Instant::now(),
            how: OnceLock::new(),
        }
    }

    /// Reports received bytes, or that an answer is pending.
    pub(super) fn transfer(&self, progress: &Progress<'_>) {
        progress.emit_for(&self.what);
    }

    pub(super) fn installing(&self) {
        tracing::trace!("{}: installing", self.what);
    }

    /// Reports success; later calls have no effect.
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
