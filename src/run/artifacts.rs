//! Registry artifacts for runs: which are in the store, and how a signal ends a pull.

use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};

use crate::run::error::RunError;
use crate::run::progress::Act;
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
pub fn is_kept(digest: &Digest, caller: &Caller, policy: &HostPolicy) -> bool {
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
    // A run says why.
    look().unwrap_or(false)
}

/// The artifact store of a run, usable until a signal arrives.
pub(super) fn terms<'call>(
    request: &'call Request,
    policy: &'call HostPolicy,
    until: &Arc<UntilSignal>,
) -> Terms<'call> {
    let observer: Arc<UntilSignal> = Arc::clone(until);
    Terms {
        caller: &request.caller,
        policy,
        insecure: request.oci.insecure,
        observer,
    }
}

/// Records the signal that cancels a run, and forwards progress until then.
#[derive(Debug)]
pub(super) struct UntilSignal {
    signals: OwnedFd,
    /// The number of the first signal; 0 until one arrives.
    cancelled_by: AtomicI32,
    /// The current step.
    pub(super) act: Act,
}

impl UntilSignal {
    /// `signals` is the descriptor of the signals that cancel a run.
    ///
    /// # Errors
    /// [`RunError::Host`].
    pub(super) fn new(signals: BorrowedFd<'_>, act: Act) -> Result<Self, RunError> {
        let signals = rustix::io::fcntl_dupfd_cloexec(signals, 0)
            .map_err(RunError::host("listen for signals"))?;
        Ok(Self {
            signals,
            cancelled_by: AtomicI32::new(0),
            act,
        })
    }

    /// The signal that cancels the run, once one arrived.
    pub(super) fn cancelled_by(&self) -> Option<i32> {
        let number = self.cancelled_by.load(Ordering::Relaxed);
        (number != 0).then_some(number)
    }
}

impl Observer for UntilSignal {
    fn progress(&self, now: &Progress<'_>) {
        self.act.transfer(now);
    }

    fn is_cancelled(&self) -> bool {
        while self.cancelled_by().is_none() {
            match signal::take(self.signals.as_fd()) {
                Ok(Some(number)) if signal::ends_a_run(number) => {
                    self.cancelled_by.store(number, Ordering::Relaxed);
                }
                // The others say nothing of what is fetched.
                Ok(Some(_)) => (),
                // A signal that cannot be read here is handled by the supervision of the body.
                Ok(None) | Err(_) => return false,
            }
        }
        true
    }
}
