//! `runner ps` and `runner inspect`: the history of this user's runs.

use crate::cli::args::CommonFlags;
use crate::cli::output::{OutputFlags, render, to_json};
use crate::cli::print::Printer;
use crate::run::verbs::history::RecordedRuns;
use spec::history::{ListedRun, RunListing};
use spec::request::Caller;

#[derive(Debug, clap::Args)]
pub struct Ps {
    /// List the runs that ended, too
    #[arg(short, long)]
    pub all: bool,
    #[command(flatten)]
    pub flags: OutputFlags,
}

#[derive(Debug, clap::Args)]
pub struct Inspect {
    /// The start of a run id, or `last`: the run that ended last
    #[arg(default_value = "last")]
    pub run: String,
    #[command(flatten)]
    pub common: CommonFlags,
}

/// Returns the exit code.
#[must_use]
pub(super) fn ps(args: &Ps, caller: &Caller, printer: &Printer) -> u8 {
    match RecordedRuns::read(caller) {
        Ok(history) => {
            let runs = history.list(args.all);
            let text = render(args.flags.json, &RunListing { runs }, table);
            printer.document(&text, 0)
        }
        Err(error) => printer.failure(&error.report()),
    }
}

/// Returns the exit code.
#[must_use]
pub(super) fn inspect(args: &Inspect, caller: &Caller, printer: &Printer) -> u8 {
    let history = match RecordedRuns::read(caller) {
        Ok(history) => history,
        Err(error) => return printer.failure(&error.report()),
    };
    match history.find(&args.run) {
        Ok(report) => printer.document(&to_json(report), 0),
        Err(error) => printer.problem("refused", &error),
    }
}

fn table(listing: &RunListing) -> String {
    let rows = listing.runs.iter().map(|run| {
        let ListedRun {
            run_id,
            started_at,
            state,
            exit_code,
            subject,
        } = run;
        let state = match exit_code {
            Some(code) => format!("{state} ({code})"),
            None => state.clone(),
        };
        format!(
            "{run_id}  {started_at}  {state:<14}  {}\n",
            subject.join(" ")
        )
    });
    let head = format!(
        "{:<26}  {:<24}  {:<14}  SUBJECT\n",
        "RUN", "STARTED", "STATE"
    );
    std::iter::once(head).chain(rows).collect()
}
