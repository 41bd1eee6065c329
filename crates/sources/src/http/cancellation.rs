//! Cancellation of waits.

use std::fmt;
use std::sync::Arc;

/// Callback that is polled several times a second during waits. The default never cancels.
#[derive(Clone, Default)]
pub(crate) struct Cancellation(Option<Arc<dyn Fn() -> bool + Send + Sync>>);

impl Cancellation {
    #[must_use]
    pub(crate) fn new(is_cancelled: Arc<dyn Fn() -> bool + Send + Sync>) -> Self {
        Self(Some(is_cancelled))
    }

    #[must_use]
    pub(crate) fn is_cancelled(&self) -> bool {
        self.0.as_ref().is_some_and(|is_cancelled| is_cancelled())
    }
}

impl fmt::Debug for Cancellation {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Cancellation({})", self.0.is_some())
    }
}
