//! `runner gc`: removes what killed supervisors left behind.

use crate::cli::dispatch::document;
use crate::cli::exit_code::FAILED;
use crate::cli::print::{Printer, Tone};
use crate::run::host::resources::{LEFTOVER_STAYS, collect_leftovers, open_records};
use spec::host_policy::HostPolicy;
use spec::request::Caller;

/// Removes it, and prints one line for each dead run. 0, or 125 where something stays.
#[must_use]
pub fn gc(caller: &Caller, _policy: &HostPolicy, printer: &Printer) -> u8 {
    let collected = open_records(caller).and_then(|records| collect_leftovers(&records));
    let found = match collected {
        Ok(found) => found,
        Err(error) => return printer.failure(&error.report()),
    };
    let (stays, removed): (Vec<_>, Vec<_>) =
        found.iter().partition(|one| one.code == LEFTOVER_STAYS);
    let mut text: String = removed
        .iter()
        .map(|one| format!("{}\n", one.message))
        .collect();
    if found.is_empty() {
        text.push_str("nothing to remove\n");
    }
    let code = document(printer, &text);
    for one in &stays {
        let text = format!("failed: {} ({})", one.message, one.code);
        printer.line(Tone::Error, &text);
    }
    match stays.is_empty() {
        true => code,
        false => FAILED,
    }
}
