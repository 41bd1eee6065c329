//! The summary of a run on standard error. Nothing after a success without `-v`.

mod denials;
mod profile;
mod usage;

use crate::cli::print::{Printer, Tone, excerpt};
use crate::run::error::BODY_NOT_STARTED;
use spec::limits::Limit;
use spec::outcome::Outcome;
use spec::report::{EnforcementState, LimitReport, Report, StreamReport};
use sys::signal_name::signal_name;

/// `has_usage`: with a line of what the run used.
pub fn print(printer: &Printer, report: &Report, has_usage: bool) {
    for (tone, text) in lines(report) {
        printer.line(tone, &text);
    }
    if has_usage {
        printer.line(Tone::Good, &usage::line(report));
    }
    if printer.shows_steps() {
        printer.line(Tone::Detail, &profile::table(report));
    }
}

fn lines(report: &Report) -> Vec<(Tone, String)> {
    let mut lines = details(report);
    for warning in &report.warnings {
        lines.push((
            Tone::Warning,
            format!("warning: {} ({})", warning.message, warning.code),
        ));
    }
    lines.extend(denials::lines(report));
    if let Some(kept) = &report.kept {
        lines.push((Tone::Warning, format!("kept the scratch root: {kept}")));
    }
    lines.extend(ending(report));
    for (name, stream) in [
        ("standard output", &report.stdout),
        ("standard error", &report.stderr),
    ] {
        lines.extend(dropped(name, stream, output_limit(report)));
    }
    lines
}

fn ending(report: &Report) -> Vec<(Tone, String)> {
    let limited = |what: &str, limit: Limit| {
        let value = value_and_source(report, limit);
        let source = report.plan.limit(limit).map(|found| found.source.as_str());
        let change = limit.how_to_change(source);
        vec![(Tone::Error, format!("{what}{value}; {change}"))]
    };
    match report.outcome {
        Outcome::Exited | Outcome::Signaled => Vec::new(),
        Outcome::TimedOut => {
            let mut warnings = report.warnings.iter();
            let what = if warnings.any(|warning| warning.code == BODY_NOT_STARTED) {
                "timed out: the wall time limit ended the run"
            } else {
                "timed out: the wall time limit ended the body"
            };
            limited(what, Limit::WallTime)
        }
        Outcome::CpuExhausted => limited(
            "out of CPU time: the CPU time limit ended the body",
            Limit::CpuTime,
        ),
        Outcome::OutOfMemory => limited(
            "out of memory: the memory limit ended the body",
            Limit::Memory,
        ),
        Outcome::OutputLimit => limited(
            "too much output: the output limit ended the body",
            Limit::Output,
        ),
        Outcome::Cancelled => {
            let by = report.cancelled_by.map(signal_name);
            let by = by.map_or_else(String::new, |name| format!(" by {name}"));
            vec![(Tone::Error, format!("cancelled{by}"))]
        }
        Outcome::Refused => error("refused", report),
        Outcome::Failed => error("failed", report),
    }
}

fn error(what: &str, report: &Report) -> Vec<(Tone, String)> {
    let Some(error) = &report.error else {
        return vec![(Tone::Error, what.to_owned())];
    };
    let mut lines = vec![(
        Tone::Error,
        format!("{what}: {} ({})", error.message, error.code),
    )];
    if let Some(line) = &error.source_line {
        lines.push((Tone::Hint, excerpt(line)));
    }
    if let Some(hint) = &error.hint {
        lines.push((Tone::Hint, format!("hint: {hint}")));
    }
    lines
}

/// ` (60 s, from flag)`.
fn value_and_source(report: &Report, limit: Limit) -> String {
    match report.plan.limit(limit) {
        Some(LimitReport {
            effective: Some(effective),
            source,
            ..
        }) => {
            format!(" ({}, from {source})", limit.amount(*effective))
        }
        _ => String::new(),
    }
}

fn output_limit(report: &Report) -> Option<u64> {
    report.plan.limit(Limit::Output)?.effective
}

