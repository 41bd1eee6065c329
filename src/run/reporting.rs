//! What the report says: phases, usage, exit, streams.

use std::time::Instant;

use crate::plan::grants::Origin;
use crate::plan::limits::Limits;
use crate::run::chosen::Chosen;
use crate::run::error::RunError;
use crate::run::exec::Supervised;
use crate::run::image::ChosenImage;
use crate::run::line_ends::{NOT_FOUND, SCRIPT_LINE_ENDS};
use crate::run::unseen::ARGUMENT_NOT_VISIBLE;
use sandbox::cgroups::Counted;
use sandbox::launch::Launched;
use sandbox::resources::Resources;
use sandbox::supervise::judge::{Facts, Reason, judge};
use sandbox::supervise::streams::OutputPump;
use sandbox::supervise::watch::Observed;
use spec::limits::Limit;
use spec::outcome::Outcome;
use spec::path::escape;
use spec::report::{Exit, Report, StreamReport, Timing, Usage, WarningReport};
use spec::units;

/// Takes the time of each phase.
#[derive(Debug)]
pub(super) struct Stopwatch(Instant);

impl Stopwatch {
    /// Starts the first phase.
    #[must_use]
    pub(super) fn start() -> Self {
        Self(Instant::now())
    }

    /// Ends the present phase under the name `phase` and starts the next.
    pub(super) fn lap(&mut self, report: &mut Report, phase: &'static str) {
        let now = Instant::now();
        let duration_us = u64::try_from(now.duration_since(self.0).as_micros()).unwrap_or(u64::MAX);
        report.timings.push(Timing { phase, duration_us });
        self.0 = now;
    }
}

/// What was chosen to run.
pub(super) fn tell_chosen(report: &mut Report, chosen: &Chosen) {
    report.warnings.extend(chosen.warnings.iter().cloned());
    if let Some(bundle) = &mut report.bundle {
        let manifest = &chosen.manifest;
        let name = manifest.token_id();
        bundle.name = name.map(|name| escape(name.as_bytes()));
        let version = manifest.version.as_deref();
        bundle.version = version.map(|version| escape(version.as_bytes()));
        if chosen.origin == Origin::Bundle {
            bundle.sources.clone_from(&manifest.commits);
        }
    }
    report.run_form = chosen.form;
    report.syscall_policy = Some(chosen.syscalls);
    report.argv = shown(&chosen.argv);
    report.bound_programs.clone_from(&chosen.bound);
    report.runner.clone_from(&chosen.runner);
    report.preparation.clone_from(&chosen.provided.rows);
    report.image = chosen.image.as_ref().map(ChosenImage::report);
    let allowed = chosen.egress.allowed.iter();
    report.egress.allowed = allowed.map(ToString::to_string).collect();
}

/// Bytes as the report shows them.
#[must_use]
pub(super) fn shown(words: &[Vec<u8>]) -> Vec<String> {
    words.iter().map(|word| escape(word)).collect()
}

/// How the body's first process ended, from its wait status.
#[must_use]
pub(super) fn exit_of(raw_status: i32) -> Exit {
    let signal = raw_status & 0x7f;
    Exit {
        code: (signal == 0).then_some((raw_status >> 8) & 0xff),
        signal: (signal != 0).then_some(signal),
        core_dump: signal != 0 && raw_status & 0x80 != 0,
        raw_status,
    }
}

/// Everything that is known once the body has ended: usage, exit, outcome.
pub(super) fn conclude(
    report: &mut Report,
    observed: &Observed,
    resources: &Resources,
    supervised: &Supervised,
    launched: &Launched,
) {
    let counted = supervised
        .counted
        .unwrap_or_else(|| resources.group.count());
    let limits = &supervised.limits;
    report.usage = usage(observed, &counted, supervised.filled_bytes, launched);
    report.exit = observed.raw_status.map(exit_of);
    report.steps = launched.steps();
    for problem in &observed.problems {
        report
            .warnings
            .push(WarningReport::new("supervision_problem", problem.clone()));
    }
    let cpu_used_ms =
        report.usage.user_time_ms.unwrap_or(0) + report.usage.system_time_ms.unwrap_or(0);
    let cpu_time_reached = limits
        .time(Limit::CpuTime)
        .is_some_and(|limit| limit.as_millis() <= u128::from(cpu_used_ms));
    report.outcome = judge(Facts {
        raw_status: observed.raw_status,
        reason: observed.reason,
        oom_kills: report.usage.oom_kills.unwrap_or(0),
        cpu_time_reached,
    });
    if report.exit.is_none_or(|exit| exit.code != Some(NOT_FOUND)) {
        report.warnings.retain(|told| told.code != SCRIPT_LINE_ENDS);
    }
    if report.exit.is_some_and(|exit| exit.code == Some(0)) {
        // The word was no file to the command, or it can do without.
        report
            .warnings
            .retain(|told| told.code != ARGUMENT_NOT_VISIBLE);
    }
    if let Some(Reason::Cancelled(signal)) = observed.reason {
        report.cancelled_by = Some(signal);
    }
    if report.outcome == Outcome::OutOfMemory {
        explain_memory(report, &counted, limits);
    } else {
        tell_memory_kills(report, limits);
    }
    if observed.unkillable {
        report.outcome = Outcome::Failed;
        report.error = Some(RunError::Unkillable.report());
    } else if report.outcome == Outcome::Failed {
        let how = how_init_ended(observed.init_status);
        report.error = Some(RunError::InitDied { how }.report());
    }
}

