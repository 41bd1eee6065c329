//! The outcome in one sentence.

use crate::page::document::Document;
use crate::page::text::{self, Text, count, duration};
use crate::page::timeline::body_ms;
use spec::limits::Limit;
use sys::signal_name::signal_name;

/// How a page presents the outcome.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Tone {
    Good,
    Bad,
    /// Neither a success nor a failure of the body.
    Neutral,
}

impl Tone {
    /// The class in the template.
    pub(super) fn class(self) -> &'static str {
        match self {
            Self::Good => "good",
            Self::Bad => "bad",
            Self::Neutral => "warn",
        }
    }
}

#[derive(Debug)]
pub(crate) struct Verdict {
    pub(super) tone: Tone,
    /// Two or three words.
    pub(super) word: String,
    pub(crate) sentence: String,
    /// What changes the limit that ended the run, as the end of a sentence.
    pub(crate) change: Option<String>,
}

pub(super) fn of_document(report: &Document) -> Verdict {
    if report.is_ended_by_idle_time() {
        return idle(report);
    }
    let (tone, word, sentence, limit) = match report.outcome.as_str() {
        "exited" => return exited(report),
        "signaled" => {
            let signal = report.exit.as_ref().and_then(|exit| exit.signal);
            let signal = signal.map_or_else(|| "A signal".to_owned(), named);
            let sentence = format!("{signal} ended the body{}.", after(report));
            (Tone::Bad, "Ended by a signal", sentence, None)
        }
        "timed_out" => limited(report, "Timed out", Limit::WallTime),
        "cpu_exhausted" => limited(report, "Out of CPU time", Limit::CpuTime),
        "out_of_memory" => limited(report, "Out of memory", Limit::Memory),
        "output_limit" => limited(report, "Too much output", Limit::Output),
        "cancelled" => {
            let signal = report.cancelled_by.map(named);
            let signal = signal.unwrap_or_else(|| "A signal".to_owned());
            let sentence = format!("{signal} to the runner cancelled the run{}.", after(report));
            (Tone::Neutral, "Cancelled", sentence, None)
        }
        "refused" => {
            let sentence = "The request was refused, and its body did not run.".to_owned();
            (Tone::Bad, "Refused", sentence, None)
        }
        "failed" => {
            let sentence = match body_ms(report) {
                None => "The run failed before its body started.".to_owned(),
                Some(ms) => format!("The run failed; its body ran for {}.", duration(ms)),
            };
            (Tone::Bad, "Failed", sentence, None)
        }
        other => {
            let sentence = format!("The run ended as `{other}`{}.", after(report));
            (Tone::Neutral, "Ended", sentence, None)
        }
    };
    let source = limit.map(|limit| (limit, source_of(report, limit)));
    Verdict {
        tone,
        word: word.to_owned(),
        sentence,
        change: source.map(|(limit, source)| limit.how_to_change(source)),
    }
}

fn idle(report: &Document) -> Verdict {
    let after = after(report);
    Verdict {
        tone: Tone::Neutral,
        word: "Idle".to_owned(),
        sentence: format!("The sandbox ended{after}: no command ran for its --idle-timeout."),
        change: Some("--idle-timeout sets it".to_owned()),
    }
}

fn exited(report: &Document) -> Verdict {
    let code = report.exit.as_ref().and_then(|exit| exit.code);
    let (tone, word) = match code {
        Some(0) => (Tone::Good, "Succeeded".to_owned()),
        Some(code) => (Tone::Bad, format!("Exit code {code}")),
        None => (Tone::Neutral, "Exited".to_owned()),
    };
    let code = code.map_or_else(String::new, |code| format!(" with code {code}"));
    // Programs try calls and go on without: that matters only if they fail.
    let succeeded = tone == Tone::Good;
    let denials = report.denials.iter();
    let denials = denials.filter(|denial| !succeeded || denial.kind.as_str() != "syscall");
    let denied = match denials.count() {
        0 => String::new(),
        denials => format!("; {} denied", denied(denials)),
    };
    Verdict {
        tone,
        word,
        sentence: format!("The body exited{code}{}{denied}.", after(report)),
        change: None,
    }
}

fn denied(denials: usize) -> String {
    match denials {
        1 => "1 operation was".to_owned(),
        many => format!("{} were", count(many, "operation")),
    }
}

type Parts = (Tone, &'static str, String, Option<Limit>);

fn limited(report: &Document, word: &'static str, limit: Limit) -> Parts {
    let found = report.limits.iter().find(|(name, _)| is(name, limit));
    let amount = found.and_then(|(_, row)| row.effective);
    let amount = amount.map(|amount| format!(" of {}", limit.amount(amount)));
    let source = source_of(report, limit).map(text::source);
    let source = source.map(|source| format!(" (set by {source})"));
    let sentence = format!(
        "The {} limit{}{} ended the {}{}.",
        limit.row().word,
        amount.unwrap_or_default(),
        source.unwrap_or_default(),
        if body_ms(report).is_some() {
            "body"
        } else {
            "run before its body started"
        },
        after(report)
    );
    (Tone::Bad, word, sentence, Some(limit))
}

fn is(name: &Text, limit: Limit) -> bool {
    name.as_str() == limit.name()
}

fn source_of(report: &Document, limit: Limit) -> Option<&str> {
    let mut limits = report.limits.iter();
    let (_, row) = limits.find(|(name, _)| is(name, limit))?;
    Some(row.source.as_str())
}

/// `SIGKILL (9)`.
fn named(signal: i32) -> String {
    let name = signal_name(signal);
    if name.starts_with("SIG") {
        format!("{name} ({signal})")
    } else {
        name
    }
}

/// ` after 1.2 s`.
fn after(report: &Document) -> String {
    match body_ms(report) {
        Some(ms) => format!(" after {}", duration(ms)),
        None => String::new(),
    }
}
