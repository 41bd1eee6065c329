//! The nested run: its request, its inputs, and when its result is read.

use std::cell::RefCell;
use std::os::fd::{AsFd as _, BorrowedFd};

use rustix::fs::Mode;

use crate::plan::preparation::{Step, StepFile};
use crate::run::error::RunError;
use crate::run::preparation::failure;
use crate::run::preparation::harvest::Harvest;
use crate::run::progress::Act;
use crate::run::reporting::ReportBuilder;
use crate::run::reporting::{Beginning, conclude};
use crate::run::resolved::ResolvedRun;
use crate::run::{Run, contract, random_bytes};
use sandbox::launch::Launched;
use secrets::mask::Masks;
use sources::oci::layers::HeldLayer;
use spec::host_policy::{HostPolicy, Maxima, Maximum};
use spec::limits::{Limit, milliseconds};
use spec::network::NetworkOptions;
use spec::oci::reference::Place;
use spec::preparation_report::PreparationReport;
use spec::request::{Caller, LimitOptions, OciOptions, Request, Subject};
use spec::sources_policy::EgressPolicy;
use tracing::subscriber::NoSubscriber;

/// Bytes of a package client's output that are inspected.
const LOG_BYTES: u64 = 4 << 20;
/// Working directory of the run.
const WORKING_DIRECTORY: &str = "/scratch";

/// State of a run that prepares another one.
#[derive(Clone, Copy)]
pub(in crate::run) struct Preparing<'run> {
    files: &'run [StepFile],
    harvest: &'run Harvest<'run>,
    /// Additional layers of its root; taken when the root is resolved.
    below: &'run RefCell<Option<HeldLayer>>,
}

/// Context of a nested run.
pub(super) struct Nested<'run> {
    /// The caller's request.
    pub(super) request: &'run Request,
    /// The host's policy.
    pub(super) policy: &'run HostPolicy,
    /// The image, by its digest.
    pub(super) place: Place,
    /// The layer of native packages, if any.
    pub(super) below: Option<HeldLayer>,
}

impl<'run> Preparing<'run> {
    /// Adds the prepared layers to the image of the run.
    ///
    /// # Errors
    /// As [`OpenedImage::add_layers`](crate::run::image::OpenedImage::add_layers).
    pub(in crate::run) fn complete(&self, resolved: &mut ResolvedRun) -> Result<(), RunError> {
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
    ///
    /// # Errors
    /// [`RunError::Host`].
    pub(in crate::run) fn populate(&self, space: BorrowedFd<'_>) -> Result<(), RunError> {
        for file in self.files {
            let path = file.path.trim_start_matches('/');
            let failed = |errno| RunError::host(format!("write {}", file.path))(errno);
            if let Some((directory, _)) = path.rsplit_once('/') {
                contract::make_directories(space, directory).map_err(failed)?;
            }
            let mode = Mode::from_raw_mode(0o644);
            contract::write_new(space, path.as_bytes(), mode, &file.bytes).map_err(failed)?;
        }
        Ok(())
    }

    /// Reads its result if it succeeded. Its processes have ended.
    ///
    /// # Errors
    /// As [`Harvest::take`].
    pub(in crate::run) fn take(&self, launched: &Launched) -> Result<(), RunError> {
        self.harvest.take(launched.space.as_fd())
    }
}

/// Runs one step to its end and passes its result to `harvest`.
///
/// # Errors
/// [`RunError::Cancelled`], [`RunError::Preparation`].
pub(super) fn run_step(
    step: &Step,
    nested: Nested<'_>,
    harvest: &Harvest<'_>,
    act: &Act,
    row: &mut PreparationReport,
) -> Result<(), RunError> {
    act.installing();
    let seed = random_bytes()?;
    let beginning = Beginning::now(seed);
    let request = request(step, &nested);
    let policy = policy(nested.policy);
    let below = RefCell::new(nested.below);
    let masks = RefCell::new(Masks::default());
    let run = Run {
        request: &request,
        policy: &policy,
        start_unix_s: beginning.unix_s(),
        masks: &masks,
        preparing: Some(Preparing {
            files: &step.files,
            harvest,
            below: &below,
        }),
    };
    let mut report = ReportBuilder::new(beginning.report());
    // Its own events would interleave with those of the outer run.
    let result = tracing::subscriber::with_default(NoSubscriber::default(), || {
        run.execute(None, seed, &mut report)
    });
    let (result, refused) = match result {
        // The result has its own error, which is more exact than the report's text.
        Err(error @ RunError::Preparation(_)) => (Ok(()), Some(error)),
        other => (other, None),
    };
    let report = conclude(report.finish(result), masks);
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
        environment: Vec::new(),
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

/// A limit of the runner: nested runs state their limits themselves.
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
