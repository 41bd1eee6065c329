//! `runner why`: which rule of a plan decides about one path, host or system call.

mod hosts;
pub(in crate::run) mod paths;
mod syscalls;

use rustix::io::Errno;

use crate::run::dry_run::facts::HostFacts;
use crate::run::error::RunError;
use crate::run::launching::predicted_view::PredictedView;
use crate::run::planning::resolved::ResolvedRun;
use spec::host_policy::HostPolicy;
use spec::plan_report::PlanReport;
use spec::request::Request;
use spec::why_report::{Answer, Question};

/// A plan and what it was made of.
pub(super) struct Planned<'plan> {
    pub(in crate::run) request: &'plan Request,
    pub(in crate::run) policy: &'plan HostPolicy,
    pub(in crate::run) resolved: &'plan ResolvedRun,
    pub(in crate::run) facts: &'plan HostFacts,
    pub(in crate::run) inside: &'plan PredictedView<'plan>,
    pub(in crate::run) document: &'plan PlanReport,
}

impl Planned<'_> {
    /// # Errors
    /// None in practice: the build script has read the same policy.
    pub(in crate::run) fn answer(&self, question: &Question) -> Result<Answer, RunError> {
        match question {
            Question::Path { path, operation } => Ok(self.path(path, *operation)),
            Question::Host(rule) => Ok(self.host(rule)),
            Question::Syscall(name) => self
                .syscall(name)
                .map_err(|_malformed| RunError::host("read the system call policy")(Errno::INVAL)),
        }
    }
}
