//! The end that a person asks for by a signal, while something is being written that must not stay
//! half done.

use std::cell::Cell;
use std::io::Write;
use std::time::Instant;

use rustix::io::Errno;

use crate::cli::print::Printer;
use crate::cli::progress::{DRAWN_EVERY, kib};
use bundler::output::ENDING;
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

/// Passes on what is written, draws how much it is, and fails once a signal has come.
pub(super) struct Heeding<'call> {
    inner: &'call mut dyn Write,
    printer: &'call Printer,
    bytes: u64,
    drawn: Cell<Option<Instant>>,
}

impl<'call> Heeding<'call> {
    pub(super) fn new(inner: &'call mut dyn Write, printer: &'call Printer) -> Self {
        Self {
            inner,
            printer,
            bytes: 0,
            drawn: Cell::new(None),
        }
    }
}

impl Write for Heeding<'_> {
    fn write(&mut self, buffer: &[u8]) -> std::io::Result<usize> {
        if has_come() {
            return Err(Errno::CANCELED.into());
        }
        let count = self.inner.write(buffer)?;
        self.bytes += count as u64;
        let drawn = self.drawn.get();
        if drawn.is_none_or(|drawn| DRAWN_EVERY <= drawn.elapsed()) {
            self.printer
                .status(&format!("the layer: {} written", kib(self.bytes)));
            self.drawn.set(Some(Instant::now()));
        }
        Ok(count)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.inner.flush()
    }
}

impl Drop for Heeding<'_> {
    fn drop(&mut self) {
        self.printer.status("");
    }
}
