//! Plans a run from the request and the bundle's files: what runs, and under which limits.

mod command;
mod hosts;

pub(super) mod limits;
pub(super) mod needs;
pub(super) mod programs;
pub(super) mod provider;
pub(super) mod resolved;
pub(super) mod store_overlap;

use std::os::fd::{BorrowedFd, OwnedFd};

use crate::plan::limits::Limits;
use crate::run::Run;
use crate::run::contract::IoContract;
use crate::run::error::RunError;
use crate::run::image::finding::Access;
use crate::run::inputs::file_roots::FileRoots;
use crate::run::inputs::loaded_manifest::LoadedManifest;
use crate::run::planning::resolved::ResolvedRun;
use crate::run::refusals::Refusals;
use crate::run::supervision::network::NetworkSetup;
use crate::run::unpacking::Bundle;
use crate::run::unpacking::bundle_files::BundleFiles;
use crate::staging;
use sandbox::cgroups::CgroupLimits;
use sandbox::resources::Resources;
use spec::limits::Limit;
use spec::request::Subject;

/// A resolved run with its limits.
pub(super) struct PlannedRun {
    pub(super) resolved: ResolvedRun,
    pub(super) limits: Limits,
    /// Opened `tasks` files of the groups that the body joins itself.
    pub(super) joins: Vec<OwnedFd>,
    pub(super) network_setup: NetworkSetup,
}

impl PlannedRun {
    /// Applies the limits to the groups of `resources`.
    pub(super) fn new(
        run: &Run<'_>,
        resolved: ResolvedRun,
        limits: Limits,
        resources: &mut Resources,
    ) -> Result<Self, RunError> {
        let joins = resources.group.apply(&CgroupLimits {
            memory_bytes: limits.values.get(Limit::Memory),
            processes: limits.values.get(Limit::Processes),
            cpu_millis: limits.values.get(Limit::Cpus),
            kills_one: matches!(run.request.subject, Subject::Sandbox),
        })?;
        let network_setup = NetworkSetup::prepare(run.request, run.policy, &resolved.egress)?;
        Ok(Self {
            resolved,
            limits,
            joins,
            network_setup,
        })
    }
}

impl Run<'_> {
    /// Resolves the command or the unpacked bundle.
    pub(super) fn resolve(
        &self,
        bundle: Option<&Bundle>,
        manifest: Option<LoadedManifest>,
        signals: BorrowedFd<'_>,
    ) -> Result<ResolvedRun, RunError> {
        let (request, policy) = (self.request, self.policy);
        let access = Access::Fetch { signals };
        let files = bundle.map(Bundle::files);
        let files = files.as_ref().map(|files| files as &dyn BundleFiles);
        let refusals = &mut Refusals::fail();
        let mut resolved = resolved::resolve(request, policy, files, manifest, access, refusals)?;
        if let Some(preparing) = self.preparing {
            preparing.add_layers(&mut resolved)?;
        }
        store_overlap::keep_stores_apart(&mut resolved.view, &request.caller, policy)?;
        Ok(resolved)
    }

    /// Refuses destinations of outputs.
    pub(super) fn check_outputs(
        &self,
        contract: &IoContract,
        file_roots: &FileRoots,
    ) -> Result<(), RunError> {
        let outputs = &contract.output_files;
        // Comes first: no grant helps against it.
        if let Some((root, _)) = file_roots.output_root() {
            let caller = &self.request.caller;
            store_overlap::keep_outputs_apart(outputs, root, caller, self.policy)?;
        }
        Ok(staging::check_outputs(outputs)?)
    }
}
