//! How far a transfer is, on a line of the terminal that comes and goes.

use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use crate::cli::print::Printer;
use crate::cli::progress::{DRAWN_EVERY, SHORT_DIGITS, kib};
use crate::cli::source::ending::has_come;
use sources::oci::listener::{Listener, Progress};
use spec::digest::Digest;

/// Columns of the bar.
const BAR_COLUMNS: u64 = 24;

/// Draws [`Progress`].
#[derive(Debug)]
pub struct TransferStatus {
    printer: Printer,
    drawn: Mutex<Option<Instant>>,
    /// Whether signals are held back: then one that waits is the wish for an end, which else ends
    /// the process by itself.
    heeds_signals: bool,
}

impl TransferStatus {
    /// Draws with `printer`, which knows whether there is a terminal and whether to be quiet; wants
    /// an end once a signal has come where it `heeds_signals`.
    #[must_use]
    pub fn new(printer: Printer, heeds_signals: bool) -> Self {
        Self {
            printer,
            drawn: Mutex::new(None),
            heeds_signals,
        }
    }
}

impl Listener for TransferStatus {
    fn progress(&self, now: &Progress<'_>) {
        let mut drawn = self.drawn.lock().unwrap_or_else(PoisonError::into_inner);
        let is_one_of_many = !matches!(now, Progress::Asking { .. } | Progress::Done);
        if is_one_of_many && drawn.is_some_and(|drawn| drawn.elapsed() < DRAWN_EVERY) {
            return;
        }
        self.printer.status(&text_of(now));
        *drawn = is_one_of_many.then(Instant::now);
    }

    fn is_cancelled(&self) -> bool {
        self.heeds_signals && has_come()
    }
}

/// What stands on the line; nothing once it is done.
pub(in crate::cli) fn text_of(now: &Progress<'_>) -> String {
    match now {
        Progress::Asking { place } => format!("{place}: asking"),
        Progress::Receiving {
            digest,
            bytes,
            of_bytes,
        } => bar("receiving", digest, *bytes, *of_bytes),
        Progress::Unpacking {
            digest,
            bytes,
            of_bytes,
        } => bar("unpacking", digest, *bytes, *of_bytes),
        Progress::Sending {
            digest,
            bytes,
            of_bytes,
        } => bar("sending", digest, *bytes, *of_bytes),
        Progress::Waiting { cause, pause } => format!("{cause}; trying again in {pause:?}"),
        Progress::Done => String::new(),
    }
}

/// `receiving 4f3a2b1c4f3a [######------------------] 12 KiB of 48 KiB`.
fn bar(act: &str, digest: &Digest, bytes: u64, of_bytes: u64) -> String {
    let digest = digest.to_string();
    let digits = digest.trim_start_matches("sha256:");
    let short = digits.get(..SHORT_DIGITS).unwrap_or(digits);
    let done = u128::from(bytes.min(of_bytes)) * u128::from(BAR_COLUMNS);
    let done = usize::try_from(done / u128::from(of_bytes.max(1))).unwrap_or(0);
    let columns = usize::try_from(BAR_COLUMNS).unwrap_or(0);
    let bar = format!("{}{}", "#".repeat(done), "-".repeat(columns - done));
    format!("{act} {short} [{bar}] {} of {}", kib(bytes), kib(of_bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_is_empty_at_the_start_full_at_the_end_and_never_longer() {
        let digest = Digest::of(b"");
        let at = |bytes| bar("receiving", &digest, bytes, 4096);
        let (empty, full) = ("-".repeat(24), "#".repeat(24));
        let start = "receiving e3b0c44298fc";
        assert_eq!(at(0), format!("{start} [{empty}] 0 KiB of 4 KiB"));
        assert_eq!(at(4096), format!("{start} [{full}] 4 KiB of 4 KiB"));
        assert_eq!(at(9000), format!("{start} [{full}] 9 KiB of 4 KiB"));
        assert!(
            at(2048).contains("############------------"),
            "{}",
            at(2048)
        );
        assert_eq!(
            bar("sending", &digest, 0, 0),
            format!("sending e3b0c44298fc [{empty}] 0 KiB of 0 KiB")
        );
    }
}