fn how_init_ended(raw_status: Option<i32>) -> String {
    let Some(raw_status) = raw_status else {
        return "its wait status is not known".to_owned();
    };
    match exit_of(raw_status) {
        Exit {
            signal: Some(signal),
            ..
        } => format!("signal {signal}"),
        Exit { code, .. } => format!("exit code {}", code.unwrap_or(0)),
    }
}

/// Files in memory count: a body that filled its disk is told so.
fn explain_memory(report: &mut Report, counted: &Counted, limits: &Limits) {
    let files = counted.memory_file_bytes.or(report.usage.written_bytes);
    if let Some(files) = files.filter(|bytes| limits.memory_bytes() / 4 <= *bytes) {
        let message = format!("{files} bytes of the memory limit were files in the writable space");
        report
            .warnings
            .push(WarningReport::new("memory_was_files", message));
    }
}

/// The outcome is the first process's: what it lost is told, or the result looks whole.
fn tell_memory_kills(report: &mut Report, limits: &Limits) {
    let (processes, were) = match report.usage.oom_kills {
        None | Some(0) => return,
        Some(1) => ("1 process".to_owned(), "was"),
        Some(count) => (format!("{count} processes"), "were"),
    };
    let went_on = match report.outcome {
        Outcome::Exited => ", and the command went on",
        _ => "",
    };
    let message = format!(
        "{processes} {were} killed at the memory limit of {}{went_on}; a higher --memory \
         makes room",
        units::bytes(limits.memory_bytes())
    );
    report
        .warnings
        .push(WarningReport::new("memory_kills", message));
}

fn usage(observed: &Observed, counted: &Counted, filled_bytes: u64, launched: &Launched) -> Usage {
    let cpu_time = counted.cpu_time;
    let waited = observed.waited_cpu_us;
    let milliseconds = |counted: Option<u64>, waited: Option<u64>| {
        counted.or(waited).map(|microseconds| microseconds / 1_000)
    };
    let written_bytes = rustix::fs::fstatvfs(&launched.space).ok().map(|found| {
        let used = found
            .f_blocks
            .saturating_sub(found.f_bfree)
            .saturating_mul(found.f_frsize);
        used.saturating_sub(filled_bytes)
    });
    let watched = u64::from(observed.reason == Some(Reason::Memory));
    Usage {
        wall_time_ms: u64::try_from(observed.wall_time.as_millis()).unwrap_or(u64::MAX),
        user_time_ms: milliseconds(
            cpu_time.and_then(|time| time.user_us),
            waited.map(|(user_us, _)| user_us),
        ),
        system_time_ms: milliseconds(
            cpu_time.and_then(|time| time.system_us),
            waited.map(|(_, system_us)| system_us),
        ),
        memory_peak_bytes: counted.memory_peak_bytes.or(observed.memory_seen_bytes),
        processes_peak: counted.processes_peak,
        written_bytes,
        oom_kills: counted.oom_kills.or((watched == 1).then_some(1)),
    }
}

/// One stream of the body for the report, and the copy of what was passed through.
#[must_use]
pub(super) fn stream(pump: OutputPump) -> (StreamReport, Option<Vec<u8>>) {
    let finished = pump.finish();
    let report = StreamReport {
        bytes: finished.seen_bytes,
        dropped_bytes: finished.dropped_bytes,
        captured: finished.captured,
    };
    (report, finished.copy)
}

/// All that the body wrote, where it was captured and is text. A part of it may look like
/// something else than the whole.
#[must_use]
pub(super) fn whole_text(stream: &StreamReport) -> Option<&[u8]> {
    stream
        .text()
        .filter(|_| stream.dropped_bytes == 0)
        .map(str::as_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_status_is_read_as_wait_2_says() {
        assert_eq!((exit_of(0).code, exit_of(0).signal), (Some(0), None));
        assert_eq!(exit_of(137 << 8).code, Some(137));
        let core = exit_of(11 | 0x80);
        assert_eq!(
            (core.code, core.signal, core.core_dump),
            (None, Some(11), true)
        );
    }
}
