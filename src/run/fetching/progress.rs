//! Progress events before the body starts: pulling, unpacking, installing.
//!
//! TRACE: transient lines. DEBUG: completed steps. INFO: facts that a caller needs.

use std::sync::OnceLock;
use std::time::Instant;

use sources::progress::Progress;

/// One step before the body starts, with an event at its end.
#[derive(Debug)]
pub(in crate::run) struct ProgressStep {
    /// `image oci:DIR`, `source models`, `npm packages left-pad`.
    name: String,
    started: Instant,
    result: OnceLock<&'static str>,
}

impl ProgressStep {
    /// Emits no event yet: a hit in the store takes no time.
    pub(in crate::run) fn start(name: String) -> Self {
        Self {
            name,
            started: Instant::now(),
            result: OnceLock::new(),
        }
    }

    /// Reports received bytes, or that an answer is pending.
    pub(super) fn report_transfer(&self, progress: &Progress<'_>) {
        progress.emit_for(&self.name);
    }

    pub(in crate::run) fn report_installing(&self) {
        // Nothing else is shown until it has ended.
        tracing::trace!(is_long = true, "{}: installing", self.name);
    }

    /// Sets the result; later calls have no effect.
    pub(in crate::run) fn succeed(&self, result: &'static str) {
        self.result.get_or_init(|| result);
    }
}

impl Drop for ProgressStep {
    fn drop(&mut self) {
        let result = self.result.get().copied().unwrap_or("failed");
        let tenths = self.started.elapsed().as_millis() / 100;
        tracing::debug!("{}: {result}, {}.{} s", self.name, tenths / 10, tenths % 10);
    }
}
