//! `runner gc`: removes what killed supervisors left behind.

use crate::cli::exit_code::FAILED;
use crate::cli::print::{Printer, Tone};
use crate::run::host::resources::{LEFTOVER_STAYS, collect_leftovers, open_records};
use spec::host_policy::HostPolicy;
use spec::request::Caller;

/// Prints one line for each dead run, with `-q` only for what could not be removed: then the exit code
/// is 125, else 0.
#[must_use]
pub fn gc(caller: &Caller, _policy: &HostPolicy, printer: &Printer) -> u8 {
    let collected = open_records(caller).and_then(|records| collect_leftovers(&records));
    let found = match collected {
        Ok(found) => found,
        Err(error) => return printer.failure(&error.report()),
    };
    let (stuck, removed): (Vec<_>, Vec<_>) = found
        .iter()
        .partition(|leftover| leftover.code == LEFTOVER_STAYS);
    let text = if printer.is_quiet() {
        String::new()
    } else if found.is_empty() {
        "nothing to remove\n".to_owned()
    } else {
        let lines = removed.iter().map(|run| format!("{}\n", run.message));
        lines.collect()
    };
    let code = printer.document(&text, 0);
    for leftover in &stuck {
        let text = format!("failed: {} ({})", leftover.message, leftover.code);
        printer.line(Tone::Error, &text);
    }
    if stuck.is_empty() { code } else { FAILED }
}
