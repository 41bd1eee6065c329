//! A run that was begun before anybody asked for it: all that no request decides is done already.
//!
//! What a [`Warm`] has is a run's own, made for it and never used before: record, groups, uid,
//! namespaces, base view. [`Warm::execute`] takes it by value, so it serves one request or none.

use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

use crate::run::error::RunError;
use crate::run::hold::{Held, Site};
use crate::run::reporting::Stopwatch;
use crate::run::telling::{run_id_at, started, told};
use crate::run::{execute, host};
use crate::sandbox::prepare::{Prepared, begin};
use crate::sandbox::seed::Seed;
use crate::spec::host_policy::HostPolicy;
use crate::spec::outcome::Outcome;
use crate::spec::report::Report;
use crate::spec::request::{Caller, Request};
use crate::supervise::streams::{Pipes, make_pipes};
use crate::supervise::watch::listen_for_signals;

/// A run up to its waiting child.
#[derive(Debug)]
pub struct Warm {
    report: Report,
    caller: Place,
    signals: OwnedFd,
    // Before `held`: the child must have ended when its groups are removed.
    prepared: Prepared,
    ours: Pipes,
    held: Held,
}

/// Which of the caller's facts decide where a run stands.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Place {
    runtime_directory: Option<std::path::PathBuf>,
    cgroup_parent: Option<String>,
    in_delegated_scope: bool,
}

impl Place {
    fn of(caller: &Caller) -> Self {
        Self {
            runtime_directory: caller.runtime_directory.clone(),
            cgroup_parent: caller.cgroup_parent.clone(),
            in_delegated_scope: caller.in_delegated_scope,
        }
    }
}

impl Warm {
    /// Begins a run at `site`, which [`Site::look`] saw for `caller`, and waits until its child
    /// has its namespaces.
    ///
    /// The calling process must have one thread only, which must outlive the run, and do nothing
    /// else afterwards: signals are blocked, and the file mode mask is set.
    ///
    /// # Errors
    /// As a run; then nothing of it is left.
    pub fn begin(site: &Site, caller: &Caller, policy: &HostPolicy) -> Result<Self, RunError> {
        rustix::process::umask(rustix::fs::Mode::WGRP | rustix::fs::Mode::WOTH);
        let seed = host::random_bytes()?;
        let mut report = Report::new(run_id_at(started(), seed), Outcome::Refused);
        let signals = listen_for_signals().map_err(RunError::host("listen for signals"))?;
        let held = Held::take_at(site, false, policy, seed, false, &mut report)?;
        match prepare(&held) {
            Ok((prepared, ours)) => Ok(Self {
                report,
                caller: Place::of(caller),
                signals,
                prepared,
                ours,
                held,
            }),
            Err(error) => {
                held.release(&mut report);
                Err(error)
            }
        }
    }

    /// Readable once the caller was sent a signal that ends runs.
    #[must_use]
    pub fn signals(&self) -> BorrowedFd<'_> {
        self.signals.as_fd()
    }

    /// Whether `request` may have it, on a host that is still the one that it was begun on.
    #[must_use]
    pub fn fits(&self, request: &Request) -> bool {
        !request.streams.terminal
            && self.caller == Place::of(&request.caller)
            && host::look().is_ok_and(|host| host == self.held.host)
    }

    /// Does the run. Whatever happens, there is a report. Where the request does not fit, what was
    /// begun is given back and the run begins anew.
    #[must_use]
    pub fn execute(self, request: &Request, policy: &HostPolicy) -> Report {
        if !self.fits(request) {
            drop(self.discard());
            return execute(request, policy);
        }
        let Self {
            report: begun,
            signals,
            prepared,
            ours,
            mut held,
            ..
        } = self;
        let report = Report::new(begun.run_id.clone(), Outcome::Refused);
        told(request, policy, started(), report, move |run, report| {
            let mut clock = Stopwatch::start();
            let done = match run.open_given() {
                Ok(given) => {
                    report.cgroup_backend = begun.cgroup_backend;
                    let begun = (prepared, ours);
                    let given = (given, None);
                    run.tell_prepared(&mut held, begun, given, signals, report, &mut clock)
                }
                Err(error) => {
                    // Its child first: the groups are removed once nothing lives in them.
                    drop(prepared);
                    Err(error)
                }
            };
            held.release(report);
            clock.lap(report, "clean");
            done
        })
    }

    /// Gives everything back unused; what cannot be is told in the report's warnings.
    #[must_use]
    pub fn discard(self) -> Report {
        let Self {
            mut report,
            prepared,
            held,
            ..
        } = self;
        drop(prepared);
        held.release(&mut report);
        report
    }
}

fn prepare(held: &Held) -> Result<(Prepared, Pipes), RunError> {
    let (theirs, ours) = make_pipes(true).map_err(RunError::host("make the body's pipes"))?;
    let seed = Seed::sow(held.group.clone_into())?;
    let preparing = begin(seed, &held.base, theirs, &held.claims())?;
    Ok((preparing.finish(&held.base)?, ours))
}
