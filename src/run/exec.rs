//! The stages of a run in order. Each stage consumes the result of the stage before.

use std::os::fd::{AsFd as _, BorrowedFd};

use crate::run::Run;
use crate::run::contract::{self, IoContract, space};
use crate::run::countdown::Countdown;
use crate::run::error::RunError;
use crate::run::host::resources::{self, RunHost};
use crate::run::inputs::Inputs;
use crate::run::inputs::file_roots::FileRoots;
use crate::run::inputs::loaded_manifest::LoadedManifest;
use crate::run::interruptible::{WaitLimit, check_pending_end};
use crate::run::launching::launch_plan::{self, LaunchInputs};
use crate::run::launching::secret_values::{self, RequestedSecrets};
use crate::run::launching::start_failure::{self, Attempt};
use crate::run::outputs::copy_kept_directories;
use crate::run::planning::PlannedRun;
use crate::run::planning::limits::{claim_share, resolve_limits};
use crate::run::reporting::ReportBuilder;
use crate::run::stages::{Ended, Materialized, Planned, Running, Staged, Unpacked, Waiting};
use crate::run::supervision::audit_denials::HostRecords;
use crate::run::supervision::{Supervised, published_ports, signal_denials};
use crate::run::unpacking::bundle_files::BundleFiles;
use crate::run::unpacking::{Bundle, UNPACK};
use crate::staging::{self, FileLimits};
use archive::OpenedArchive;
use egress::relay::Published;
use sandbox::launch::{Launching, launch};
use sandbox::prefork::Prefork;
use sandbox::prepare::{Prepared, begin};
use sandbox::resources::Resources;
use sandbox::supervise::streams::make_pipes;
use sandbox::supervise::watch::listen_for_signals;
use spec::events::Phase;
use spec::limits::Limit;
use spec::tokens::TokenValues;
use sys::{rlimit, signal};

/// A run with the state that all stages share.
struct Execution<'run> {
    run: &'run Run<'run>,
    resources: &'run mut Resources,
    signals: BorrowedFd<'run>,
    report: &'run mut ReportBuilder,
}

impl Run<'_> {
    /// Does the run. After a failure, the report has the facts of the stages before it.
    pub(super) fn execute(
        &self,
        prefork: Option<Prefork>,
        seed: [u8; 10],
        report: &mut ReportBuilder,
    ) -> Result<(), RunError> {
        report.begin_phase(Phase::Prepare);
        let inputs = self.open_inputs()?;
        // Comes before any resource: a signal that ended this process would leave it behind.
        let signals = listen_for_signals().map_err(RunError::host("listen for signals"))?;
        // Each relayed connection takes two descriptors.
        rlimit::raise(rlimit::resource::OPEN_FILES)
            .map_err(RunError::host("raise the limit of open descriptors"))?;
        let host = RunHost::inspect(self.request, prefork.is_some())?;
        report.warn(host.collect_leftovers()?);
        report.record_cgroup_backend(host.backend());
        let mut resources = host.acquire(self.request, self.policy, report.run_id(), seed)?;
        let mut execution = Execution {
            run: self,
            resources: &mut resources,
            signals: signals.as_fd(),
            report,
        };
        let result = execution.stages(prefork, inputs);
        report.begin_phase(Phase::Clean);
        if let Some(staying) = self.staying() {
            report.warn(staying.give_up_name(&mut resources.record));
        }
        report.warn(resources::release(resources));
        result
    }
}

impl<'run> Execution<'run> {
    fn stages(&mut self, prefork: Option<Prefork>, mut inputs: Inputs) -> Result<(), RunError> {
        if let Some(staying) = self.run.staying() {
            let (record, run_id) = (&mut self.resources.record, self.report.run_id());
            let most = self.run.request.caller.totals.sandboxes;
            staying.claim_name(record, run_id, self.run.start_unix_s, most)?;
        }
        let running = self.start(prefork, &mut inputs);
        let running = running.map_err(|error| self.or_cancelled(error))?;
        let ended = self.supervise(running)?;
        self.sync(ended, &inputs.file_roots)
    }

    /// The stages up to the start of the body.
    fn start(
        &mut self,
        prefork: Option<Prefork>,
        inputs: &mut Inputs,
    ) -> Result<Running, RunError> {
        let waiting = self.prepare(prefork, inputs)?;
        let countdown = Countdown::start(self.run.request.limits.wall_time());
        let unpacked = self.unpack(waiting, inputs.archive.take(), &countdown)?;
        let planned = self.plan(unpacked, inputs.manifest.take(), &countdown)?;
        let materialized = self.materialize(planned, &countdown)?;
        let staged = self.stage(materialized, &inputs.file_roots, &countdown)?;
        check_pending_end()?;
        self.launch(staged, std::mem::take(&mut inputs.published), &countdown)
    }

