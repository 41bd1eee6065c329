//! Opens the store and origins with the settings of the caller and the host.

use std::sync::Arc;

use crate::oci::error::OciError;
use crate::oci::layout::Layout;
use crate::oci::observer::Observer;
use crate::oci::origin::{BlobStream, FetchedManifest, Origin};
use crate::oci::registry::{Connection, Registry};
use crate::oci::store::{Store, StoreError, StorePlace};
use archive::UnpackLimits;
use spec::digest::Digest;
use spec::host_policy::HostPolicy;
use spec::oci::reference::{Place, Reference, Which};
use spec::request::Caller;

/// Settings of the caller and the host.
#[derive(Clone)]
pub struct Terms<'call> {
    pub caller: &'call Caller,
    pub policy: &'call HostPolicy,
    pub insecure: bool,
    pub observer: Arc<dyn Observer>,
}

/// Omits the caller: the environment may contain secrets.
impl std::fmt::Debug for Terms<'_> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("Terms")
            .field("insecure", &self.insecure)
            .finish_non_exhaustive()
    }
}

/// Opens the store of this caller.
///
/// # Errors
/// [`OciError::Store`]: unsafe, or cannot be created.
pub fn open_store(caller: &Caller, policy: &HostPolicy) -> Result<Store, OciError> {
    Ok(Store::open(&StorePlace::choose(caller, policy)?)?)
}

/// Returns the host's limits of a layer.
#[must_use]
pub fn layer_limits(policy: &HostPolicy) -> UnpackLimits {
    UnpackLimits {
        compressed_bytes: policy.oci.archive_bytes,
        unpacked_bytes: policy.oci.unpacked_bytes,
        entries: policy.oci.entries,
    }
}

impl Terms<'_> {
    /// Opens the store.
    ///
    /// # Errors
    /// [`OciError::Store`]: unsafe, or cannot be created.
    pub fn store(&self) -> Result<Store, OciError> {
        open_store(self.caller, self.policy)
    }

    /// Returns the limits of a layer.
    #[must_use]
    pub fn layer_limits(&self) -> UnpackLimits {
        layer_limits(self.policy)
    }

    /// Creates a client for the repository of `reference`. Sends no request.
    ///
    /// # Errors
    /// [`OciError::Registry`]: the registry is not valid in a URL.
    pub fn registry(&self, reference: &Reference) -> Result<Registry, OciError> {
        let oci = &self.policy.oci;
        let connection = Connection {
            insecure: self.insecure || oci.is_insecure(&reference.registry),
            ca_file: oci.ca_file.clone(),
            docker_config: self.caller.docker_config.clone(),
            environment: Arc::clone(&self.caller.environment),
            observer: Arc::clone(&self.observer),
            ..Connection::default()
        };
        Registry::new(reference, connection)
    }

    /// Opens the origin at `place`.
    ///
    /// # Errors
    /// [`OciError`]: as [`Terms::registry`]; a missing directory, or not a layout.
    pub fn origin(&self, place: &Place) -> Result<Box<dyn Origin>, OciError> {
        Ok(match place {
            Place::Registry(reference) => Box::new(self.registry(reference)?),
            Place::Layout { directory, .. } => Box::new(Layout::open(directory)?),
        })
    }
}

/// Origin without content, for reads from the store alone.
#[derive(Debug, Clone, Copy, Default)]
pub struct StoreAlone;

impl Origin for StoreAlone {
    fn name(&self) -> String {
        "the store".to_owned()
    }

    fn manifest(&self, which: &Which) -> Result<FetchedManifest, OciError> {
        Err(match which {
            Which::Digest(digest) => StoreError::Gone { digest: *digest },
            tag => StoreError::Unnamed {
                name: tag.to_string(),
            },
        }
        .into())
    }

    fn blob(&self, digest: &Digest, _from_byte: u64) -> Result<BlobStream<'_>, OciError> {
        Err(StoreError::Gone { digest: *digest }.into())
    }
}
