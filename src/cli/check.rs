//! `runner check`: prints all errors of a manifest on standard output.

use std::path::PathBuf;

use crate::cli::bundle::requires_pin;
use crate::cli::context::ProcessContext;
use crate::cli::exit_code::FAILED;
use crate::cli::output::{OutputFlags, render};
use crate::cli::print::{Printer, Tone, excerpt};
use bundler::check::{check as check_manifest, errors_of};
use bundler::locate::locate_runnable;
use bundler::resolve::ResolveRequest;
use spec::check::CheckReport;
use spec::host_policy::HostPolicy;
use spec::units::count;

pub(crate) const CHECK_HELP: &str = "\
All errors are printed at once, on standard output. `runner bundle --help` shows a first manifest,
`runner schema manifest` each key.

Examples:
  runner check .
  runner check --json tool.yaml

Exit codes: 0 valid, 125 not.";

#[derive(Debug, clap::Args)]
pub struct Check {
    /// A manifest, a folder with one, or the name of a code-workspace
    #[arg(value_name = "MANIFEST|DIR|NAME")]
    pub subject: PathBuf,
    /// The directory that paths are relative to [default: the working directory if the manifest is in it, else the manifest's folder]
    #[arg(long, value_name = "DIR")]
    pub workspace: Option<PathBuf>,
    /// Refuse references to branches and tags
    #[arg(long)]
    pub require_pin: bool,
    #[command(flatten)]
    pub output: OutputFlags,
}

/// Exit code 0: valid; 125: not.
#[must_use]
pub fn check(
    check: &Check,
    context: &ProcessContext,
    policy: &HostPolicy,
    printer: &Printer,
) -> u8 {
    let report = report(check, context, policy);
    let text = render(check.output.json, &report, |report| {
        to_text(report, printer)
    });
    printer.document(&text, if report.valid { 0 } else { FAILED })
}

fn report(check: &Check, context: &ProcessContext, policy: &HostPolicy) -> CheckReport {
    let located = locate_runnable(
        &check.subject,
        check.workspace.as_deref(),
        context.working_directory.as_deref(),
    );
    let located = match located {
        Ok(located) => located,
        Err(error) => {
            return CheckReport {
                errors: errors_of(&error),
                ..CheckReport::default()
            };
        }
    };
    let request = ResolveRequest {
        manifest: &located.manifest,
        registry: &policy.refs,
        require_pin: requires_pin(check.require_pin, context, policy),
    };
    let mut report = check_manifest(request, &located.files, policy);
    report.warnings.splice(0..0, located.warnings);
    report
}

fn to_text(report: &CheckReport, printer: &Printer) -> String {
    let mut text = String::new();
    for error in &report.errors {
        let written = error.to_string();
        let (line, rest) = written.split_once('\n').unwrap_or((&written, ""));
        text.push_str(&format!("{}\n", printer.coloured(Tone::Error, line)));
        if let Some(line) = &error.source_line {
            text.push_str(&format!(
                "{}\n",
                printer.coloured(Tone::Hint, &excerpt(line))
            ));
        }
        for line in rest.lines() {
            text.push_str(&format!("{line}\n"));
        }
    }
    if printer.is_quiet() {
        return text;
    }
    for warning in &report.warnings {
        let line = format!("warning: {} ({})", warning.message, warning.code);
        text.push_str(&format!("{}\n", printer.coloured(Tone::Warning, &line)));
    }
    if printer.is_verbose() {
        for pointer in &report.ignored {
            let line = format!("ignored: {pointer}");
            text.push_str(&format!("{}\n", printer.coloured(Tone::Detail, &line)));
        }
    }
    let warnings = count(report.warnings.len(), "warning");
    let summary = match &report.name {
        Some(name) if report.valid => format!("ok: {name}, {warnings}"),
        _ => format!(
            "refused: {}, {warnings}",
            count(report.errors.len(), "error")
        ),
    };
    text.push_str(&summary);
    text.push('\n');
    text
}
