//! `runner gc`: removes what killed supervisors left behind.

use crate::cli::exit_code::FAILED;
use crate::cli::print::{Printer, Tone};
use crate::run::resources::{LEFTOVER_STAYS, collect, open_registry};
use spec::host_policy::HostPolicy;
use spec::request::Caller;

/// Prints one line for each dead run. Exit code 0, or 125 if something could not be removed.
#[must_use]
pub fn gc(caller: &Caller, _policy: &HostPolicy, printer: &Printer) -> u8 {
    let collected = open_registry(caller).and_then(|registry| collect(&registry));
    let found = match collected {
        Ok(found) => found,
        Err(error) => return printer.failure(&error.report()),
    };
    let (stuck, removed): (Vec<_>, Vec<_>) =
        found.iter().partition(|one| one.code == LEFTOVER_STAYS);
    let mut text: String = removed
        .iter()
        .map(|one| format!("{}\n", one.message))
        .collect();
    if found.is_empty() {
        text.push_str("nothing to remove\n");
    }
    let code = printer.document(&text, 0);
    for one in &stuck {
        let text = format!("failed: {} ({})", one.message, one.code);
        printer.line(Tone::Error, &text);
    }
    if stuck.is_empty() { code } else { FAILED }
}
