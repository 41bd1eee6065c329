//! `runner doctor`: prints the diagnosis of this host as a table or as JSON.

use crate::cli::output::render;
use crate::cli::print::{Printer, Tone, columns, wrap};
use crate::plan::doctor::diagnose;
use crate::run::verbs::doctor::collect_facts;
use spec::diagnosis::{Diagnosis, Item, Need, Verdict};
use spec::host_policy::HostPolicy;
use spec::report::EnforcementState;
use spec::request::Caller;

const ID_COLUMNS: usize = 18;
const STATE_COLUMNS: usize = 8;

/// Exit code 0: everything is enforced; 1: degraded; 2: no body can be run; 125: no diagnosis.
///
/// The calling process must have one thread only.
#[must_use]
pub fn doctor(caller: &Caller, policy: &HostPolicy, printer: &Printer, json: bool) -> u8 {
    let diagnosis = match collect_facts(caller, policy) {
        Ok(facts) => diagnose(&facts),
        Err(error) => return printer.failure(&error.report()),
    };
    let code = match diagnosis.verdict {
        Verdict::Full => 0,
        Verdict::Degraded => 1,
        Verdict::CannotRun => 2,
    };
    if printer.is_quiet() && !json && diagnosis.verdict != Verdict::CannotRun {
        return code;
    }
    let text = render(json, &diagnosis, |diagnosis| table(diagnosis, printer));
    printer.document(&text, code)
}

fn table(diagnosis: &Diagnosis, printer: &Printer) -> String {
    let mut text = String::new();
    let mut last_control = None;
    let mut last_fix = None;
    let is_shown = |item: &&Item| {
        let stops = (item.state, item.needed_for) == (EnforcementState::Absent, Need::Running);
        stops || !printer.is_quiet()
    };
    for item in diagnosis.items.iter().filter(is_shown) {
        text.push_str(&row(item, printer));
        if let Some(control) = item
            .blocked_by
            .as_ref()
            .filter(|control| last_control != Some(*control))
        {
            let indent = "    blocked by: ".len();
            text.push_str(&format!("    blocked by: {}\n", wrap(control, indent)));
            last_control = Some(control);
        }
        if let Some(fix) = item.mend.as_ref().filter(|fix| last_fix != Some(*fix)) {
            // Not wrapped, so that it can be copied.
            text.push_str(&format!("    fix: {fix}\n"));
            last_fix = Some(fix);
        }
    }
    text + "\n" + &wrap(&diagnosis.summary, 0) + "\n"
}

fn row(item: &Item, printer: &Printer) -> String {
    let (state, tone) = match (item.state, item.needed_for) {
        (EnforcementState::Enforced, Need::Convenience) => ("found", Tone::Detail),
        (EnforcementState::Enforced, _) => ("enforced", Tone::Detail),
        (EnforcementState::Absent, Need::Convenience) => ("missing", Tone::Detail),
        (EnforcementState::Weaker, _) => ("weaker", Tone::Warning),
        (EnforcementState::Absent, Need::Strength) => ("absent", Tone::Warning),
        (EnforcementState::Absent, Need::Running) => ("absent", Tone::Error),
    };
    let indent = ID_COLUMNS + STATE_COLUMNS + 4;
    let state = printer.coloured(tone, &columns(state, STATE_COLUMNS));
    let id = columns(&item.id, ID_COLUMNS);
    format!("{id}  {state}  {}\n", wrap(&item.effect, indent))
}
