//! `runner demo`: what a body tried, what it was told, and what stood in its way.

use crate::cli::dispatch::document;
use crate::cli::exit_code::FAILED;
use crate::cli::print::{Printer, Tone, columns, wrap};
use crate::plan::doctor::stand_in;
use crate::run::demonstration::demonstrate;
use spec::demonstration::{Demonstration, Held, Part, Row};
use spec::host_policy::HostPolicy;
use spec::report::EnforcementState;
use spec::request::Caller;

const WHAT_COLUMNS: usize = 27;
const ANSWER_COLUMNS: usize = 25;
/// What stands whether or not this host enforces everything.
const NOT_COVERED: [&str; 4] = [
    "a bug in the kernel itself, which every body shares with the host",
    "what processors leak about other programs (side channels)",
    "/usr, /bin and /lib of the host: the body may read them",
    "what is said inside TLS to a host that is on the list",
];

/// Runs the demonstration and prints it. 0 where everything was as promised, else 125.
///
/// The calling process must have one thread only.
#[must_use]
pub fn demo(caller: &Caller, policy: &HostPolicy, printer: &Printer) -> u8 {
    let demonstration = match demonstrate(caller, policy) {
        Ok(demonstration) => demonstration,
        Err(error) => {
            let error = error.report();
            let text = format!("failed: {} ({})", error.message, error.code);
            printer.line(Tone::Error, &text);
            return FAILED;
        }
    };
    let shown = match demonstration.rows.is_empty() {
        true => 0,
        false => document(printer, &table(&demonstration, printer)),
    };
    if let Some(signal) = demonstration.cancelled_by {
        printer.line(Tone::Error, "cancelled");
        return u8::try_from(signal).map_or(FAILED, |signal| signal.saturating_add(128));
    }
    if let Some(error) = &demonstration.error {
        printer.line(
            Tone::Error,
            &format!("failed: {} ({})", error.message, error.code),
        );
        if let Some(hint) = &error.hint {
            printer.line(Tone::Hint, &format!("hint: {hint}"));
        }
        printer.line(
            Tone::Hint,
            "hint: `runner doctor` says what this host lacks",
        );
    }
    match demonstration.holds() {
        true => shown,
        false => FAILED,
    }
}

fn table(demonstration: &Demonstration, printer: &Printer) -> String {
    let mut text = format!(
        "An untrusted bundle, run {} times on this host.\n",
        demonstration.runs
    );
    for (part, title) in [
        (Part::Allowed, "What it may do"),
        (Part::Denied, "What it tried and could not do"),
        (Part::Limited, "What ended or stopped it"),
    ] {
        text.push_str(&format!("\n{title}\n"));
        for row in demonstration.rows.iter().filter(|row| row.part == part) {
            text.push_str(&line(row, printer));
        }
    }
    if !demonstration.weaknesses.is_empty() {
        text.push_str("\nWeaker on this host (`runner doctor` says how to mend it)\n");
        for axis in &demonstration.weaknesses {
            let state = match axis.state {
                EnforcementState::Enforced => "enforced",
                EnforcementState::Weaker => "weaker",
                EnforcementState::Absent => "absent",
            };
            let reason = axis.reason.as_deref().map(stand_in);
            let reason = reason.unwrap_or("no reason given");
            let said = format!("{} is {state}: {reason}", axis.axis.replace('_', " "));
            text.push_str(&format!("  {}\n", wrap(&said, 2)));
        }
    }
    text.push_str("\nNot covered, here or anywhere\n");
    for said in NOT_COVERED {
        text.push_str(&format!("  {said}\n"));
    }
    let count = |held| {
        let of_kind = demonstration.rows.iter().filter(|row| row.held == held);
        of_kind.count()
    };
    text.push_str(&format!(
        "\n{} of {} as promised",
        count(Held::AsPromised),
        demonstration.rows.len()
    ));
    for (held, what) in [(Held::Broken, "BROKEN"), (Held::NotTried, "not tried")] {
        match count(held) {
            0 => (),
            number => text.push_str(&format!(", {number} {what}")),
        }
    }
    text.push_str(".\n");
    text
}

fn line(row: &Row, printer: &Printer) -> String {
    let (mark, tone) = match (row.held, row.part) {
        (Held::AsPromised, Part::Allowed) => ("ok", Tone::Good),
        (Held::AsPromised, _) => ("held", Tone::Good),
        (Held::Broken, _) => ("FAIL", Tone::Error),
        (Held::NotTried, _) => ("-", Tone::Detail),
    };
    let mark = printer.coloured(tone, &columns(mark, 4));
    let line = format!(
        "  {mark}  {} {} {}",
        columns(row.what, WHAT_COLUMNS),
        columns(&row.answer, ANSWER_COLUMNS),
        row.mechanism
    );
    format!("{}\n", line.trim_end())
}
