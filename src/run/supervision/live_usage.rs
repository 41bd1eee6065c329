//! The live line of `--stats`: what the run uses, and its limits.

use std::time::Instant;

use crate::plan::limits::Limits;
use sandbox::cgroups::CurrentUsage;
use sandbox::supervise::stats::Stats;
use spec::limits::Limit;
use spec::usage_text::{UsageLimits, bytes, cpus, of_limit};

/// Draws the line as an event of progress, which only a terminal shows. `shares`: as of [`Stats::new`].
pub(super) fn stats(shares: [bool; 2], limits: &Limits, processors: u32) -> Stats {
    let limits = UsageLimits {
        memory_bytes: limits.values.get(Limit::Memory),
        cpu_millis: limits.values.get(Limit::Cpus),
        processes: limits.values.get(Limit::Processes),
    };
    let mut before = (Instant::now(), 0);
    let show = move |usage: Option<CurrentUsage>| match usage {
        None => tracing::trace!(is_over = true, "what the run uses"),
        Some(usage) => {
            let now = Instant::now();
            let millis = used_since(&mut before, now, usage.cpu_time_us);
            let text = line(&usage, millis, limits, processors);
            tracing::trace!(is_long = true, "{text}");
        }
    };
    Stats::new(shares, Box::new(show))
}

/// Thousandths of a processor that were used since the last call.
fn used_since(before: &mut (Instant, u64), now: Instant, cpu_time_us: Option<u64>) -> Option<u64> {
    let (since, used_us) = std::mem::replace(before, (now, cpu_time_us?));
    let elapsed_ms = u64::try_from(now.duration_since(since).as_millis()).ok()?;
    cpu_time_us?.saturating_sub(used_us).checked_div(elapsed_ms)
}

fn line(
    usage: &CurrentUsage,
    cpu_millis: Option<u64>,
    limits: UsageLimits,
    processors: u32,
) -> String {
    let all = u64::from(processors) * 1_000;
    let parts = [
        of_limit("memory", usage.memory_bytes, limits.memory_bytes, bytes),
        of_limit("CPU", cpu_millis, limits.cpu_millis.or(Some(all)), cpus),
        of_limit("processes", usage.processes, limits.processes, |count| {
            count.to_string()
        }),
    ];
    parts.join(", ")
}