    fn wait_limit(&self, countdown: &Countdown) -> WaitLimit<'run> {
        WaitLimit {
            time: countdown.remaining(),
            signals: Some(self.signals),
        }
    }

    /// The error of a step that may have failed because a signal ended a reader, which left the signal, or a
    /// child, which was sent it too.
    fn or_cancelled(&self, error: RunError) -> RunError {
        while let Ok(Some(signal)) = signal::take(self.signals) {
            if signal::ends_a_run(signal) {
                return RunError::Cancelled { signal };
            }
        }
        error
    }

    /// Waits until the child has its namespaces and has passed its writable space to this process.
    fn prepare(
        &mut self,
        prefork: Option<Prefork>,
        inputs: &mut Inputs,
    ) -> Result<Waiting, RunError> {
        let (body_ends, pipes) =
            make_pipes(true).map_err(RunError::host("make the body's pipes"))?;
        let prefork = match (prefork, self.resources.group.clone_into()) {
            (Some(prefork), None) => prefork,
            // For cgroup version 2 the child must be cloned into its group.
            (_, group) => Prefork::start(group)?,
        };
        let base = &self.resources.base;
        let preparing = begin(prefork, base, body_ends, &self.resources.claims())?;
        let planned = match &inputs.archive {
            None => Some(self.plan_run(None, inputs.manifest.take())?),
            Some(_) => {
                // This process would only wait for the child meanwhile.
                archive::detect_processor_features();
                None
            }
        };
        Ok(Waiting {
            prepared: preparing.finish(&self.resources.base)?,
            pipes,
            planned,
        })
    }

    fn unpack(
        &mut self,
        mut waiting: Waiting,
        archive: Option<OpenedArchive>,
        countdown: &Countdown,
    ) -> Result<Unpacked, RunError> {
        self.report.begin_phase(Phase::Unpack);
        let wait_limit = self.wait_limit(countdown);
        let bundle = match archive {
            None => None,
            Some(archive) => {
                let looked_up = self.run.look_up(archive, wait_limit)?;
                self.report.warn(looked_up.warning);
                let (prepared, resources) = (&mut waiting.prepared, &*self.resources);
                let bundle = self
                    .run
                    .unpack(looked_up.source, prepared, resources, wait_limit)?;
                self.report.record_bundle(&bundle);
                countdown.check(UNPACK)?;
                Some(bundle)
            }
        };
        Ok(Unpacked { waiting, bundle })
    }

    fn plan(
        &mut self,
        unpacked: Unpacked,
        manifest: Option<LoadedManifest>,
        countdown: &Countdown,
    ) -> Result<Planned, RunError> {
        self.report.begin_phase(Phase::Plan);
        let Unpacked {
            waiting,
            mut bundle,
        } = unpacked;
        let Waiting {
            mut prepared,
            pipes,
            planned,
        } = waiting;
        let run = match planned {
            Some(planned) => planned,
            // Blocks and packages may be fetched.
            None => countdown.pause_during(|| self.plan_run(bundle.as_ref(), manifest))?,
        };
        countdown.set_limit(run.limits.time(Limit::WallTime));
        let in_use = match &mut bundle {
            Some(bundle) => {
                let in_use = self
                    .run
                    .finish_bundle(bundle, &mut prepared, self.resources)?;
                self.report.record_bundle_view(bundle.view());
                in_use
            }
            None => None,
        };
        // Until now, the limit of the manifest was not known.
        if bundle.is_some() {
            countdown.check(UNPACK)?;
        }
        Ok(Planned {
            prepared,
            pipes,
            bundle,
            run,
            in_use,
        })
    }

    fn plan_run(
        &mut self,
        bundle: Option<&Bundle>,
        manifest: Option<LoadedManifest>,
    ) -> Result<PlannedRun, RunError> {
        let (run, host) = (self.run, &self.resources.host);
        let mut resolved = run.resolve(bundle, manifest, self.signals)?;
        if let Some(staying) = run.staying() {
            staying.take_times(&mut resolved.manifest, &self.resources.group)?;
        }
        self.report.record_resolved(&resolved);
        if let Some(staying) = run.staying() {
            staying.resolve_lifecycle(&resolved.manifest, &self.resources.group)?;
        }
        let coverage = self.resources.coverage();
        let effective = resolve_limits(run.request, run.policy, host, &coverage, &resolved)?;
        self.report.record_limits(&effective);
        let mut refusals = effective.refusals.into_iter();
        refusals.next().map_or(Ok(()), Err)?;
        claim_share(&mut self.resources.record, &effective.limits, run.request)?;
        PlannedRun::new(run, resolved, effective.limits, self.resources)
    }

    fn materialize(
        &mut self,
        mut planned: Planned,
        countdown: &Countdown,
    ) -> Result<Materialized, RunError> {
        let (prepared, resolved) = (&mut planned.prepared, &mut planned.run.resolved);
        let (run, resources) = (self.run, &*self.resources);
        if !resolved.manifest.workspace_sources.is_empty() {
            self.report.begin_phase(Phase::Sources);
        }
        let mut materialized = countdown.pause_during(|| {
            run.materialize_sources(resolved, prepared, resources, self.signals)
        })?;
        self.report.record_sources(&mut materialized);
        let mut sources = self.report.take_result(materialized.sources)?;
        if let Some(learning) = run.learning() {
            learning.mount(resolved, &mut sources, prepared, resources)?;
        }
        self.report.begin_phase(Phase::Stage);
        let image = run.mount_image(resources, prepared, resolved, &sources)?;
        let root = image.map(|mounted| {
            self.report.record_image(&mounted);
            mounted.root
        });
        countdown.check("mounting the image and the sources")?;
        Ok(Materialized {
            planned,
            sources,
            root,
        })
    }

    /// Validates the inputs and writes them to the writable space.
    fn stage(
        &mut self,
        materialized: Materialized,
        file_roots: &FileRoots,
        countdown: &Countdown,
    ) -> Result<Staged, RunError> {
        let resolved = &materialized.planned.run.resolved;
        let contract = contract::resolve(
            &resolved.manifest.io,
            &self.run.request.bundle,
            TokenValues {
                run_id: self.report.run_id(),
                manifest_id: resolved.manifest.token_id().unwrap_or("tool"),
                start_unix_s: self.run.start_unix_s,
            },
            resolved.grants.outputs,
            self.wait_limit(countdown),
        )?;
        countdown.check("validating the inputs")?;
        self.run.check_outputs(&contract, file_roots)?;
        self.write_inputs(&materialized.planned.prepared, &contract, file_roots)?;
        countdown.check("staging the inputs")?;
        Ok(Staged {
            materialized,
            contract,
        })
    }

    fn write_inputs(
        &mut self,
        prepared: &Prepared,
        contract: &IoContract,
        file_roots: &FileRoots,
    ) -> Result<(), RunError> {
        if let Some(preparing) = self.run.preparing {
            let _assumed = self.run.assume_body_ids(self.resources)?;
            preparing.populate(prepared.space())?;
        }
        if let Some(text) = &contract.input {
            let _assumed = self.run.assume_body_ids(self.resources)?;
            space::write_input(prepared.space(), text)?;
        }
        let Some(workspace) = file_roots.workspace_of_inputs(contract)? else {
            return Ok(());
        };
        let directory = {
            let _assumed = self.run.assume_body_ids(self.resources)?;
            space::open_directory(prepared.space(), "scratch")?
        };
        let staged = staging::stage(
            workspace,
            &contract.input_files,
            directory.as_fd(),
            self.resources.body_ids(),
            &FileLimits::default(),
        )?;
        let recorded = self.run.record_staged(&staged, self.report.run_id());
        self.report.record_inputs(staged);
        self.report.warn(recorded?);
        Ok(())
    }

    fn launch(
        &mut self,
        staged: Staged,
        published: Vec<Published>,
        countdown: &Countdown,
    ) -> Result<Running, RunError> {
        self.report.begin_phase(Phase::Launch);
        let Staged {
            materialized,
            contract,
        } = staged;
        let Materialized {
            planned,
            sources,
            root,
        } = materialized;
        let Planned {
            prepared,
            pipes,
            bundle,
            run,
            in_use,
        } = planned;
        let PlannedRun {
            mut resolved,
            limits,
            joins,
            mut network_setup,
        } = run;
        let (request, policy) = (self.run.request, self.run.policy);
        // Reading secrets and the launch do not count.
        let wall_time = countdown.remaining();
        // Comes last, so that no secret is requested for a run that is refused for another reason.
        let secrets = RequestedSecrets::collect(request, policy, &resolved)?;
        self.report.warn(secrets.warnings());
        secrets.close_memory()?;
        network_setup.start(published)?;
        let masks = &mut self.run.masks.borrow_mut();
        let run_id = self.report.run_id();
        let record = |decisions: &[_]| self.run.record_secrets(decisions, run_id);
        let revealed = secrets.reveal(policy, &mut resolved, self.signals, masks, &record)?;
        self.report.record_secrets(revealed);
        let run_id = self.report.run_id();
        let unrecorded = self.run.record_grants(&resolved, masks, run_id)?;
        self.report.warn(unrecorded);
        published_ports::report_ports(&network_setup.published, &request.network)?;
        self.run.keep_uppers(
            self.resources,
            &prepared,
            root.as_ref(),
            &resolved,
            &sources,
        )?;
        let space_in_use = launch_plan::space_in_use(&prepared)?;
        let view = self.run.view(self.resources, &resolved, &sources)?;
        self.report
            .record_view(view.as_ref().filter(|_| request.is_detailed));
        let (mut plan, trees) = launch_plan::launch_plan(LaunchInputs {
            request,
            resources: self.resources,
            resolved: &resolved,
            sources: &sources,
            limits: &limits,
            space_in_use,
            root,
            run_id: self.report.run_id(),
        })?;
        plan.network = network_setup.plan.take();
        plan.command.null_stdin = contract.input.is_none() && !request.streams.interactive;
        let records = HostRecords::open(&mut plan, self.resources);
        let launching = launch(prepared, &plan, &trees, &joins);
        // While the child enters its root.
        self.report.warn(self.run.write_pending_records()?);
        let launched = launching.and_then(Launching::finish);
        if let (Some(staying), Ok(launched)) = (self.run.staying(), &launched) {
            self.run.keep_sandbox(staying, self.resources, launched)?;
            staying.limit_life(wall_time, &policy.maxima.wall_time);
            staying.serve(std::mem::take(&mut plan.command), masks.of_streams())?;
        }
        secret_values::overwrite_values(&mut resolved, &mut plan.command.environment);
        let refuses_signals = signal_denials::are_refused(&self.resources.host, plan.stays);
        let launched = launched.map_err(|error| {
            let files = bundle.as_ref().map(Bundle::files);
            let files = files.as_ref().map(|files| files as &dyn BundleFiles);
            let attempt = Attempt {
                request,
                resolved: &resolved,
                programs: &plan.command.programs,
            };
            start_failure::explain_launch(error, &self.resources.host, &sources, files, &attempt)
        })?;
        let audit = records.and_then(|records| records.of_body(&launched));
        Ok(Running {
            launched,
            pipes,
            supervised: Supervised {
                limits,
                wall_time,
                contract,
                filled_bytes: space_in_use.bytes,
                network_setup,
                counted: None,
                image: resolved.image,
                view,
                refuses_signals,
                audit,
            },
            in_use: sources.in_use.into_iter().chain(in_use).collect(),
        })
    }

    fn supervise(&mut self, running: Running) -> Result<Ended, RunError> {
        self.report.begin_phase(Phase::Body);
        let Running {
            mut launched,
            pipes,
            mut supervised,
            in_use,
        } = running;
        let (run, report, resources) = (self.run, &mut *self.report, &mut *self.resources);
        let watched = run.watch(
            resources,
            &mut launched,
            pipes,
            self.signals,
            &mut supervised,
            report,
        )?;
        let unkillable = watched.observed.unkillable;
        let files = run.report_paths(resources, &supervised, &launched);
        let stdout = report.record_end(watched, files, resources, &supervised, &launched);
        report.begin_phase(Phase::Sync);
        report.emit_denials(&run.masks.borrow());
        Ok(Ended {
            launched,
            supervised,
            stdout,
            unkillable,
            _in_use: in_use,
        })
    }

    /// Reads the output document and copies declared files to the workspace.
    fn sync(&mut self, ended: Ended, file_roots: &FileRoots) -> Result<(), RunError> {
        // A process may still write: nothing is read.
        if ended.unkillable {
            return Ok(());
        }
        let (launched, contract) = (&ended.launched, &ended.supervised.contract);
        // Starts again: the body may have used up its wall time.
        let wait_limit = WaitLimit {
            time: self.run.request.limits.wall_time(),
            signals: Some(self.signals),
        };
        let (run, report, resources) = (self.run, &mut *self.report, &mut *self.resources);
        let printed = report.body_output(ended.stdout.as_deref());
        let document =
            run.read_output_document(resources, launched, contract, &printed, wait_limit);
        report.record_output(document);
        let (id, outcome) = (report.run_id(), report.outcome());
        let outputs = run.sync(resources, launched, file_roots, contract, id, outcome);
        report.record_outputs(outputs, &contract.required_outputs);
        report.publish_outputs(&run.masks.borrow(), run.recorder());
        if let Some(directory) = run.make_kept_directory(&mut resources.record, report.run_id())? {
            report.record_kept_directory(&directory);
            report.take_result(copy_kept_directories(launched, &directory))?;
        }
        run.harvest(launched, report.has_succeeded())
    }
}
