//! What runs under which limits.

use std::os::fd::{BorrowedFd, OwnedFd};

use rustix::io::Errno;

use crate::plan::limits::Limits;
use crate::run::chosen::{self, Chosen};
use crate::run::error::RunError;
use crate::run::image::Access;
use crate::run::network::Outward;
use crate::run::refusals::Refusals;
use crate::run::unpacking::Bundle;
use crate::run::{Run, command, planning, reporting, subject, view};
use sandbox::cgroups::CgroupLimits;
use sandbox::resources::Resources;
use spec::limits::Limit;
use spec::report::Report;
use spec::request::Subject;

/// What runs under which limits.
pub(super) struct PlannedRun {
    pub(super) chosen: Chosen,
    pub(super) limits: Limits,
    /// Opened `tasks` files of groups that the body joins itself.
    pub(super) joins: Vec<OwnedFd>,
    pub(super) outward: Outward,
}

impl PlannedRun {
    /// Settles the limits of `chosen` and makes the groups hold them.
    ///
    /// # Errors
    /// [`RunError`]: what was asked for and this host cannot hold, or is not granted.
    pub(super) fn new(
        run: &Run<'_>,
        mut chosen: Chosen,
        resources: &mut Resources,
        report: &mut Report,
    ) -> Result<Self, RunError> {
        let (request, policy) = (run.request, run.policy);
        view::keep_stores_apart(&mut chosen.view, &request.caller, policy)?;
        reporting::tell_chosen(report, &chosen);
        let limits = planning::settle_limits(
            request,
            policy,
            &resources.host,
            &resources.coverage(),
            &chosen,
            report,
            &mut Refusals::fail(),
        )?;
        let joins = resources.group.apply(&CgroupLimits {
            memory_bytes: limits.values.get(Limit::Memory),
            processes: limits.values.get(Limit::Processes),
            cpu_millis: limits.values.get(Limit::Cpus),
        })?;
        let outward = Outward::prepare(request, policy, &chosen.egress)?;
        Ok(Self {
            chosen,
            limits,
            joins,
            outward,
        })
    }
}

impl Run<'_> {
    /// What runs, of a command or of an unpacked bundle.
    ///
    /// # Errors
    /// [`RunError`]: nothing that can be run, or nothing that may be.
    pub(super) fn choose(
        &self,
        bundle: Option<&Bundle>,
        manifest: Option<subject::Subject>,
        signals: BorrowedFd<'_>,
    ) -> Result<Chosen, RunError> {
        let listener = self.listener;
        let access = Access::Fetch { signals, listener };
        match (&self.request.subject, bundle) {
            (Subject::Command(argv), _) => {
                let mut chosen = command::of_command(
                    self.request,
                    self.policy,
                    argv,
                    access,
                    &mut Refusals::fail(),
                )?;
                if let Some(preparing) = self.preparing {
                    preparing.complete(&mut chosen)?;
                }
                Ok(chosen)
            }
            (Subject::Bundle(_), Some(bundle)) => {
                let files = bundle.files();
                let manifest = chosen::manifest_of(self.request, self.policy, manifest, &files)?;
                chosen::of_bundle(
                    self.request,
                    self.policy,
                    manifest,
                    access,
                    &files,
                    &mut Refusals::fail(),
                )
            }
            (Subject::Bundle(_), None) => Err(RunError::host("find the bundle")(Errno::NOENT)),
        }
    }
}
