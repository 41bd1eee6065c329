//! Subscribers for the events and spans of tracing: the terminal or a log.
//!
//! On the terminal INFO is a line, DEBUG a line with `-v`, and TRACE the status line. With
//! `--log-format` or `RUNNER_LOG` a log goes to standard error instead, with the phases as spans.

use std::fmt;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::set_global_default;
use tracing::{Event, Level, Metadata, Subscriber};
use tracing_subscriber::Layer as _;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::fmt::format::FmtSpan;
use tracing_subscriber::layer::SubscriberExt as _;

use crate::cli::args::{LogFormat, MessageFlags};
use crate::cli::context::ProcessContext;
use crate::cli::print::{Printer, Tone};
use spec::path::escape;
use spec::report::ErrorReport;

const VARIABLE: &str = "RUNNER_LOG";
/// Shortest time between two status lines.
const REDRAW_INTERVAL: Duration = Duration::from_millis(100);
/// What takes less time has no status line.
const SHORT: Duration = Duration::from_millis(500);

/// Installs the subscriber that the flags and `RUNNER_LOG` choose, once.
///
/// # Errors
/// `usage` if `RUNNER_LOG` is invalid.
pub(super) fn start(
    flags: MessageFlags,
    printer: &Printer,
    context: &ProcessContext,
) -> Result<(), ErrorReport> {
    let levels = context.variable(VARIABLE);
    let set = match (flags.log_format, levels) {
        (None, None) if printer.is_quiet() => Ok(()),
        (None, None) => set_global_default(Terminal::new(*printer)),
        (format, levels) => {
            let levels = levels.unwrap_or("debug".as_ref());
            let targets = levels.to_str().and_then(parse_levels);
            let targets = targets.ok_or_else(|| {
                ErrorReport::new(
                    "usage",
                    format!(
                        "{VARIABLE}: `{}` is not a level",
                        escape(levels.as_encoded_bytes())
                    ),
                )
                .with_hint("use off, error, warn, info, debug or trace, or MODULE= before it")
            })?;
            let lines = tracing_subscriber::fmt::layer()
                .with_writer(std::io::stderr)
                .with_ansi(false)
                .with_span_events(FmtSpan::CLOSE);
            let lines = match format {
                Some(LogFormat::Json) => lines.json().flatten_event(true).boxed(),
                Some(LogFormat::Text) | None => lines.boxed(),
            };
            set_global_default(tracing_subscriber::registry().with(lines.with_filter(targets)))
        }
    };
    // Tests in one process share the first subscriber.
    debug_assert!(set.is_ok() || cfg!(test), "{set:?}");
    Ok(())
}

/// `LEVEL` or `MODULE=LEVEL`, separated by commas. `Targets` alone takes a misspelt level for a module,
/// and logs nothing else.
fn parse_levels(text: &str) -> Option<Targets> {
    let is_level = |part: &str| part.contains('=') || part.parse::<LevelFilter>().is_ok();
    let targets = text.split(',').all(is_level).then(|| text.parse());
    targets?.ok()
}

/// Prints events on standard error.
struct Terminal {
    printer: Printer,
    status: Mutex<Status>,
}

/// When a status line is drawn.
#[derive(Debug, Default)]
struct Status {
    /// When the activity began that is shown.
    began: Option<Instant>,
    /// When the status line was drawn; `None`: there is none.
    drawn: Option<Instant>,
}

impl Status {
    /// Whether to draw the line now. `is_long`: the activity takes long in any case.
    fn draws(&mut self, now: Instant, is_long: bool) -> bool {
        let began = *self.began.get_or_insert(now);
        let is_short = !is_long && now.duration_since(began) < SHORT;
        let is_new = self
            .drawn
            .is_some_and(|drawn| now.duration_since(drawn) < REDRAW_INTERVAL);
        if is_short || is_new {
            return false;
        }
        self.drawn = Some(now);
        true
    }
}

impl Terminal {
    fn new(printer: Printer) -> Self {
        Self {
            printer,
            status: Mutex::default(),
        }
    }

    fn level(&self) -> LevelFilter {
        if self.printer.has_status_line() {
            LevelFilter::TRACE
        } else if self.printer.is_verbose() {
            LevelFilter::DEBUG
        } else {
            LevelFilter::INFO
        }
    }
}

impl Subscriber for Terminal {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.is_event() && *metadata.level() <= self.level()
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(self.level())
    }

    fn event(&self, event: &Event<'_>) {
        let mut status = self.status.lock().unwrap_or_else(PoisonError::into_inner);
        let is_progress = *event.metadata().level() == Level::TRACE;
        let mut message = Message::default();
        event.record(&mut message);
        if is_progress && !message.is_over {
            if status.draws(Instant::now(), message.is_long) {
                self.printer.show_status(&message.text);
            }
            return;
        }
        if status.drawn.take().is_some() {
            self.printer.show_status("");
        }
        if !is_progress {
            status.began = None;
        }
        let tone = match *event.metadata().level() {
            Level::ERROR | Level::WARN => Tone::Warning,
            Level::INFO => Tone::Good,
            Level::DEBUG => Tone::Detail,
            Level::TRACE => return,
        };
        self.printer.line(tone, &message.text);
    }

    // Spans are never enabled.
    fn new_span(&self, _span: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _span: &Id, _values: &Record<'_>) {}

    fn record_follows_from(&self, _span: &Id, _follows: &Id) {}

    fn enter(&self, _span: &Id) {}

    fn exit(&self, _span: &Id) {}
}

#[derive(Default)]
struct Message {
    text: String,
    /// Remove the status line.
    is_over: bool,
    /// Show the status line at once.
    is_long: bool,
}

impl Visit for Message {
    fn record_bool(&mut self, field: &Field, value: bool) {
        match field.name() {
            "is_over" => self.is_over = value,
            "is_long" => self.is_long = value,
            _ => (),
        }
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        if field.name() == "message" {
            self.text = format!("{value:?}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_short_has_no_status_line_and_what_is_long_is_not_redrawn_too_often() {
        let start = Instant::now();
        let mut status = Status::default();
        let mut draws =
            |after_ms, is_long| status.draws(start + Duration::from_millis(after_ms), is_long);
        let drawn: Vec<bool> = [0, 100, 499, 500, 550, 599, 600, 601]
            .map(|after_ms| draws(after_ms, false))
            .into();
        let (no, yes) = (false, true);
        assert_eq!(drawn, [no, no, no, yes, no, no, yes, no]);
        let mut status = Status::default();
        assert!(status.draws(start, true), "an install is long");
    }

    #[test]
    fn a_misspelt_level_is_no_module() {
        for levels in ["info", "WARN", "info,sources=trace", "runner::run=debug"] {
            assert!(parse_levels(levels).is_some(), "{levels}");
        }
        for levels in ["warning", "verbose,sources=trace", "runner=loud"] {
            assert!(parse_levels(levels).is_none(), "{levels}");
        }
    }
}
