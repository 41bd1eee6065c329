//! Turns the report of a failed preparation run into a reason and advice.

use crate::plan::preparation::{Failure, Step, explain};
use crate::run::error::RunError;
use crate::run::preparation::error::PreparationProblem;
use spec::denial_reason::DenialReason;
use spec::host_policy::HostPolicy;
use spec::outcome::Outcome;
use spec::path::escape;
use spec::preparation_report::PreparationReport;
use spec::report::{Denial, Report};
use spec::units;

/// Less free space than this counts as full.
const FULL_BYTES: u64 = 1 << 20;

#[derive(Debug, thiserror::Error)]
#[error(
    "cannot install the packages of `runner.needs.{kind}`{}: {problem}{}",
    list_of(needs),
    output_of(tail)
)]
pub(crate) struct Failed {
    /// `native`, `npm` or `pip`.
    pub(super) kind: &'static str,
    pub(super) needs: Vec<String>,
    pub(super) problem: String,
    /// The end of the package client's output, escaped.
    tail: Vec<String>,
    pub(super) hint: Option<String>,
    pub(in crate::run) row: Box<PreparationReport>,
}

fn list_of(needs: &[String]) -> String {
    if needs.is_empty() {
        String::new()
    } else {
        format!(" ({})", needs.join(", "))
    }
}

fn output_of(tail: &[String]) -> String {
    if tail.is_empty() {
        String::new()
    } else {
        format!("; its last output: {}", tail.join(" | "))
    }
}

pub(super) fn check(
    step: &Step,
    report: &Report,
    row: &PreparationReport,
    policy: &HostPolicy,
) -> Result<(), RunError> {
    let code = report.exit.and_then(|exit| exit.code);
    if report.outcome == Outcome::Exited && code == Some(0) {
        return Ok(());
    }
    if let (Outcome::Cancelled, Some(signal)) = (report.outcome, report.cancelled_by) {
        return Err(RunError::Cancelled { signal });
    }
    let log = [
        report.stdout.captured_bytes(),
        report.stderr.captured_bytes(),
    ]
    .concat();
    let read = reader::parse_with(&log, &|permit, log| explain(permit, step.kind, log));
    // Without an answer, the failure is reported without the log.
    let read = read.ok().filter(Failure::is_plain).unwrap_or_default();
    let (problem, hint) = match reached_limit(report, read.says_full, policy) {
        Some((problem, key)) => {
            let hint = format!("raise the limit in the host configuration: `preparation: {key}`");
            (problem, Some(hint))
        }
        None => explain_client(step, report, read.package.as_deref()),
    };
    let failed = Failed {
        kind: step.kind.word(),
        needs: step
            .needs
            .iter()
            .map(|need| escape(need.as_bytes()))
            .collect(),
        problem,
        tail: read.tail,
        hint,
        row: Box::new(row.clone()),
    };
    Err(PreparationProblem::from(failed).into())
}

fn reached_limit(
    report: &Report,
    says_full: bool,
    policy: &HostPolicy,
) -> Option<(String, &'static str)> {
    let limits = &policy.preparation.limits;
    let written_bytes = report.usage.written_bytes.unwrap_or(0);
    // A client removes incomplete files, so its output counts too.
    let is_full = says_full || written_bytes.saturating_add(FULL_BYTES) >= limits.disk_bytes;
    // The kernel may kill a child of the client, which then exits by itself.
    let has_oom_kill = report.usage.oom_kills.unwrap_or(0) > 0;
    match report.outcome {
        Outcome::TimedOut | Outcome::CpuExhausted => Some((
            format!("it took longer than {} s", limits.wall_time.as_secs()),
            "{limits: {timeout: TIME}}",
        )),
        outcome if outcome == Outcome::OutOfMemory || has_oom_kill => Some((
            format!(
                "it used more than {} of memory",
                units::bytes(limits.memory_bytes)
            ),
            "{limits: {memory: SIZE}}",
        )),
        _ if is_full => Some((
            format!(
                "it wrote more than {}, or made more than {} files",
                units::bytes(limits.disk_bytes),
                limits.inodes(policy.oci.entries)
            ),
            "{limits: {disk: SIZE, memory: SIZE}}",
        )),
        _ => None,
    }
}

fn explain_client(step: &Step, report: &Report, package: Option<&str>) -> (String, Option<String>) {
    if let Some(error) = &report.error {
        return (error.message.clone(), error.hint.clone());
    }
    if let Some(denial) = report.denials.iter().find(|denial| denial.kind == "net") {
        let problem = format!(
            "its run may not reach {} ({})",
            denial.object,
            denial.reason.map_or("denied", |reason| reason.row().code)
        );
        return (problem, Some(hint_to_allow(denial)));
    }
    if let Some(host) = report.egress.unreachable.first() {
        let problem = format!(
            "no answer from {}:{} ({})",
            host.host,
            host.port,
            host.cause.in_words()
        );
        let hint = format!(
            "check that the index is reachable, or configure another: `{}`",
            step.kind.policy_key()
        );
        return (problem, Some(hint));
    }
    if let Some(package) = package {
        let problem = format!("the index has no {package}");
        return (
            problem,
            Some(format!("packages come from {}", index_names(step))),
        );
    }
    let program = step.kind.program();
    let problem = match report.exit {
        Some(exit) => match (exit.code, exit.signal) {
            (Some(127), _) => format!("the image has no {program}"),
            (Some(code), _) => format!("{program} ended with {code}"),
            (None, signal) => format!("{program} was ended by signal {}", signal.unwrap_or(0)),
        },
        None => format!("{program} did not run"),
    };
    (problem, None)
}

fn index_names(step: &Step) -> String {
    if step.from.is_empty() {
        "the image's own lists".to_owned()
    } else {
        escape(step.from.join(", ").as_bytes())
    }
}

/// Advice with the key of the host configuration that would allow the host.
fn hint_to_allow(denial: &Denial) -> String {
    let host = denial.host.as_deref().unwrap_or(&denial.object);
    let key = match (denial.reason, &denial.ip) {
        (Some(DenialReason::ResolvesToPrivate), Some(ip)) => {
            let bits = if ip.contains(':') { 128 } else { 32 };
            format!("allow_private: ['{ip}/{bits}']")
        }
        (Some(DenialReason::ResolvesToPrivate), None) => "allow_private: [RANGE]".to_owned(),
        _ => match denial.port {
            Some(port) => format!("allow: ['{host}:{port}']"),
            None => format!("allow: [{host}]"),
        },
    };
    format!(
        "to allow it, set `preparation: {{{key}}}` in the host configuration; an `allow` list must \
         also name the hosts of the indexes"
    )
}
