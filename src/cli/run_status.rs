//! What a run does before its body starts: on a line of the terminal that is gone when the body
//! begins, and with `-v` in a line that stays for each thing that was done.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::cli::print::{Printer, Tone};
use crate::cli::progress::DRAWN_EVERY;
use crate::cli::source::text_of;
use crate::run::progress::{Phase, ProgressListener};
use sources::oci::listener::Progress;

/// Draws [`Phase`]. What is done at once is not drawn.
#[derive(Debug)]
pub(crate) struct RunStatus {
    printer: Printer,
    /// When the line that stands there was drawn.
    drawn: Mutex<Option<Instant>>,
}

impl RunStatus {
    /// Draws with `printer`, which knows whether there is a terminal and whether to be quiet.
    #[must_use]
    pub(crate) fn new(printer: Printer) -> Self {
        Self {
            printer,
            drawn: Mutex::new(None),
        }
    }
}

impl ProgressListener for RunStatus {
    fn update(&self, phase: &Phase<'_>) {
        let mut drawn = self.drawn.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(text) = text_of_phase(phase) {
            if drawn.is_none_or(|drawn| DRAWN_EVERY <= drawn.elapsed()) {
                self.printer.status(&text);
                *drawn = Some(Instant::now());
            }
            return;
        }
        if drawn.take().is_some() {
            self.printer.status("");
        }
        match phase {
            Phase::Over { what, how, elapsed } => {
                let text = format!("{what}: {how}, {}", seconds(*elapsed));
                self.printer.line(Tone::Detail, &text);
            }
            Phase::Published { ports } => {
                let (host, body) = (ports.host_port, ports.body_port);
                let text = format!("127.0.0.1:{host} leads to port {body} of the body");
                self.printer.line(Tone::Good, &text);
            }
            Phase::Transfer { .. } | Phase::Preparing { .. } => (),
        }
    }
}

/// What stands on the line; `None`: nothing any more.
fn text_of_phase(phase: &Phase<'_>) -> Option<String> {
    match phase {
        Phase::Transfer {
            progress: Progress::Done,
            ..
        }
        | Phase::Over { .. }
        | Phase::Published { .. } => None,
        // It names its place. The others have what counts first: a narrow line is cut.
        Phase::Transfer {
            progress: progress @ Progress::Asking { .. },
            ..
        } => Some(text_of(progress)),
        Phase::Transfer { what, progress } => Some(format!("{}, {what}", text_of(progress))),
        Phase::Preparing { what, elapsed } => {
            Some(format!("{what}: installing, {} s", elapsed.as_secs()))
        }
    }
}

fn seconds(time: Duration) -> String {
    let tenths = time.as_millis() / 100;
    format!("{}.{} s", tenths / 10, tenths % 10)
}

#[cfg(test)]
mod tests {
    use super::*;
    use spec::digest::Digest;

    #[test]
    fn each_phase_has_its_words_and_the_end_none() {
        let digest = Digest::of(b"");
        let moving = |progress| Phase::Transfer {
            what: "source models",
            progress,
        };
        let elapsed = Duration::from_millis(61_999);
        for (phase, expected) in [
            (
                moving(Progress::Asking {
                    place: "registry.test/models",
                }),
                Some("registry.test/models: asking"),
            ),
            (
                moving(Progress::Receiving {
                    digest: &digest,
                    bytes: 1024,
                    of_bytes: 2048,
                }),
                Some(
                    "receiving e3b0c44298fc [############------------] 1 KiB of 2 KiB, \
                     source models",
                ),
            ),
            (moving(Progress::Done), None),
            (
                Phase::Preparing {
                    what: "npm packages greeting",
                    elapsed,
                },
                Some("npm packages greeting: installing, 61 s"),
            ),
            (
                Phase::Over {
                    what: "npm packages greeting",
                    how: "installed",
                    elapsed,
                },
                None,
            ),
        ] {
            assert_eq!(text_of_phase(&phase).as_deref(), expected);
        }
        assert_eq!(seconds(elapsed), "61.9 s");
    }
}
