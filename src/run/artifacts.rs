//! Artifacts of registries, for runs: which are kept already, and how a signal to the runner ends a
//! pull.

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

/// Whether a run would have the source with this digest without asking anybody. Nothing is made.
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

/// What a run has artifacts by, until a signal comes.
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

/// Hears the signals that cancel a run, and passes on what happens meanwhile.
#[derive(Debug)]
pub(super) struct UntilSignal {
    signals: OwnedFd,
    /// The number of the first one; 0: none came.
    cancelled_by: AtomicI32,
    /// What is being done.
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

    /// The signal that wants an end, once one came.
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
                // One that cannot be read is left to whoever watches the body.
                Ok(None) | Err(_) => return false,
            }
        }
        true
    }
}
