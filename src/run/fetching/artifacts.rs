//! Artifacts of registries for runs: which ones are in the store, and how a signal ends a pull.

use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};

use crate::run::error::RunError;
use crate::run::fetching::progress::ProgressStep;
use sources::oci::error::OciError;
use sources::oci::observer::{NoObserver, Observer};
use sources::oci::opening::Terms;
use sources::oci::pull;
use sources::oci::store::StorePlace;
use sources::progress::Progress;
use spec::digest::Digest;
use spec::host_policy::HostPolicy;
use spec::request::{Caller, Request};
use sys::signal;

/// Whether a run would find the source with this digest in the store. Changes nothing.
#[must_use]
pub(in crate::run) fn is_in_store(digest: &Digest, caller: &Caller, policy: &HostPolicy) -> bool {
    let terms = Terms {
        caller,
        policy,
        insecure: false,
        observer: Arc::new(NoObserver),
    };
    let look = || -> Result<bool, OciError> {
        let place = StorePlace::choose(caller, policy)?;
        if !place.directory.is_dir() {
            return Ok(false);
        }
        pull::is_kept(&terms.store()?, digest, &terms.layer_limits())
    };
    // A run reports the error.
    look().unwrap_or(false)
}

pub(in crate::run) fn terms<'call>(
    request: &'call Request,
    policy: &'call HostPolicy,
    observer: &Arc<FetchObserver>,
) -> Terms<'call> {
    let observer: Arc<FetchObserver> = Arc::clone(observer);
    Terms {
        caller: &request.caller,
        policy,
        insecure: request.oci.insecure,
        observer,
    }
}

/// Reports the progress of a fetch, and records the signal that cancels the run.
#[derive(Debug)]
pub(in crate::run) struct FetchObserver {
    signals: OwnedFd,
    /// Number of the first signal; 0 before one arrives.
    cancelled_by: AtomicI32,
    pub(in crate::run) step: ProgressStep,
}

impl FetchObserver {
    /// `signals` is the descriptor of the signals that cancel a run.
    pub(in crate::run) fn new(
        signals: BorrowedFd<'_>,
        step: ProgressStep,
    ) -> Result<Self, RunError> {
        let signals = rustix::io::fcntl_dupfd_cloexec(signals, 0)
            .map_err(RunError::host("listen for signals"))?;
        Ok(Self {
            signals,
            cancelled_by: AtomicI32::new(0),
            step,
        })
    }

    /// The signal that cancels the run, if one arrived.
    pub(in crate::run) fn cancelled_by(&self) -> Option<i32> {
        let number = self.cancelled_by.load(Ordering::Relaxed);
        (number != 0).then_some(number)
    }
}

impl Observer for FetchObserver {
    fn progress(&self, now: &Progress<'_>) {
        self.step.report_transfer(now);
    }

    fn is_cancelled(&self) -> bool {
        while self.cancelled_by().is_none() {
            match signal::take(self.signals.as_fd()) {
                Ok(Some(number)) if signal::ends_a_run(number) => {
                    self.cancelled_by.store(number, Ordering::Relaxed);
                }
                // Other signals do not concern a fetch.
                Ok(Some(_)) => (),
                // The supervision of the body handles a signal that cannot be read here.
                Ok(None) | Err(_) => return false,
            }
        }
        true
    }
}
