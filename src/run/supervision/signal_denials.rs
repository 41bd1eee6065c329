//! Signals to process 1 of the sandbox in the report.

use crate::run::supervision::audit_denials::{NoAudit, refused_signals};
use crate::run::supervision::{DenialsReport, Supervised};
use sandbox::audit_trail::AuditTrail;
use sandbox::refused_calls::RefusedCalls;
use sandbox::signal_trace::{InitSignal, InitSignals};
use spec::host::HostSupport;
use spec::merged::Occurrences;
use spec::observation::KindObservation;
use spec::report::{Certainty, Denial};
use spec::units::count;
use sys::signal_name::signal_name;

/// Landlock keeps signals within a domain from this version of its ABI on.
const SCOPE_SINCE: u32 = 6;
const HOST_UNSEEN: &str = "processes of the host do not exist for the body (ESRCH)";

/// Whether Landlock refuses signals to process 1. The commands of a sandbox that `stays` are in its domain.
pub(in crate::run) fn are_refused(host: &HostSupport, stays: bool) -> bool {
    host.landlock_abi >= SCOPE_SINCE && !stays
}

/// The signals to process 1 that are refused; `None`: none is, or they were not observed.
pub(super) fn refused(calls: &RefusedCalls, are_refused: bool) -> Option<&InitSignals> {
    calls.signals_to_init().filter(|_| are_refused)
}

/// Builds the report of a body's signals to process 1.
pub(in crate::run) fn report(calls: &RefusedCalls, supervised: &Supervised) -> DenialsReport {
    match refused(calls, supervised.refuses_signals) {
        None if calls.signals_to_init().is_none() => {
            DenialsReport::unobserved("only --trace observes them")
        }
        None => DenialsReport::unobserved(
            "before Linux 6.12, and in a sandbox that stays, the kernel accepts signals to process 1, which \
             blocks them",
        ),
        Some(signals) => DenialsReport {
            denials: denials(signals, supervised.audit.as_ref().ok()),
            observation: KindObservation::partial(
                seen(signals, &supervised.audit),
                signals.sent.unlisted(),
            ),
        },
    }
}

fn denials(signals: &InitSignals, trail: Option<&AuditTrail>) -> Vec<Denial> {
    let sent = signals.sent.distinct();
    let mut denials: Vec<Denial> = sent
        .map(|(signal, equal)| denial(*signal, *equal))
        .collect();
    denials.extend(trail.and_then(|trail| unsent(signals, refused_signals(trail))));
    denials
}

/// The denial of `refused` signals beyond those that a call may have sent: the kernel sent them for a file.
fn unsent(signals: &InitSignals, refused: u64) -> Option<Denial> {
    let sent = signals.sent.distinct().map(|(_, equal)| equal.count);
    let sent = sent.sum::<u64>() + signals.sent.unlisted() + signals.unknown;
    let count = refused.checked_sub(sent).filter(|count| *count > 0)?;
    let any = InitSignal {
        number: 0,
        is_inferred: false,
    };
    let equal = Occurrences { first_ms: 0, count };
    Some(Denial {
        object: "unknown signal to process 1".to_owned(),
        rule: "landlock".to_owned(),
        // Who sets the owner of a file gets none.
        errno: None,
        first_ms: None,
        ..denial(any, equal)
    })
}

fn seen(signals: &InitSignals, audit: &Result<AuditTrail, NoAudit>) -> String {
    let (of_files, lacks) = match audit {
        Ok(trail) => (String::new(), trail.lacks()),
        Err(why) => {
            let unseen = "and not those that the kernel sends for a file (F_SETOWN)";
            (format!(", {unseen}: {why}"), None)
        }
    };
    let unknown = (signals.unknown > 0)
        .then(|| format!("{} could not be looked at", count(signals.unknown, "call")));
    let first = format!("only those to process 1{of_files}; {HOST_UNSEEN}");
    let reasons: Vec<String> = [Some(first), lacks, unknown]
        .into_iter()
        .flatten()
        .collect();
    reasons.join("; ")
}

pub(super) fn denial(signal: InitSignal, equal: Occurrences) -> Denial {
    let InitSignal {
        number,
        is_inferred,
    } = signal;
    let name = i32::try_from(number).map_or_else(|_range| number.to_string(), signal_name);
    // One without a name has the word that the kind has.
    let name = name.trim_start_matches("signal ");
    Denial {
        kind: "signal".to_owned(),
        object: format!("{name} to process 1"),
        operation: None,
        rule: "init".to_owned(),
        errno: Some("EPERM".to_owned()),
        reason: None,
        protocol: None,
        host: None,
        ip: None,
        port: None,
        hint: Some(
            "no flag allows it: process 1 is the runner's own; the command is process 2".to_owned(),
        ),
        certainty: is_inferred.then_some(Certainty::Inferred),
        count: equal.count,
        first_ms: Some(equal.first_ms),
    }
}
