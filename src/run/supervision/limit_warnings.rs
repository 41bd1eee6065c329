//! Warnings about limits that a body reached.

use rustix::fs::StatVfs;

use crate::plan::limits::Limits;
use sandbox::cgroups::Counted;
use spec::limits::Limit;
use spec::outcome::Outcome;
use spec::report::{LimitReport, Report, Usage, WarningReport};
use spec::units;

/// Warns of what the outcome does not say about the memory limit.
pub(in crate::run) fn of_memory(
    report: &Report,
    counted: &Counted,
    limits: &Limits,
) -> Option<WarningReport> {
    let usage = &report.usage;
    match report.outcome {
        Outcome::OutOfMemory => warn_of_files_in_memory(usage, counted, limits),
        Outcome::Exited if report.commands.is_some() => warn_of_kills_in_commands(usage),
        outcome => warn_of_memory_kills(usage, outcome, limits),
    }
}

/// Warns if the writable space is full at the end. A body that removed files afterwards, or whose write was
/// larger than what was left, is not recognized: no other trace of ENOSPC exists.
pub(in crate::run) fn of_disk(space: &StatVfs, limits: &[LimitReport]) -> Option<WarningReport> {
    let limit = match (space.f_bfree, space.f_ffree) {
        (0, _) => Limit::Disk,
        (_, 0) => Limit::DiskInodes,
        _ => return None,
    };
    let row = limits.iter().find(|row| row.limit == limit)?;
    let change = match limit.row().flag {
        Some(_) => limit.how_to_change(Some(&row.source)),
        None => "no flag changes it".to_owned(),
    };
    let message = format!(
        "the {} limit of {} was reached: the writable directories were full when the body ended; {change}",
        limit.row().word,
        limit.amount(row.effective?),
    );
    Some(WarningReport::new("disk_full", message))
}

/// Files in the writable space count as memory: warns if they filled a quarter of the limit.
fn warn_of_files_in_memory(
    usage: &Usage,
    counted: &Counted,
    limits: &Limits,
) -> Option<WarningReport> {
    let files = counted.memory_file_bytes.or(usage.written_bytes);
    let files = files.filter(|bytes| limits.memory_bytes() / 4 <= *bytes)?;
    let message = format!("{files} bytes of the memory limit were files in the writable space");
    Some(WarningReport::new("memory_was_files", message))
}

/// The outcome is that of the first process: warns if other processes were killed.
fn warn_of_memory_kills(usage: &Usage, outcome: Outcome, limits: &Limits) -> Option<WarningReport> {
    let killed = match usage.oom_kills {
        None | Some(0) => return None,
        Some(1) => "1 process was".to_owned(),
        Some(count) => format!("{} were", units::count(count, "process")),
    };
    let continued = if outcome == Outcome::Exited {
        ", and the command went on"
    } else {
        ""
    };
    let message = format!(
        "{killed} killed at the memory limit of {}{continued}; a higher --memory \
         makes room",
        units::bytes(limits.memory_bytes())
    );
    Some(WarningReport::new("memory_kills", message))
}

/// For a sandbox that stays: the limit may be that of one command.
fn warn_of_kills_in_commands(usage: &Usage) -> Option<WarningReport> {
    let killed = usage.oom_kills.filter(|count| *count > 0)?;
    let killed = units::count(killed, "process");
    let message = format!("{killed} killed at the memory limit of the sandbox or of one command");
    Some(WarningReport::new("memory_kills", message))
}
