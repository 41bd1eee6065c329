//! What a body used, in the report.

use rustix::fs::StatVfs;

use sandbox::cgroups::Counted;
use sandbox::supervise::judge::Reason;
use sandbox::supervise::watch::Observed;
use spec::limits::{self, Limit};
use spec::observation::KindObservation;
use spec::report::{Denial, LimitReport, Usage};

/// From the counters of the cgroups, or where there are none from what was waited for and sampled.
/// `filled_bytes` were in the writable space before the body's start.
pub(in crate::run) fn usage(
    observed: &Observed,
    counted: &Counted,
    filled_bytes: u64,
    space: Option<&StatVfs>,
) -> Usage {
    let cpu_time = counted.cpu_time;
    let waited = observed.waited_cpu_us;
    let milliseconds = |counted: Option<u64>, waited: Option<u64>| {
        counted.or(waited).map(|microseconds| microseconds / 1_000)
    };
    let written_bytes = space.map(|found| {
        let used = found
            .f_blocks
            .saturating_sub(found.f_bfree)
            .saturating_mul(found.f_frsize);
        used.saturating_sub(filled_bytes)
    });
    let killed_by_supervisor = observed.reason == Some(Reason::Memory);
    Usage {
        wall_time_ms: limits::milliseconds(observed.wall_time),
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
        oom_kills: counted.oom_kills.or(killed_by_supervisor.then_some(1)),
    }
}

/// The denial of processes beyond their limit, and whether such denials were observed.
pub(in crate::run) fn refused_forks(
    counted: &Counted,
    limits: &[LimitReport],
) -> (Option<Denial>, KindObservation) {
    let limit = limits.iter().find(|row| row.limit == Limit::Processes);
    let source = limit.map(|row| row.source.as_str());
    let count = match counted.refused_forks {
        None => return (None, KindObservation::none("no cgroup counts them")),
        Some(0) => return (None, KindObservation::complete(0)),
        Some(count) => count,
    };
    let denial = Denial {
        kind: "resource".to_owned(),
        object: "another process or thread".to_owned(),
        operation: None,
        rule: Limit::Processes.name().to_owned(),
        errno: Some("EAGAIN".to_owned()),
        reason: None,
        protocol: None,
        host: None,
        ip: None,
        port: None,
        hint: Some(Limit::Processes.how_to_change(source)),
        certainty: None,
        count,
        first_ms: None,
    };
    (Some(denial), KindObservation::complete(0))
}
