//! What is being fetched, on a line of the terminal that comes and goes.

use std::cell::{Cell, RefCell};
use std::time::{Duration, Instant};

use crate::cli::print::Printer;
use sources::github::Progress;

/// How often the count of bytes is drawn at most.
pub(super) const DRAWN_EVERY: Duration = Duration::from_millis(100);
/// Digits of a commit that people tell commits apart by.
pub(super) const SHORT_DIGITS: usize = 12;

/// Draws [`Progress`].
#[derive(Debug)]
pub struct ProgressStatus<'printer> {
    printer: &'printer Printer,
    what: RefCell<String>,
    drawn: Cell<Option<Instant>>,
}

impl<'printer> ProgressStatus<'printer> {
    /// Draws with `printer`, which knows whether there is a terminal and whether to be quiet.
    #[must_use]
    pub fn new(printer: &'printer Printer) -> Self {
        Self {
            printer,
            what: RefCell::default(),
            drawn: Cell::default(),
        }
    }

    /// Draws what happens now, or nothing once it is done.
    pub fn tell(&self, progress: &Progress<'_>) {
        if let Progress::Receiving { .. } = progress
            && self
                .drawn
                .get()
                .is_some_and(|drawn| drawn.elapsed() < DRAWN_EVERY)
        {
            return;
        }
        let text = text_of(progress, &mut self.what.borrow_mut());
        self.printer.status(&text);
        self.drawn.set(match progress {
            Progress::Receiving { .. } => Some(Instant::now()),
            _ => None,
        });
    }
}

/// What stands on the line; `what` is what is fetched, from the last time that it was told.
fn text_of(progress: &Progress<'_>, what: &mut String) -> String {
    match progress {
        Progress::Resolving {
            repository,
            reference,
        } => format!("{repository}: looking for {reference}"),
        Progress::Fetching { repository, sha } => {
            let short = sha.get(..SHORT_DIGITS).unwrap_or(sha);
            *what = format!("{repository} at {short}");
            format!("{what}: asking")
        }
        Progress::Receiving { bytes, stated } => match stated {
            Some(stated) => format!("{what}: {} of {}", kib(*bytes), kib(*stated)),
            None => format!("{what}: {}", kib(*bytes)),
        },
        Progress::Waiting { cause, pause } => format!("{cause}; trying again in {pause:?}"),
        Progress::Done => String::new(),
    }
}

pub(super) fn kib(bytes: u64) -> String {
    format!("{} KiB", bytes.div_ceil(1024))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_step_of_a_fetch_has_its_words_and_the_end_none() {
        let mut what = String::new();
        for (progress, expected) in [
            (
                Progress::Resolving {
                    repository: "org/repo",
                    reference: "main",
                },
                "org/repo: looking for main",
            ),
            (
                Progress::Fetching {
                    repository: "org/repo",
                    sha: "4f3a2b1c4f3a2b1c4f3a2b1c4f3a2b1c4f3a2b1c",
                },
                "org/repo at 4f3a2b1c4f3a: asking",
            ),
            (
                Progress::Receiving {
                    bytes: 1025,
                    stated: Some(4096),
                },
                "org/repo at 4f3a2b1c4f3a: 2 KiB of 4 KiB",
            ),
            (
                Progress::Receiving {
                    bytes: 0,
                    stated: None,
                },
                "org/repo at 4f3a2b1c4f3a: 0 KiB",
            ),
            (
                Progress::Waiting {
                    cause: "the answer was 500",
                    pause: Duration::from_millis(500),
                },
                "the answer was 500; trying again in 500ms",
            ),
            (Progress::Done, ""),
        ] {
            assert_eq!(text_of(&progress, &mut what), expected);
        }
    }
}
