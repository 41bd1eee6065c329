//! `runner check`: everything that is wrong with a manifest, on standard output.

use std::path::PathBuf;

use crate::cli::args::{PolicyFile, VoiceFlags, with_variable};
use crate::cli::bundle::requires_pin;
use crate::cli::dispatch::document;
use crate::cli::exit_code::FAILED;
use crate::cli::found;
use crate::cli::print::{Printer, Tone};
use crate::cli::surroundings::Surroundings;
use bundler::check::{check as check_manifest, errors_of};
use bundler::locate::locate;
use bundler::resolve::ResolveRequest;
use spec::check::CheckReport;
use spec::host_policy::HostPolicy;

/// What `runner check --help` says besides its flags.
pub(crate) const CHECK_HELP: &str = "\
Every error is told at once, on standard output. `runner bundle --help` shows a first manifest,
`runner schema manifest` each key.

Examples:
  runner check .
  runner check --json tool.yaml

Exit codes: 0 valid, 125 not.";

/// Say everything that is wrong with a manifest, its blocks and what it refers to.
#[derive(Debug, clap::Args)]
#[command(mut_args = with_variable)]
pub struct Check {
    /// A manifest, a folder that holds one, or the name of a code-workspace
    #[arg(value_name = "MANIFEST|DIR|NAME")]
    pub subject: PathBuf,
    /// What paths are relative to [default: the working directory where the manifest lies beneath it, else the manifest's folder]
    #[arg(long, value_name = "DIR")]
    pub workspace: Option<PathBuf>,
    /// Refuse references to branches and tags
    #[arg(long)]
    pub require_pin: bool,
    /// Print a JSON document instead of lines
    #[arg(long)]
    pub json: bool,
    /// How to speak.
    #[command(flatten)]
    pub voice: VoiceFlags,
    /// Configuration.
    #[command(flatten)]
    pub policy: PolicyFile,
}

/// Reads what is asked for and prints what is wrong with it. 0 where nothing is, else 125.
#[must_use]
pub fn check(
    check: &Check,
    surroundings: &Surroundings,
    policy: &HostPolicy,
    printer: &Printer,
) -> u8 {
    let report = report(check, surroundings, policy);
    let text = found::text(check.json, &report, |report| lines(report, check, printer));
    match document(printer, &text) {
        0 if report.valid => 0,
        _ => FAILED,
    }
}

fn report(check: &Check, surroundings: &Surroundings, policy: &HostPolicy) -> CheckReport {
    let located = locate(
        &check.subject,
        check.workspace.as_deref(),
        surroundings.working_directory.as_deref(),
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
        require_pin: requires_pin(check.require_pin, surroundings, policy),
    };
    let mut report = check_manifest(request, &located.files, policy);
    report.warnings.splice(0..0, located.warnings);
    report
}

fn lines(report: &CheckReport, check: &Check, printer: &Printer) -> String {
    let mut text = String::new();
    for error in &report.errors {
        let written = error.to_string();
        let (line, rest) = written.split_once('\n').unwrap_or((&written, ""));
        text.push_str(&printer.coloured(Tone::Error, line));
        text.push('\n');
        for line in rest.lines() {
            text.push_str(line);
            text.push('\n');
        }
    }
    if check.voice.quiet {
        return text;
    }
    for warning in &report.warnings {
        let line = format!("warning: {} ({})", warning.message, warning.code);
        text.push_str(&printer.coloured(Tone::Warning, &line));
        text.push('\n');
    }
    if 0 < check.voice.verbose {
        for pointer in &report.ignored {
            let line = format!("ignored: {pointer}");
            text.push_str(&printer.coloured(Tone::Detail, &line));
            text.push('\n');
        }
    }
    let warnings = counted(report.warnings.len(), "warning");
    let summary = match &report.name {
        Some(name) if report.valid => format!("ok: {name}, {warnings}"),
        _ => format!(
            "refused: {}, {warnings}",
            counted(report.errors.len(), "error")
        ),
    };
    text.push_str(&summary);
    text.push('\n');
    text
}

fn counted(count: usize, what: &str) -> String {
    let plural = if count == 1 { "" } else { "s" };
    format!("{count} {what}{plural}")
}
