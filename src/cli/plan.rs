//! `runner plan`: a dry run, printed as text or as JSON.

use std::ffi::OsString;
use std::path::PathBuf;

use crate::cli::args::{Exec, ReportFlags, Run, RunFlags};
use crate::cli::config::{self, ConfigError};
use crate::cli::context::ProcessContext;
use crate::cli::dispatch::warning;
use crate::cli::environment::SecretValues;
use crate::cli::exit_code::FAILED;
use crate::cli::log;
use crate::cli::plan_text::text;
use crate::cli::print::Printer;
use crate::cli::report_target::ReportTarget;
use crate::cli::request::build_request;
use crate::run;
use spec::host_policy::merge;
use spec::plan_report::{PlanReport, PlanVerdict};
use spec::policy_values::policy_values;
use spec::report::WarningReport;

pub(crate) const PLAN_HELP: &str = "\
The flags are those of `exec` and `run`; nothing is started or created.
--json[=FILE|fd:N] writes the plan as JSON; -v shows the whole view and the whole host policy.

Examples:
  runner plan tool.tar.gz
  runner plan --json -m 1g tool.tar.gz -- --verbose
  runner plan --ro . -- python3 script.py

Exit codes: 0 the run would be started; 125 it would not, and the last lines say why.";

// A bundle or a command, with the flags of `exec` and `run`.
#[derive(Debug, clap::Args)]
#[command(
    override_usage = "runner plan [FLAGS] BUNDLE [-- ARGS]\n       runner plan [FLAGS] -- CMD [ARGS]"
)]
pub struct Invocation {
    /// What `exec` takes, or a manifest alone (.yaml, .json, .md)
    #[arg(required_unless_present = "words")]
    pub bundle: Option<PathBuf>,
    #[command(flatten)]
    pub flags: RunFlags,
    /// With a BUNDLE arguments of the body, else the command of `run`
    #[arg(last = true, value_name = "ARGS|CMD")]
    pub words: Vec<OsString>,
}

impl From<Exec> for Invocation {
    fn from(exec: Exec) -> Self {
        Self {
            bundle: Some(exec.bundle),
            flags: exec.flags,
            words: exec.arguments,
        }
    }
}

impl From<Run> for Invocation {
    fn from(run: Run) -> Self {
        Self {
            bundle: None,
            flags: run.flags,
            words: run.command,
        }
    }
}

/// Prints the plan. Exit code 0 if the run would start, else 125.
pub fn plan(invocation: Invocation, context: &ProcessContext) -> u8 {
    let messages = invocation.flags.common.messages;
    let printer = Printer::new(messages, context);
    if let Err(error) = log::start(messages, &printer, context) {
        return printer.problem("refused", &error);
    }
    let json = invocation.flags.report.json.as_deref();
    let target = match json.map(ReportTarget::open).transpose() {
        Ok(target) => target,
        Err(error) => return printer.problem("refused", &error.report()),
    };
    let plan =
        make_plan(invocation, context).unwrap_or_else(|error| PlanReport::refused(error.report()));
    let code = match plan.verdict {
        PlanVerdict::WouldStart => 0,
        PlanVerdict::WouldBeRefused | PlanVerdict::WouldFail => FAILED,
    };
    if let Some(target) = &target
        && let Err(error) = target.write(&plan)
    {
        return printer.failure(&error.report());
    }
    // Standard output gets one document only.
    if matches!(target, Some(ReportTarget::StandardOutput)) {
        return code;
    }
    printer.document(&text(&plan, &printer), code)
}

/// A page is that of a run.
pub(super) fn report_ignored(flags: &ReportFlags) -> Option<WarningReport> {
    let message = "--report is ignored: only a run writes a page";
    flags
        .report
        .as_ref()
        .map(|_| WarningReport::new("report_ignored", message))
}

fn make_plan(invocation: Invocation, context: &ProcessContext) -> Result<PlanReport, ConfigError> {
    let is_verb = |bundle: &PathBuf| bundle.as_os_str() == "run" || bundle.as_os_str() == "exec";
    let report_ignored = report_ignored(&invocation.flags.report);
    let names_verb = invocation.bundle.as_ref().is_some_and(is_verb);
    let file = invocation.flags.common.policy.as_deref();
    let statements = config::statements(context, file)?;
    let (policy, forbidden) = merge(&statements);
    let mut plan = match build_request(invocation, false, SecretValues::CheckOnly, context, &policy)
    {
        Ok(request) => run::plan(&request, &policy),
        Err(error) => PlanReport::refused(error.report()),
    };
    if names_verb && let Some(error) = plan.error.as_mut().filter(|error| error.hint.is_none()) {
        let hint = "`plan` takes no verb: runner plan BUNDLE, or runner plan -- CMD";
        error.hint = Some(hint.to_owned());
    }
    plan.warnings.extend(forbidden.iter().map(warning));
    plan.warnings.extend(report_ignored);
    plan.host_policy = policy_values(&statements);
    Ok(plan)
}
