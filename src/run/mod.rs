//! One run, from request to report: start reading here, at [`execute`].
//!
//! Each stage has one type, which can only be had from the stage before: [`Resources`] is what the run
//! has on the host, `Prepared` a child that waits in its namespaces and has handed over its
//! writable space, `Launched` a running body, `Observed` what became of it.

pub mod artifacts;
mod block_documents;
mod callers_program;
pub mod chosen;
mod command;
pub mod contract;
mod countdown;
pub mod demonstration;
pub mod doctor;
pub mod early;
pub mod error;
pub mod explain;
pub mod host;
pub mod image;
mod inputs;
mod inside;
mod interruptible;
pub mod kept;
mod line_ends;
mod meter;
mod needs;
mod network;
pub(crate) mod network_report;
pub mod node;
mod not_started;
mod outputs;
mod places;
mod planning;
pub mod preparation;
pub mod program;
pub mod progress;
mod provider;
mod reporting;
pub mod resources;
pub mod scope;
mod secret_values;
mod shebang;
pub mod shims;
pub(crate) mod source_verbs;
pub mod sources;
pub mod subject;
mod telling;
mod unix_sockets;
pub mod unpacking;
mod unseen;
pub mod user_namespaces;
mod view;
mod watching;

use std::cell::RefCell;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::fs::Mode;

use crate::plan::limits::Limits;
use crate::run::chosen::Chosen;
use crate::run::contract::{Patience, Settled};
use crate::run::countdown::Countdown;
use crate::run::error::RunError;
pub use crate::run::explain::explain;
use crate::run::image::{Access, ChosenImage};
use crate::run::inputs::{Given, open_what_was_given};
use crate::run::network::Outward;
use crate::run::not_started::Attempt;
use crate::run::places::Places;
use crate::run::preparation::Preparing;
use crate::run::progress::ProgressListener;
use crate::run::reporting::Stopwatch;
use crate::run::resources::Resources;
use crate::run::sources::Sources;
use crate::run::subject::BundleFiles;
use crate::run::telling::{run_id_at, started, told};
use crate::run::unpacking::Bundle;
use crate::staging::{self, FileLimits};
use sandbox::cgroups::{CgroupLimits, Counted};
use sandbox::launch::{ImageRoot, Launched, launch};
use sandbox::prefork::Prefork;
use sandbox::prepare::{Prepared, begin};
use sandbox::supervise::streams::{Pipes, make_pipes};
use sandbox::supervise::watch::listen_for_signals;
use secrets::mask::Masks;
use spec::host_policy::HostPolicy;
use spec::outcome::Outcome;
use spec::report::Report;
use spec::request::{Request, Subject};
use spec::tokens::TokenValues;
use sys::credentials::AssumedFileIds;
use sys::rlimit;

/// Does one run. Whatever happens, there is a report.
///
/// The calling process must have one thread only: see [`Prefork::prefork`].
#[must_use]
pub fn execute(request: &Request, policy: &HostPolicy) -> Report {
    execute_in(None, request, policy, &telling::no_listener())
}

/// The same in a child that was forked before; without one it is forked when its groups are known.
/// `listener` is told what happens before the body starts.
#[must_use]
pub fn execute_in(
    prefork: Option<Prefork>,
    request: &Request,
    policy: &HostPolicy,
    listener: &Arc<dyn ProgressListener>,
) -> Report {
    // What is made here has modes of its own: the caller's mask must not narrow them, and has done
    // its part with the report.
    rustix::process::umask(Mode::WGRP | Mode::WOTH);
    let started = started();
    let seed = host::random_bytes();
    let run_id = run_id_at(started, *seed.as_ref().unwrap_or(&[0; 10]));
    let report = Report::new(run_id, Outcome::Refused);
    told(request, policy, started, report, |run, report| {
        let run = Run { listener, ..*run };
        run.tell(prefork, seed?, report)
    })
}

#[derive(Clone, Copy)]
struct Run<'run> {
    request: &'run Request,
    policy: &'run HostPolicy,
    start_unix_s: i64,
    /// The values that the body was given.
    masks: &'run RefCell<Masks>,
    /// Where it prepares another run.
    preparing: Option<Preparing<'run>>,
    /// Who is told what happens before the body starts.
    listener: &'run Arc<dyn ProgressListener>,
}

