//! The end that a person asks for by a signal, while something is being written that must not stay
//! half done.

use std::io::Write;

use rustix::io::Errno;

use bundler::output::ENDING;
use sources::oci::observer::Observer;
use sources::progress::Progress;
use sys::signal::{SignalSet, is_pending, set_mask};

/// As long as it lives, signals that end programs wait; they end this one when it is dropped.
#[derive(Debug)]
pub(super) struct Held(());

impl Held {
    /// Holds them back.
    ///
    /// # Errors
    /// The errno of rt_sigprocmask(2).
    pub(super) fn back() -> Result<Self, Errno> {
        set_mask(SignalSet::of(&ENDING)).map(|()| Self(()))
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if set_mask(SignalSet::NONE).is_err() {
            // Refused is only what is no set of signals.
        }
    }
}

pub(super) fn has_come() -> bool {
    is_pending(SignalSet::of(&ENDING)).unwrap_or(true)
}

/// Ends transfers where a signal has come. Where signals are not held back they end the process.
#[derive(Debug)]
pub(super) struct UntilSignal {
    pub(super) is_held: bool,
}

impl Observer for UntilSignal {
    fn is_cancelled(&self) -> bool {
        self.is_held && has_come()
    }
}

/// Passes on what is written, counts it, and fails once a signal has come.
pub(super) struct Heeding<'call> {
    inner: &'call mut dyn Write,
    bytes: u64,
}

impl<'call> Heeding<'call> {
    pub(super) fn new(inner: &'call mut dyn Write) -> Self {
        Self { inner, bytes: 0 }
    }
}

impl Write for Heeding<'_> {
    fn write(&mut self, buffer: &[u8]) -> std::io::Result<usize> {
        if has_come() {
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

impl Drop for Heeding<'_> {
    fn drop(&mut self) {
        Progress::Done.emit();
    }
}
