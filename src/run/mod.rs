//! One run, from request to report: start reading here, at [`execute`].
//!
//! `exec` has the stages in order. Each stage has a directory: `inputs`, `host`, `unpacking`,
//! `planning`, `image` and `sources`, `contract`, `launching`, `supervision`, `outputs`. All stages use
//! `error`, `refusals`, `reporting`, `countdown` and `interruptible`.

mod contract;
mod countdown;
mod dry_run;
pub(crate) mod error;
mod exec;
mod fetching;
pub(crate) mod host;
mod image;
mod inputs;
mod interruptible;
mod launching;
mod outputs;
mod planning;
mod preparation;
pub(crate) mod recorder;
mod refusals;
mod reporting;
mod sources;
mod supervision;
mod unpacking;
pub(crate) mod verbs;

use std::cell::RefCell;

use rustix::fs::Mode;

pub use crate::run::dry_run::plan;
pub(crate) use crate::run::dry_run::why;
use crate::run::error::RunError;
use crate::run::preparation::nested::PreparationRun;
use crate::run::recorder::Recorder;
use crate::run::reporting::{Beginning, ReportBuilder};
use sandbox::prefork::Prefork;
use secrets::mask::Masks;
use spec::host_policy::HostPolicy;
use spec::report::{ErrorReport, Report};
use spec::request::Request;

/// Does one run. Returns a report also for a run that fails.
///
/// The calling process must have one thread only: see [`Prefork::start`].
#[must_use]
pub fn execute(request: &Request, policy: &HostPolicy) -> Report {
    execute_with(None, request, policy, None)
}

/// Does the last run of this process, which can do nothing but report it afterwards: the process
/// gives up its rights once the body runs. `prefork` is a child that was forked earlier; without one,
/// forks once the cgroups are known. `recorder` records the start.
#[must_use]
pub(crate) fn execute_last(
    prefork: Option<Prefork>,
    request: &Request,
    policy: &HostPolicy,
    recorder: &Recorder,
) -> Report {
    execute_with(prefork, request, policy, Some(recorder))
}

fn execute_with(
    prefork: Option<Prefork>,
    request: &Request,
    policy: &HostPolicy,
    last: Option<&Recorder>,
) -> Report {
    // The caller's umask must not narrow the explicit modes of files that are created here.
    rustix::process::umask(Mode::WGRP | Mode::WOTH);
    let seed = random_bytes();
    let beginning = Beginning::now(*seed.as_ref().unwrap_or(&[0; 10]));
    let masks = RefCell::new(Masks::default());
    let run = Run {
        request,
        policy,
        start_unix_s: beginning.unix_s(),
        masks: &masks,
        preparing: None,
        is_last: last.is_some(),
    };
    let report = beginning.report();
    let recorded = last.map_or(Ok(None), |recorder| recorder.started(request, &report));
    let mut report = ReportBuilder::new(report);
    let _run = tracing::debug_span!("run", id = report.run_id()).entered();
    let result = recorded.and_then(|warning| {
        report.warn(warning);
        run.execute(prefork, seed?, &mut report)
    });
    report.finish(result, masks)
}

/// Returns the report of an invocation that was refused before it became a run.
pub(crate) fn refused_report(error: ErrorReport) -> Report {
    // Without random bytes the id may not be unique. That is no risk: nothing on the host has its name.
    let mut report = Beginning::now(random_bytes().unwrap_or_default()).report();
    report.error = Some(error);
    report
}

#[derive(Clone, Copy)]
struct Run<'run> {
    request: &'run Request,
    policy: &'run HostPolicy,
    start_unix_s: i64,
    /// Secret values of the body, to be masked in the report.
    masks: &'run RefCell<Masks>,
    /// The preparation that this run belongs to.
    preparing: Option<PreparationRun<'run>>,
    /// The process ends after this run, so it may give up rights.
    is_last: bool,
}

/// Ten unpredictable bytes.
///
/// # Errors
/// [`RunError::Host`] with the errno of getrandom(2).
pub(crate) fn random_bytes() -> Result<[u8; 10], RunError> {
    let mut bytes = [0; 10];
    sys::process::random(&mut bytes).map_err(RunError::host("read random bytes"))?;
    Ok(bytes)
}
