//! Progress reports and cancellation.

use crate::progress::Progress;

/// Decides about cancellation, and may add to the events of a transfer.
///
/// It is called for each piece of a body and several times a second during waits, also from within
/// a connection. Hence `Send`, `Sync` and the `Arc` of a registry.
pub trait Listener: Send + Sync {
    fn progress(&self, now: &Progress<'_>) {
        now.emit();
    }

    /// Returns whether the caller cancelled. Once true, it must stay true.
    fn is_cancelled(&self) -> bool;
}

/// Listener that emits nothing and never cancels.
#[derive(Debug, Clone, Copy, Default)]
pub struct Silent;

impl Listener for Silent {
    fn progress(&self, _now: &Progress<'_>) {}

    fn is_cancelled(&self) -> bool {
        false
    }
}