/// A child that waits in its namespaces.
struct Waiting {
    prepared: Prepared,
    /// Our ends of the body's pipes.
    ours: Pipes,
    /// What was settled meanwhile.
    early: Option<Settlement>,
}

/// What runs under which limits.
struct Settlement {
    chosen: Chosen,
    limits: Limits,
    /// Opened `tasks` files of groups that the body joins itself.
    joins: Vec<OwnedFd>,
    outward: Outward,
    root: Option<ImageRoot>,
}

/// What the stages between prepare and launch have settled.
struct Ready {
    limits: Limits,
    settled: Settled,
    filled_bytes: u64,
    outward: Outward,
    /// What the groups counted, where that was read while init was dying.
    counted: Option<Counted>,
    /// Nobody removes its layers while the body may still read them.
    _image: Option<ChosenImage>,
}

impl Run<'_> {
    fn tell(
        &self,
        prefork: Option<Prefork>,
        seed: [u8; 10],
        report: &mut Report,
    ) -> Result<(), RunError> {
        let mut clock = Stopwatch::start();
        let given = self.open_given()?;
        // Before anything is made: a signal that ended us in between would leave it behind.
        let signals = listen_for_signals().map_err(RunError::host("listen for signals"))?;
        // Each relayed connection takes two descriptors.
        rlimit::raise(rlimit::resource::OPEN_FILES)
            .map_err(RunError::host("raise the limit of open descriptors"))?;
        let (request, policy) = (self.request, self.policy);
        let mut resources = Resources::take(request, policy, seed, prefork.is_some(), report)?;
        let done = self.tell_held(&mut resources, prefork, given, signals, report, &mut clock);
        resources.release(report);
        clock.lap(report, "clean");
        done
    }

    fn open_given(&self) -> Result<Given, RunError> {
        let mut given = open_what_was_given(self.request, self.policy, &mut Err)?;
        given.published = network::publish(&self.request.network.publish)?;
        Ok(given)
    }

    fn prepare(
        &self,
        resources: &mut Resources,
        prefork: Option<Prefork>,
        given: &mut Given,
        signals: BorrowedFd<'_>,
        report: &mut Report,
    ) -> Result<Waiting, RunError> {
        let (theirs, ours) = make_pipes(true).map_err(RunError::host("make the body's pipes"))?;
        let prefork = match (prefork, resources.group.clone_into()) {
            (Some(prefork), None) => prefork,
            // Into a group of version 2 a child can only be cloned.
            (_, group) => Prefork::start(group)?,
        };
        let preparing = begin(prefork, &resources.base, theirs, &resources.claims())?;
        // A command is known already: it is settled while the child makes its namespaces.
        let early = match &given.archive {
            None => {
                let manifest = given.manifest.take();
                Some(self.settle(resources, (None, manifest), signals, report)?)
            }
            Some(_) => None,
        };
        Ok(Waiting {
            prepared: preparing.finish(&resources.base)?,
            ours,
            early,
        })
    }

    fn tell_held(
        &self,
        resources: &mut Resources,
        prefork: Option<Prefork>,
        mut given: Given,
        signals: OwnedFd,
        report: &mut Report,
        clock: &mut Stopwatch,
    ) -> Result<(), RunError> {
        let Waiting {
            mut prepared,
            ours,
            early,
        } = self.prepare(resources, prefork, &mut given, signals.as_fd(), report)?;
        let Given {
            manifest,
            archive,
            places,
            published,
        } = given;
        clock.lap(report, "prepare");
        let countdown = Countdown::start(self.request.limits.wall_time);
        let patience = || Patience {
            time: countdown.left(),
            signals: Some(signals.as_fd()),
        };
        let mut bundle = self.unpack(archive, &mut prepared, resources, patience(), report)?;
        countdown.check("unpacking the bundle")?;
        clock.lap(report, "unpack");
        let mut settlement = match early {
            Some(settlement) => settlement,
            None => {
                let given = (bundle.as_ref(), manifest);
                countdown.stopped(|| self.settle(resources, given, signals.as_fd(), report))?
            }
        };
        countdown.hold_to(settlement.limits.wall_time);
        // Nobody removes the kept tree while the body may still read it.
        let _in_use = match &mut bundle {
            Some(bundle) => self.finish_bundle(bundle, &mut prepared, resources, report)?,
            None => None,
        };
        let (chosen, child) = (&settlement.chosen, (&mut prepared, &*resources));
        let sources = countdown
            .stopped(|| self.materialize_sources(chosen, child, signals.as_fd(), report, clock))?;
        settlement.root = self.mount_image(resources, &mut prepared, (chosen, &sources), report)?;
        countdown.check("unpacking the bundle")?;
        let settled = contract::settle(
            &settlement.chosen.manifest.io,
            &self.request.bundle,
            self.tokens(&settlement.chosen, report),
            settlement.chosen.grants.outputs,
            patience(),
        )?;
        countdown.check("judging the inputs")?;
        let settled = self.stage_all(resources, &prepared, settled, &places, report, clock)?;
        countdown.check("staging the inputs")?;
        // What this and the launch take is not the bundle's doing.
        settlement.limits.wall_time = countdown.left();
        // Last of all, so that no secret is asked for by a run that is refused for something else.
        secret_values::reveal(
            self.request,
            self.policy,
            &mut settlement.chosen,
            signals.as_fd(),
            &mut self.masks.borrow_mut(),
            report,
        )?;
        network::tell_ports(&published, &self.request.network, &**self.listener)?;
        settlement.outward.published = published;
        let (mut launched, mut ready) = self.launch(
            resources,
            prepared,
            (settlement, &sources),
            settled,
            bundle,
            report,
        )?;
        clock.lap(report, "launch");
        // Judging what the body returned must hear them too.
        let heard = match ready.settled.outputs {
            Some(_) => Some(
                rustix::io::fcntl_dupfd_cloexec(&signals, 3)
                    .map_err(RunError::host("keep the signals"))?,
            ),
            None => None,
        };
        let (observed, captured) =
            self.watch(resources, &mut launched, ours, signals, &mut ready, report)?;
        clock.lap(report, "body");
        reporting::conclude(report, &observed, resources, &ready, &launched);
        if observed.unkillable {
            // Something may still write: nothing of it is read.
            return Ok(());
        }
        let patience = heard.as_ref().map(|heard| Patience {
            // A time of its own: the body may have used up what there was.
            time: self.request.limits.wall_time,
            signals: Some(heard.as_fd()),
        });
        let wrote = (captured.as_deref(), patience.unwrap_or_default());
        self.take_output(resources, &launched, &ready.settled, wrote, report);
        self.sync(resources, &launched, &places, &ready.settled, report);
        self.keep(&launched, report)?;
        if let Some(preparing) = self.preparing {
            preparing.take(&launched, report)?;
        }
        clock.lap(report, "sync");
        Ok(())
    }

    fn assume(&self, resources: &Resources) -> Result<AssumedFileIds, RunError> {
        AssumedFileIds::assume(resources.body_ids())
            .map_err(RunError::host("touch files with the body's ids"))
    }

    /// Chooses what runs, settles its limits and makes the groups hold them.
    fn settle(
        &self,
        resources: &mut Resources,
        given: (Option<&Bundle>, Option<subject::Subject>),
        signals: BorrowedFd<'_>,
        report: &mut Report,
    ) -> Result<Settlement, RunError> {
        let mut chosen = self.choose(given, signals)?;
        view::keep_stores_apart(&mut chosen.view, &self.request.caller, self.policy)?;
        reporting::tell_chosen(report, &chosen);
        let limits = planning::settle_limits(
            self.request,
            self.policy,
            &resources.host,
            &resources.coverage(),
            &chosen,
            report,
            &mut Err,
        )?;
        let joins = resources.group.apply(&CgroupLimits {
            memory_bytes: Some(limits.memory_bytes),
            processes: Some(limits.processes),
            cpu_millis: limits.cpu_millis,
        })?;
        let outward = Outward::prepare(self.request, self.policy, &chosen.egress)?;
        Ok(Settlement {
            chosen,
            limits,
            joins,
            outward,
            root: None,
        })
    }

    fn tokens<'run>(&self, chosen: &'run Chosen, report: &'run Report) -> TokenValues<'run> {
        TokenValues {
            run_id: &report.run_id,
            manifest_id: chosen.manifest.token_id().unwrap_or("tool"),
            start_unix_s: self.start_unix_s,
        }
    }

    fn stage_all(
        &self,
        resources: &Resources,
        prepared: &Prepared,
        settled: Settled,
        places: &Places,
        report: &mut Report,
        clock: &mut Stopwatch,
    ) -> Result<Settled, RunError> {
        contract::check_destinations(&settled.output_files)?;
        clock.lap(report, "plan");
        self.stage(resources, prepared, &settled, places, report)?;
        clock.lap(report, "stage");
        Ok(settled)
    }

    fn launch(
        &self,
        resources: &Resources,
        prepared: Prepared,
        (settlement, sources): (Settlement, &Sources),
        settled: Settled,
        bundle: Option<Bundle>,
        report: &Report,
    ) -> Result<(Launched, Ready), RunError> {
        let Settlement {
            mut chosen,
            limits,
            joins,
            mut outward,
            root,
        } = settlement;
        let filled = planning::space_in_use(&prepared)?;
        let named = (root, report.run_id.as_str());
        let shown = (&chosen, sources);
        let (mut plan, trees) =
            planning::launch_plan(self.request, resources, shown, &limits, filled, named)?;
        plan.network = outward.plan.take();
        plan.null_stdin = settled.input.is_none() && !self.request.streams.interactive;
        let launched = launch(prepared, &plan, &trees, &joins);
        secret_values::forget(&mut chosen, &mut plan.environment);
        let launched = launched.map_err(|error| {
            let files = bundle.as_ref().map(Bundle::files);
            let files = files.as_ref().map(|files| files as &dyn BundleFiles);
            let attempt = Attempt {
                request: self.request,
                chosen: &chosen,
                programs: &plan.programs,
            };
            not_started::of_launch(error, &resources.host, sources, files, &attempt)
        })?;
        let ready = Ready {
            limits,
            settled,
            filled_bytes: filled.0,
            outward,
            counted: None,
            _image: chosen.image,
        };
        Ok((launched, ready))
    }

    fn choose(
        &self,
        (bundle, manifest): (Option<&Bundle>, Option<subject::Subject>),
        signals: BorrowedFd<'_>,
    ) -> Result<Chosen, RunError> {
        let listener = self.listener;
        let access = Access::Fetch { signals, listener };
        match (&self.request.subject, bundle) {
            (Subject::Command(argv), _) => {
                let mut chosen =
                    command::of_command(self.request, self.policy, argv, access, &mut Err)?;
                if let Some(preparing) = self.preparing {
                    preparing.complete(&mut chosen)?;
                }
                Ok(chosen)
            }
            (Subject::Bundle(_), Some(bundle)) => {
                let files = bundle.files();
                let manifest = chosen::manifest_of(self.request, self.policy, manifest, &files)?;
                let subject = (manifest, access);
                chosen::of_bundle(self.request, self.policy, subject, &files, &mut Err)
            }
            (Subject::Bundle(_), None) => {
                Err(RunError::host("find the bundle")(rustix::io::Errno::NOENT))
            }
        }
    }

    fn stage(
        &self,
        resources: &Resources,
        prepared: &Prepared,
        settled: &Settled,
        places: &Places,
        report: &mut Report,
    ) -> Result<(), RunError> {
        if let Some(preparing) = self.preparing {
            let _assumed = self.assume(resources)?;
            preparing.furnish(prepared.space())?;
        }
        if let Some(text) = &settled.input {
            let _assumed = self.assume(resources)?;
            contract::write_input(prepared.space(), text)?;
        }
        let Some(workspace) = places.to_stage_from(settled)? else {
            return Ok(());
        };
        let staging = {
            let _assumed = self.assume(resources)?;
            contract::open_directory(prepared.space(), "scratch")?
        };
        report.inputs = staging::stage(
            workspace,
            &settled.input_files,
            staging.as_fd(),
            resources.body_ids(),
            &FileLimits::default(),
        )?;
        Ok(())
    }
}
