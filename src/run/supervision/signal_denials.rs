//! Signals to process 1 of the sandbox in the report.

use crate::run::supervision::DenialsReport;
use sandbox::refused_calls::RefusedCalls;
use spec::merged::{Merged, Occurrences};
use spec::observation::KindObservation;
use spec::report::Denial;
use sys::signal_name::signal_name;

/// Landlock keeps signals within a domain from this version of its ABI on.
const SCOPE_SINCE: u32 = 6;
const SEEN: &str = "only those that kill, tkill and tgkill send to process 1; processes of the host \
                    do not exist for the body (ESRCH)";

/// Whether Landlock refuses signals to process 1. The commands of a sandbox that `stays` are in its domain.
pub(in crate::run) fn are_refused(landlock_abi: u32, stays: bool) -> bool {
    landlock_abi >= SCOPE_SINCE && !stays
}

/// The signals to process 1 that are refused; `None`: none is, or they were not observed.
pub(super) fn refused(calls: &RefusedCalls, are_refused: bool) -> Option<&Merged<u32>> {
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
                .distinct()
                .map(|(number, equal)| denial(*number, *equal))
                .collect(),
            observation: KindObservation::partial(SEEN, signals.unlisted()),
        },
    }
}

pub(super) fn denial(number: u32, equal: Occurrences) -> Denial {
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
        certainty: None,
        count: equal.count,
        first_ms: Some(equal.first_ms),
    }
}
