//! `runner plan`: what a run would be, as text or as JSON.

use std::ffi::OsString;
use std::path::PathBuf;

use crate::cli::args::{RunFlags, with_variable};
use crate::cli::config::{self, ConfigError};
use crate::cli::dispatch::{document, warning};
use crate::cli::exit_code::FAILED;
use crate::cli::log;
use crate::cli::plan_text::text;
use crate::cli::print::Printer;
use crate::cli::report_target::ReportTarget;
use crate::cli::request::of_plan;
use crate::cli::surroundings::Surroundings;
use crate::run;
use spec::host_policy::merge;
use spec::plan_report::{PlanReport, PlanVerdict};
use spec::policy_values::policy_values;

/// What `runner plan --help` says besides its flags.
pub(crate) const PLAN_HELP: &str = "\
Every flag means what it means for `exec` and `run`; nothing is started and nothing is made.
--json[=FILE|fd:N] writes the plan as JSON; -v shows the whole view and the whole host policy.

Examples:
  runner plan tool.tar.gz
  runner plan --json -m 1g tool.tar.gz -- --verbose
  runner plan --ro . -- python3 script.py

Exit codes: 0 the run would be started; 125 it would not, and the last lines say why.";

/// Say what `exec` or `run` would do, who decided each part, and whether it would start.
#[derive(Debug, clap::Args)]
#[command(
    override_usage = "runner plan [FLAGS] BUNDLE [-- ARGS]\n       runner plan [FLAGS] -- CMD [ARGS]"
)]
#[command(mut_args = with_variable)]
pub struct Plan {
    /// What `exec` takes, or a manifest alone (.yaml, .json, .md)
    #[arg(required_unless_present = "words")]
    pub bundle: Option<PathBuf>,
    /// Every flag of `exec` and `run`.
    #[command(flatten)]
    pub flags: RunFlags,
    /// With a BUNDLE what is appended to the body's arguments, else the command of `run`
    #[arg(last = true, value_name = "ARGS|CMD")]
    pub words: Vec<OsString>,
}

/// Explains what was asked for and prints it. 0 where the run would be started, else 125.
pub fn plan(words: Plan, surroundings: &Surroundings) -> u8 {
    let printer = Printer::new(words.flags.voice, surroundings);
    if let Err(error) = log::start(words.flags.voice, &printer, surroundings) {
        return printer.failure(&error);
    }
    let json = words.flags.report.json.as_deref();
    let target = match json.map(ReportTarget::open).transpose() {
        Ok(target) => target,
        Err(error) => return printer.failure(&error.report()),
    };
    let plan =
        planned(words, surroundings).unwrap_or_else(|error| PlanReport::refused(error.report()));
    let code = match plan.verdict {
        PlanVerdict::WouldStart => 0,
        PlanVerdict::WouldBeRefused | PlanVerdict::WouldFail => FAILED,
    };
    if let Some(target) = &target
        && let Err(error) = target.write(&plan)
    {
        return printer.failure(&error.report());
    }
    // Standard output belongs to one document.
    if !matches!(target, Some(ReportTarget::StandardOutput)) {
        let shown = document(&printer, &text(&plan, &printer));
        if shown != 0 {
            return shown;
        }
    }
    code
}

fn planned(words: Plan, surroundings: &Surroundings) -> Result<PlanReport, ConfigError> {
    let file = words.flags.policy_file.policy.clone();
    let statements = config::statements(surroundings, file.as_deref())?;
    let (policy, forbidden) = merge(&statements);
    let mut plan = match of_plan(words, surroundings, &policy) {
        Ok(request) => run::plan(&request, &policy),
        Err(error) => PlanReport::refused(error.report()),
    };
    plan.warnings.extend(forbidden.iter().map(warning));
    plan.host_policy = policy_values(&statements);
    Ok(plan)
}
