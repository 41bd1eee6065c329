//! The `runner` program.

use std::process::ExitCode;

use runner::cli::dispatch::Engine;
use runner::cli::print::{Printer, Tone};
use runner::spec::host_policy::HostPolicy;
use runner::spec::outcome::Outcome;
use runner::spec::report::{ErrorReport, Report};
use runner::spec::request::{Caller, Request};

fn main() -> ExitCode {
    ExitCode::from(runner::cli::dispatch::main(&Engine {
        execute: &not_built,
        doctor: &|caller, policy, printer, _json| verb_not_built(caller, policy, printer),
        demo: &verb_not_built,
        gc: &verb_not_built,
    }))
}

fn not_built(_request: &Request, _policy: &HostPolicy) -> Report {
    let mut report = Report::new("0".repeat(26), Outcome::Refused);
    report.error = Some(ErrorReport {
        code: "not_built".to_owned(),
        message: "this build has no sandbox".to_owned(),
        hint: None,
    });
    report
}

fn verb_not_built(_caller: &Caller, _policy: &HostPolicy, printer: &Printer) -> u8 {
    printer.line(
        Tone::Error,
        "refused: this build has no sandbox (not_built)",
    );
    125
}
