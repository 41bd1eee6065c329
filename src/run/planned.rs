//! What runs under which limits.

use std::os::fd::{BorrowedFd, OwnedFd};

use crate::plan::limits::Limits;
use crate::run::chosen::{self, Chosen};
use crate::run::error::RunError;
use crate::run::image::Access;
use crate::run::network::Outward;
use crate::run::refusals::Refusals;
use crate::run::subject::{self, BundleFiles};
use crate::run::unpacking::Bundle;
use crate::run::{Run, view};
use sandbox::cgroups::CgroupLimits;
use sandbox::resources::Resources;
use spec::limits::Limit;

/// What runs under which limits.
pub(super) struct PlannedRun {
    pub(super) chosen: Chosen,
    pub(super) limits: Limits,
    /// Opened `tasks` files of groups that the body joins itself.
    pub(super) joins: Vec<OwnedFd>,
    pub(super) outward: Outward,
}

impl PlannedRun {
    /// Makes the groups of `resources` hold the limits of what was chosen.
    ///
    /// # Errors
    /// [`RunError::Cgroup`], [`RunError::Host`].
    pub(super) fn new(
        run: &Run<'_>,
        chosen: Chosen,
        limits: Limits,
        resources: &mut Resources,
    ) -> Result<Self, RunError> {
        let joins = resources.group.apply(&CgroupLimits {
            memory_bytes: limits.values.get(Limit::Memory),
            processes: limits.values.get(Limit::Processes),
            cpu_millis: limits.values.get(Limit::Cpus),
        })?;
        let outward = Outward::prepare(run.request, run.policy, &chosen.egress)?;
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
        let (request, policy) = (self.request, self.policy);
        let access = Access::Fetch { signals };
        let files = bundle.map(Bundle::files);
        let files = files.as_ref().map(|files| files as &dyn BundleFiles);
        let refusals = &mut Refusals::fail();
        let mut chosen = chosen::choose(request, policy, files, manifest, access, refusals)?;
        if let Some(preparing) = self.preparing {
            preparing.complete(&mut chosen)?;
        }
        view::keep_stores_apart(&mut chosen.view, &request.caller, policy)?;
        Ok(chosen)
    }
}
