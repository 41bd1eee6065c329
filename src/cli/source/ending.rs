//! The end that a person asks for by a signal, while something is being written that must not stay
//! half done.

use std::cell::Cell;
use std::io::Write;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use rustix::io::Errno;

use crate::cli::print::Printer;
use crate::compose::output::ENDING;
use crate::kernel::signal::{SignalSet, is_pending, set_mask};
use crate::oci::listener::{Listener, Progress};

/// How often a count of bytes is drawn at most.
const DRAWN_EVERY: Duration = Duration::from_millis(100);
/// Digits of a digest that people tell blobs apart by.
const SHORT_DIGITS: usize = 12;

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
        // The mask that every process starts with cannot be refused.
        if set_mask(SignalSet::NONE).is_err() {}
    }
}

/// Whether one waits.
fn has_come() -> bool {
    is_pending(SignalSet::of(&ENDING)).unwrap_or(true)
}

/// Draws what is sent, and wants an end once a signal has come.
#[derive(Debug)]
pub(super) struct Watching {
    printer: Printer,
    drawn: Mutex<Option<Instant>>,
}

impl Watching {
    pub(super) fn new(printer: Printer) -> Self {
        Self {
            printer,
            drawn: Mutex::new(None),
        }
    }

    /// Whether a count was drawn a while ago.
    fn is_due(&self) -> bool {
        let Ok(mut drawn) = self.drawn.lock() else {
            return false;
        };
        let is_due = drawn.is_none_or(|drawn| DRAWN_EVERY <= drawn.elapsed());
        if is_due {
            *drawn = Some(Instant::now());
        }
        is_due
    }
}

impl Listener for Watching {
    fn progress(&self, now: &Progress<'_>) {
        let text = match now {
            Progress::Asking { place } => format!("{place}: asking"),
            Progress::Sending {
                digest,
                bytes,
                of_bytes,
            } => {
                if !self.is_due() {
                    return;
                }
                let hex = digest.to_string();
                let short = hex.get(7..7 + SHORT_DIGITS).unwrap_or_default();
                format!("{short}: {} of {} KiB sent", kib(*bytes), kib(*of_bytes))
            }
            Progress::Waiting { cause, pause } => format!("{cause}; trying again in {pause:?}"),
            Progress::Receiving { .. } | Progress::Unpacking { .. } => return,
            Progress::Done => String::new(),
        };
        self.printer.status(&text);
    }

    fn is_cancelled(&self) -> bool {
        has_come()
    }
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
                .status(&format!("the layer: {} KiB written", kib(self.bytes)));
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

fn kib(bytes: u64) -> u64 {
    bytes.div_ceil(1024)
}
