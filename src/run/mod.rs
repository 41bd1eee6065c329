//! One run, from request to report: start reading here, at [`execute`].
//!
//! `exec` has the stages in order, `stages` what they hand on. Each stage has a directory: `inputs`,
//! `host`, `unpacking`, `planning`, `image` and `sources`, `contract`, `launching`, `supervision`,
//! `outputs`. All stages use `error`, `refusals`, `reporting`, `countdown` and `interruptible`.

mod contract;
mod countdown;
mod dry_run;
pub(crate) mod error;
pub(crate) mod events;
mod exec;
mod fetching;
pub(crate) mod host;
mod image;
mod inputs;
mod interruptible;
mod launching;
pub(crate) mod learning;
mod outputs;
mod phases;
mod planning;
mod preparation;
pub(crate) mod recorder;
mod refusals;
mod reporting;
pub(crate) mod sandbox_files;
mod sources;
mod stages;
pub(crate) mod staying;
mod supervision;
mod unpacking;
pub(crate) mod verbs;

use std::cell::RefCell;

use rustix::fs::Mode;

pub use crate::run::dry_run::plan;
pub(crate) use crate::run::dry_run::why;
use crate::run::error::RunError;
use crate::run::events::EventStream;
use crate::run::learning::Learning;
use crate::run::preparation::nested::PreparationRun;
use crate::run::recorder::Recorder;
use crate::run::reporting::{ReportBuilder, RunStart};
use crate::run::staying::StayingSandbox;
use sandbox::launch::Launched;
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
/// forks once the cgroups are known.
#[must_use]
pub(crate) fn execute_last(
    prefork: Option<Prefork>,
    request: &Request,
    policy: &HostPolicy,
    followers: Followers<'_>,
) -> Report {
    execute_with(prefork, request, policy, Some(followers))
}

/// Who learns of the last run of this process while it goes on.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Followers<'run> {
    pub(crate) recorder: &'run Recorder,
    pub(crate) events: &'run EventStream,
    /// Of `runner learn`.
    pub(crate) learning: Option<&'run Learning>,
    /// Of `runner sandbox create`.
    pub(crate) staying: Option<&'run StayingSandbox>,
}

fn execute_with(
    prefork: Option<Prefork>,
    request: &Request,
    policy: &HostPolicy,
    last: Option<Followers<'_>>,
) -> Report {
    // The caller's umask must not narrow the explicit modes of files that are created here.
    rustix::process::umask(Mode::WGRP | Mode::WOTH);
    let seed = random_bytes();
    let start = RunStart::now(*seed.as_ref().unwrap_or(&[0; 10]));
    let masks = RefCell::new(Masks::default());
    let run = Run {
        request,
        policy,
        start_unix_s: start.unix_s(),
        masks: &masks,
        preparing: None,
        last,
    };
    let report = start.report();
    let recorded = last.map_or(Ok(None), |last| last.recorder.started(request, &report));
    let events = last.map(|last| last.events.clone()).unwrap_or_default();
    let mut report = ReportBuilder::new(report, events);
    report.emit_started();
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
    let mut report = RunStart::now(random_bytes().unwrap_or_default()).report();
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
    /// Set if the process ends after this run, so that it may give up rights.
    last: Option<Followers<'run>>,
}

impl<'run> Run<'run> {
    fn learning(&self) -> Option<&'run Learning> {
        self.last.and_then(|last| last.learning)
    }

    fn staying(&self) -> Option<&'run StayingSandbox> {
        self.last.and_then(|last| last.staying)
    }

    fn recorder(&self) -> Option<&'run Recorder> {
        self.last.map(|last| last.recorder)
    }

    /// Reads what the run was started for: what was learned, or the result of a preparation.
    fn harvest(&self, launched: &Launched, has_succeeded: bool) -> Result<(), RunError> {
        if let Some(learning) = self.learning() {
            learning.finish(launched)?;
        }
        match self.preparing.filter(|_| has_succeeded) {
            Some(preparing) => preparing.harvest(launched),
            None => Ok(()),
        }
    }
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
