//! The nested run: its request, its inputs and its result.

use std::cell::RefCell;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::sync::Arc;

use rustix::fs::Mode;

use crate::plan::preparation::{Step, StepFile};
use crate::run::contract::space;
use crate::run::error::RunError;
use crate::run::events::EventStream;
use crate::run::fetching::progress::ProgressStep;
use crate::run::planning::resolved::ResolvedRun;
use crate::run::preparation::failure;
use crate::run::preparation::harvest::Harvest;
use crate::run::reporting::{ReportBuilder, RunStart};
use crate::run::{Run, random_bytes};
use sandbox::launch::Launched;
use secrets::mask::Masks;
use sources::oci::layers::LockedLayer;
use spec::host_policy::{HostPolicy, Maxima, Maximum};
use spec::limits::{Limit, milliseconds};
use spec::network::{HostLearning, NetworkOptions};
use spec::oci::reference::Place;
use spec::preparation_report::PreparationReport;
use spec::request::{Caller, LimitOptions, OciOptions, Request, Subject};
use spec::sources_policy::EgressPolicy;
use tracing::subscriber::NoSubscriber;

/// Bytes of a package client's output that are inspected.
const LOG_BYTES: u64 = 4 << 20;
const WORKING_DIRECTORY: &str = "/scratch";

/// State of a run that prepares another one.
#[derive(Clone, Copy)]
pub(in crate::run) struct PreparationRun<'run> {
    files: &'run [StepFile],
    harvest: &'run Harvest<'run>,
    /// A layer to add to its image; taken when the image is resolved.
    below: &'run RefCell<Option<LockedLayer>>,
}

pub(super) struct Nested<'run> {
    pub(in crate::run) request: &'run Request,
    pub(in crate::run) policy: &'run HostPolicy,
    /// The image, by its digest.
    pub(in crate::run) place: Place,
    /// The layer of native packages, if any.
    pub(in crate::run) base: Option<LockedLayer>,
}

impl<'run> PreparationRun<'run> {
    pub(in crate::run) fn add_layers(&self, resolved: &mut ResolvedRun) -> Result<(), RunError> {
        let image = resolved
            .image
            .as_mut()
            .and_then(|image| image.opened.as_mut());
        match (image, self.below.borrow_mut().take()) {
            (Some(opened), Some(layer)) => opened.add_layers(vec![layer]),
            _ => Ok(()),
        }
    }

    /// Writes its inputs to the writable space. The body's file ids must be assumed.
    pub(in crate::run) fn populate(&self, space: BorrowedFd<'_>) -> Result<(), RunError> {
        for file in self.files {
            let path = file.path.trim_start_matches('/');
            let failed = |errno| RunError::host(format!("write {}", file.path))(errno);
            if let Some((directory, _)) = path.rsplit_once('/') {
                space::make_directories(space, directory).map_err(failed)?;
            }
            let mode = Mode::from_raw_mode(0o644);
            space::write_new(space, path.as_bytes(), mode, &file.bytes).map_err(failed)?;
        }
        Ok(())
    }

    /// Reads its result if it succeeded. Its processes have ended.
    pub(in crate::run) fn harvest(&self, launched: &Launched) -> Result<(), RunError> {
        self.harvest.read(launched.space.as_fd())
    }
}

pub(super) fn run_step(
    step: &Step,
    nested: Nested<'_>,
    harvest: &Harvest<'_>,
    progress: &ProgressStep,
    row: &mut PreparationReport,
) -> Result<(), RunError> {
    progress.report_installing();
    let seed = random_bytes()?;
    let start = RunStart::now(seed);
    let request = request(step, &nested);
    let policy = policy(nested.policy);
    let below = RefCell::new(nested.base);
    let masks = RefCell::new(Masks::default());
    let run = Run {
        request: &request,
        policy: &policy,
        start_unix_s: start.unix_s(),
        masks: &masks,
        preparing: Some(PreparationRun {
            files: &step.files,
            harvest,
            below: &below,
        }),
        last: None,
    };
    let mut report = ReportBuilder::new(start.report(), EventStream::default());
    // Its own events would interleave with those of the outer run.
    let result = tracing::subscriber::with_default(NoSubscriber::default(), || {
        run.execute(None, seed, &mut report)
    });
    let (result, refused) = match result {
        // This error of the result is more exact than the text of the report.
        Err(error @ RunError::Preparation(_)) => (Ok(()), Some(error)),
        other => (other, None),
    };
    let report = report.finish(result, masks);
    row.hosts.clone_from(&report.egress.hosts);
    row.denials.clone_from(&report.denials);
    match refused {
        Some(error) => Err(error),
        None => failure::check(step, &report, row, nested.policy),
    }
}

/// A run of the step only: no variable, secret, workspace or path of the caller.
fn request(step: &Step, nested: &Nested<'_>) -> Request {
    let outer = nested.request;
    let limits = nested.policy.preparation.limits;
    let caller = Caller {
        path: Vec::new(),
        working_directory: None,
        environment: Arc::default(),
        home: None,
        ..outer.caller.clone()
    };
    let mut request = Request::captured(Subject::Command(step.argv.clone()), caller);
    request.oci = OciOptions {
        image: Some(nested.place.clone()),
        ..outer.oci.clone()
    };
    request.workdir = Some(WORKING_DIRECTORY.into());
    // Package scripts get no more rights than the body.
    request.strict = outer.strict;
    request.syscalls = outer.syscalls;
    request.environment.clone_from(&step.environment);
    request.network = NetworkOptions {
        allow: step.reach.clone(),
        publish: Vec::new(),
        publish_file: None,
        added_hosts: step.added_hosts.clone(),
        // What a step reaches is not learned.
        learning: HostLearning::Off,
        ..outer.network.clone()
    };
    request.limits = LimitOptions {
        values: [
            (Limit::Memory, limits.memory_bytes),
            (Limit::WallTime, milliseconds(limits.wall_time)),
            (Limit::Disk, limits.disk_bytes),
            (Limit::DiskInodes, limits.inodes(nested.policy.oci.entries)),
            (Limit::Output, LOG_BYTES),
        ]
        .into(),
        mode: outer.limits.mode,
        ..LimitOptions::default()
    };
    request
}

/// A maximum that no policy states.
fn built_in<T>(value: T) -> Maximum<T> {
    Maximum {
        value,
        stated_at: None,
    }
}

/// The host policy with the network and the limits of preparations.
fn policy(outer: &HostPolicy) -> HostPolicy {
    let limits = outer.preparation.limits;
    HostPolicy {
        egress: EgressPolicy {
            allow: None,
            private_ranges: outer.preparation.allow_private.clone(),
            refuse_ech: outer.egress.refuse_ech,
        },
        maxima: Maxima {
            memory_bytes: built_in(limits.memory_bytes),
            wall_time: built_in(limits.wall_time),
            ..outer.maxima.clone()
        },
        ..outer.clone()
    }
}
