//! `runner ps`, `runner inspect`, `runner logs` and `runner report`: the history of this user's runs.

use std::ffi::{OsStr, OsString};

use crate::cli::args::CommonFlags;
use crate::cli::exit_code::FAILED;
use crate::cli::output::{OutputFlags, render, to_json};
use crate::cli::page_target::PageTarget;
use crate::cli::print::{Printer, write_body_errors};
use crate::cli::report_target::{OUTPUT, ReportTarget};
use crate::cli::why_run;
use crate::run::verbs::history::{RecordedRuns, RecordedStream, read_output};
use serde_json::Value;
use spec::history::{ListedRun, RunListing};
use spec::report::{ErrorReport, WarningReport};
use spec::request::Caller;
use spec::why_report::WhyReport;

#[derive(Debug, clap::Args)]
pub struct Ps {
    /// List the runs that ended, too
    #[arg(short, long)]
    pub all: bool,
    #[command(flatten)]
    pub flags: OutputFlags,
}

#[derive(Debug, clap::Args)]
pub struct PageOfRun {
    /// The start of a run id, or `last`: the run that ended last
    #[arg(default_value = "last")]
    pub run: String,
    /// The file, which is replaced as a whole
    #[arg(short, long, value_name = "FILE.html")]
    pub output: OsString,
    #[command(flatten)]
    pub common: CommonFlags,
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
    show(&args.run, caller, printer, to_json)
}

/// `runner why RUN`. Returns the exit code.
#[must_use]
pub(super) fn explain(run: &str, json: Option<&OsStr>, caller: &Caller, printer: &Printer) -> u8 {
    let target = match json.map(ReportTarget::open).transpose() {
        Ok(target) => target,
        Err(error) => return printer.problem("refused", &error.report()),
    };
    let history = match RecordedRuns::read(caller) {
        Ok(history) => history,
        Err(error) => return printer.failure(&error.report()),
    };
    let document = match history.find(run) {
        Ok(report) => WhyReport::about_run(why_run::explain(report)),
        Err(error) => WhyReport::refused(error),
    };
    if let Some(target) = &target
        && let Err(error) = target.write(&document)
    {
        return printer.failure(&error.report());
    }
    match (&document.run, &document.error) {
        // Standard output gets one document only.
        (Some(_), _) if matches!(target, Some(ReportTarget::StandardOutput)) => 0,
        (Some(run), _) => printer.document(&why_run::text(run), 0),
        (None, error) => error
            .as_ref()
            .map_or(FAILED, |error| printer.problem("refused", error)),
    }
}

fn show(run: &str, caller: &Caller, printer: &Printer, text: fn(&Value) -> String) -> u8 {
    let history = match RecordedRuns::read(caller) {
        Ok(history) => history,
        Err(error) => return printer.failure(&error.report()),
    };
    match history.find(run) {
        Ok(report) => printer.document(&text(report), 0),
        Err(error) => printer.problem("refused", &error),
    }
}

/// Prints what a body wrote to its streams, each to that of this process. Returns the exit code.
#[must_use]
pub(super) fn logs(args: &Inspect, caller: &Caller, printer: &Printer) -> u8 {
    let history = match RecordedRuns::read(caller) {
        Ok(history) => history,
        Err(error) => return printer.failure(&error.report()),
    };
    let run_id = match history.find(&args.run) {
        Ok(run) => run["run_id"].as_str().unwrap_or_default(),
        Err(error) => return printer.problem("refused", &error),
    };
    let streams = match read_output(caller, run_id) {
        Ok(Some(streams)) => streams,
        Ok(None) => {
            let error = ErrorReport::new(
                "output_not_recorded",
                format!("the history has no output of run {run_id}"),
            )
            .with_hint("start a run with --record-output to keep its output");
            return printer.problem("refused", &error);
        }
        Err(error) => return printer.failure(&error.report()),
    };
    let [stdout, stderr] = &streams;
    let code = printer.bytes(&stdout.recorded, 0);
    write_body_errors(&stderr.recorded);
    for (name, stream) in [("standard output", stdout), ("standard error", stderr)] {
        if stream.dropped_bytes > 0 {
            let RecordedStream {
                bytes,
                dropped_bytes,
                ..
            } = stream;
            let message =
                format!("the last {dropped_bytes} of {bytes} bytes of {name} were not recorded");
            printer.warnings(&[WarningReport::new("output_cut", message)]);
        }
    }
    code
}

/// `runner report`. Returns the exit code.
#[must_use]
pub(super) fn report(args: &PageOfRun, caller: &Caller, printer: &Printer) -> u8 {
    let target = match PageTarget::open(OUTPUT, &args.output) {
        Ok(target) => target,
        Err(error) => return printer.problem("refused", &error.report()),
    };
    let history = match RecordedRuns::read(caller) {
        Ok(history) => history,
        Err(error) => return printer.failure(&error.report()),
    };
    let report = match history.find_report(&args.run) {
        Ok(report) => report,
        Err(error) => return printer.problem("refused", &error),
    };
    match target.write(report) {
        Ok(()) => 0,
        Err(error) => printer.failure(&error.report()),
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