/// Only for bytes that the limit dropped, and not for those after a reader closed the stream
/// (`runner run -- yes | head`).
fn dropped(name: &str, stream: &StreamReport, limit: Option<u64>) -> Option<(Tone, String)> {
    limit.is_some_and(|limit| stream.bytes > limit).then(|| {
        (
            Tone::Warning,
            format!(
                "warning: {} of {} bytes of {name} were dropped at the output limit",
                stream.dropped_bytes, stream.bytes
            ),
        )
    })
}

fn details(report: &Report) -> Vec<(Tone, String)> {
    let mut lines = vec![format!("run {}", report.run_id)];
    if !report.plan.argv.is_empty() {
        let words: Vec<String> = report
            .plan
            .argv
            .iter()
            .map(|word| format!("`{word}`"))
            .collect();
        lines.push(format!("executed {}", words.join(" ")));
    }
    for directory in &report.plan.bound_programs {
        lines.push(format!("made visible, read-only: {directory}"));
    }
    for secret in &report.secrets {
        lines.push(format!(
            "secret {}: {}, from {}, granted by {}",
            secret.variable, secret.reference, secret.provider, secret.granted_by
        ));
    }
    for timing in &report.timings {
        let whole = timing.duration_us / 1_000;
        let rest = timing.duration_us % 1_000;
        lines.push(format!("{}: {whole}.{rest:03} ms", timing.phase));
    }
    lines.push(format!("cgroup back end: {}", report.plan.cgroup_backend));
    if let Some(policy) = report.plan.syscall_policy {
        lines.push(format!("system call policy: {}", policy.name()));
    }
    let enforcement = report.plan.enforcement.iter();
    for axis in enforcement.filter(|axis| axis.state != EnforcementState::Enforced) {
        let state = axis.state.name();
        let reason = axis.reason.as_deref().unwrap_or("no reason given");
        lines.push(format!("{}: {state} ({reason})", axis.axis));
    }
    lines.into_iter().map(|line| (Tone::Detail, line)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use spec::report::{ErrorReport, WarningReport};

    fn shown(report: &Report) -> Vec<String> {
        lines(report)
            .into_iter()
            .filter(|(tone, _)| *tone != Tone::Detail)
            .map(|(_, text)| text)
            .collect()
    }

    #[test]
    fn a_success_is_silent_and_a_body_that_failed_speaks_for_itself() {
        for outcome in [Outcome::Exited, Outcome::Signaled] {
            assert!(shown(&Report::new("id".to_owned(), outcome)).is_empty());
        }
    }

    #[test]
    fn a_refusal_is_one_line_with_its_code_and_a_hint() {
        let mut report = Report::new("id".to_owned(), Outcome::Refused);
        report.error = Some(
            ErrorReport::new("run_missing", "the manifest has no run").with_hint("give --run"),
        );
        assert_eq!(
            shown(&report),
            [
                "refused: the manifest has no run (run_missing)",
                "hint: give --run"
            ]
        );
    }

    #[test]
    fn a_limit_that_ended_the_body_is_named_with_its_flag() {
        let mut report = Report::new("id".to_owned(), Outcome::TimedOut);
        report.plan.limits.push(LimitReport {
            limit: Limit::WallTime,
            requested: Some(500),
            effective: Some(500),
            enforced_by: "supervisor",
            source: "flag".to_owned(),
            sources: Vec::new(),
        });
        assert_eq!(
            shown(&report),
            [
                "timed out: the wall time limit ended the body (500 ms, from flag); --timeout sets it"
            ]
        );
    }

    #[test]
    fn what_was_dropped_stands_in_the_last_line() {
        let mut report = Report::new("id".to_owned(), Outcome::Exited);
        report.stdout.bytes = 30;
        report.stdout.dropped_bytes = 10;
        assert!(
            shown(&report).is_empty(),
            "a reader that went away is no limit"
        );
        report.plan.limits.push(LimitReport {
            limit: Limit::Output,
            requested: Some(20),
            effective: Some(20),
            enforced_by: "supervisor",
            source: "flag".to_owned(),
            sources: Vec::new(),
        });
        report
            .warnings
            .push(WarningReport::new("weaker", "a limit"));
        assert_eq!(
            shown(&report),
            [
                "warning: a limit (weaker)",
                "warning: 10 of 30 bytes of standard output were dropped at the output limit"
            ]
        );
    }
}
