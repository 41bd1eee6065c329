//! Signals during writes that must not stop halfway: blocked, and checked between steps.

use std::io::Write;

use rustix::io::Errno;

use bundler::output::ENDING;
use sources::oci::observer::Observer;
use sources::progress::Progress;
use sys::signal::{SignalSet, is_pending};

fn is_signal_pending() -> bool {
    is_pending(SignalSet::of(&ENDING)).unwrap_or(true)
}

/// Cancels transfers when a blocked signal is pending. Unblocked signals end the process.
#[derive(Debug)]
pub(super) struct SignalObserver {
    pub(super) are_signals_blocked: bool,
}

impl Observer for SignalObserver {
    fn is_cancelled(&self) -> bool {
        self.are_signals_blocked && is_signal_pending()
    }
}

/// Reports the bytes written as progress, and fails when a signal is pending.
pub(super) struct CancellableWriter<'call> {
    inner: &'call mut dyn Write,
    bytes: u64,
}

impl<'call> CancellableWriter<'call> {
    pub(super) fn new(inner: &'call mut dyn Write) -> Self {
        Self { inner, bytes: 0 }
    }
}

impl Write for CancellableWriter<'_> {
    fn write(&mut self, buffer: &[u8]) -> std::io::Result<usize> {
        if is_signal_pending() {
            return Err(Errno::CANCELED.into());
        }
        let count = self.inner.write(buffer)?;
        self.bytes += count as u64;
        let kib = self.bytes.div_ceil(1024);
        tracing::trace!("the layer: {kib} KiB written");
        Ok(count)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.inner.flush()
    }
}

impl Drop for CancellableWriter<'_> {
    fn drop(&mut self) {
        Progress::Done.emit();
    }
}
