//! `runner plan`: what a run would be, as text or as JSON.

use crate::cli::args::Plan;
use crate::cli::config::{self, ConfigError};
use crate::cli::dispatch::{document, warning};
use crate::cli::exit_code::FAILED;
use crate::cli::plan_text::text;
use crate::cli::print::{Printer, Tone};
use crate::cli::report_target::{ReportTarget, TargetError};
use crate::cli::request::of_plan;
use crate::cli::surroundings::Surroundings;
use crate::spec::host_policy::{HostPolicy, merge};
use crate::spec::plan_report::{PlanReport, PlanVerdict};
use crate::spec::policy_values::policy_values;
use crate::spec::request::Request;

/// Explains what was asked for and prints it. 0 where the run would be started, else 125.
pub fn plan(
    words: Plan,
    surroundings: &Surroundings,
    explain: &dyn Fn(&Request, &HostPolicy) -> PlanReport,
) -> u8 {
    let printer = Printer::new(words.flags.voice, surroundings);
    let json = words.flags.report.json.as_deref();
    let target = match json.map(ReportTarget::open).transpose() {
        Ok(target) => target,
        Err(error) => return unwritable(&printer, &error),
    };
    let plan = planned(words, surroundings, explain)
        .unwrap_or_else(|error| PlanReport::refused(error.report()));
    let code = match plan.verdict {
        PlanVerdict::WouldStart => 0,
        PlanVerdict::WouldBeRefused | PlanVerdict::WouldFail => FAILED,
    };
    if let Some(target) = &target
        && let Err(error) = target.write(&plan)
    {
        return unwritable(&printer, &error);
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

fn planned(
    words: Plan,
    surroundings: &Surroundings,
    explain: &dyn Fn(&Request, &HostPolicy) -> PlanReport,
) -> Result<PlanReport, ConfigError> {
    let file = words.flags.policy_file.policy.clone();
    let statements = config::statements(surroundings, file.as_deref())?;
    let (policy, forbidden) = merge(&statements);
    let mut plan = match of_plan(words, surroundings, &policy) {
        Ok(request) => explain(&request, &policy),
        Err(error) => PlanReport::refused(error.report()),
    };
    plan.warnings.extend(forbidden.iter().map(warning));
    plan.host_policy = policy_values(&statements);
    Ok(plan)
}

fn unwritable(printer: &Printer, error: &TargetError) -> u8 {
    let error = error.report();
    let text = format!("failed: {} ({})", error.message, error.code);
    printer.line(Tone::Error, &text);
    FAILED
}
