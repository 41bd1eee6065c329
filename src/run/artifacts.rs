//! Artifacts of registries, for runs: the store that keeps them, how a registry is spoken to, and
//! how a signal to the runner ends a pull.

use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};

use crate::bundle::UnpackLimits;
use crate::kernel::signal;
use crate::oci::error::OciError;
use crate::oci::listener::{Listener, Progress};
use crate::oci::pull;
use crate::oci::registry::{Connection, Registry};
use crate::oci::store::{Store, StoreError, StorePlace};
use crate::run::error::RunError;
use crate::spec::digest::Digest;
use crate::spec::host_policy::HostPolicy;
use crate::spec::oci::reference::Reference;
use crate::spec::request::{Caller, Request};

/// Where artifacts are kept for this caller.
///
/// # Errors
/// [`StoreError`] where it is not safe, or cannot be made.
pub fn open_store(caller: &Caller, policy: &HostPolicy) -> Result<Store, StoreError> {
    Store::open(&StorePlace::choose(caller, policy)?)
}

/// Whether a run would have the source with this digest without asking anybody. Nothing is made.
#[must_use]
pub fn is_kept(digest: &Digest, caller: &Caller, policy: &HostPolicy) -> bool {
    let look = || -> Result<bool, OciError> {
        let place = StorePlace::choose(caller, policy)?;
        if !place.directory.is_dir() {
            return Ok(false);
        }
        pull::is_kept(&Store::open(&place)?, digest, &layer_limits(policy))
    };
    // A run says why.
    look().unwrap_or(false)
}

/// How big a layer may be on this host.
#[must_use]
pub fn layer_limits(policy: &HostPolicy) -> UnpackLimits {
    UnpackLimits {
        compressed_bytes: policy.oci.archive_bytes,
        unpacked_bytes: policy.oci.unpacked_bytes,
        entries: policy.oci.entries,
    }
}

/// The repository that `reference` names, as caller and host say that it is spoken to.
///
/// # Errors
/// [`OciError::Registry`]: what this host trusts cannot be read.
pub fn registry(
    reference: &Reference,
    request: &Request,
    policy: &HostPolicy,
    listener: Arc<dyn Listener>,
) -> Result<Registry, OciError> {
    let connection = Connection {
        insecure: request.oci.insecure || policy.oci.is_insecure(&reference.registry),
        ca_file: policy.oci.ca_file.clone(),
        docker_config: request.caller.docker_config.clone(),
        environment: request.caller.environment.clone(),
        listener,
        ..Connection::default()
    };
    Registry::new(reference, connection)
}

/// Hears the signals that cancel a run, and nothing else.
#[derive(Debug)]
pub(super) struct UntilSignal {
    signals: OwnedFd,
    /// The number of the first one; 0: none came.
    cancelled_by: AtomicI32,
}

impl UntilSignal {
    /// `signals` is the descriptor of the signals that cancel a run.
    ///
    /// # Errors
    /// [`RunError::Host`].
    pub(super) fn new(signals: BorrowedFd<'_>) -> Result<Self, RunError> {
        let signals = rustix::io::fcntl_dupfd_cloexec(signals, 0)
            .map_err(RunError::host("listen for signals"))?;
        Ok(Self {
            signals,
            cancelled_by: AtomicI32::new(0),
        })
    }

    /// The signal that wants an end, once one came.
    pub(super) fn cancelled_by(&self) -> Option<i32> {
        let number = self.cancelled_by.load(Ordering::Relaxed);
        (number != 0).then_some(number)
    }
}

impl Listener for UntilSignal {
    fn progress(&self, _now: &Progress<'_>) {}

    fn is_cancelled(&self) -> bool {
        while self.cancelled_by().is_none() {
            match signal::take(self.signals.as_fd()) {
                // The size of a terminal says nothing about the run.
                Ok(Some(libc::SIGWINCH)) => (),
                Ok(Some(number)) => self.cancelled_by.store(number, Ordering::Relaxed),
                // One that cannot be read is left to whoever watches the body.
                Ok(None) | Err(_) => return false,
            }
        }
        true
    }
}
