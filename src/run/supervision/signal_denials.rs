//! Signals to process 1 of the sandbox in the report.

use crate::run::supervision::DenialsReport;
use sandbox::refused_calls::RefusedCalls;
use sandbox::signal_trace::{InitSignal, InitSignals};
use spec::merged::Occurrences;
use spec::observation::KindObservation;
use spec::report::{Certainty, Denial};
use spec::units::count;
use sys::signal_name::signal_name;

/// Landlock keeps signals within a domain from this version of its ABI on.
const SCOPE_SINCE: u32 = 6;
const SEEN: &str = "only those to process 1, and not those that the kernel sends for a file \
                    (F_SETOWN); processes of the host do not exist for the body (ESRCH)";

/// Whether Landlock refuses signals to process 1. The commands of a sandbox that `stays` are in its domain.
pub(in crate::run) fn are_refused(landlock_abi: u32, stays: bool) -> bool {
    landlock_abi >= SCOPE_SINCE && !stays
}

/// The signals to process 1 that are refused; `None`: none is, or they were not observed.
pub(super) fn refused(calls: &RefusedCalls, are_refused: bool) -> Option<&InitSignals> {
    calls.signals_to_init().filter(|_| are_refused)
}

/// Builds the report of a body's signals to process 1.
pub(in crate::run) fn report(calls: &RefusedCalls, are_refused: bool) -> DenialsReport {
    match refused(calls, are_refused) {
        None if calls.signals_to_init().is_none() => {
            DenialsReport::unobserved("only --trace observes them")
        }
        None => DenialsReport::unobserved(
            "before Linux 6.12, and in a sandbox that stays, the kernel accepts signals to process 1, which \
             blocks them",
        ),
        Some(signals) => DenialsReport {
            denials: signals
                .sent
                .distinct()
                .map(|(signal, equal)| denial(*signal, *equal))
                .collect(),
            observation: KindObservation::partial(seen(signals), signals.sent.unlisted()),
        },
    }
}

fn seen(signals: &InitSignals) -> String {
    match signals.unknown {
        0 => SEEN.to_owned(),
        unknown => format!("{SEEN}; {} could not be looked at", count(unknown, "call")),
    }
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
