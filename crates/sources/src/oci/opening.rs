//! The store and the places that artifacts come from, as the caller and the host's configuration
//! have them.

use std::sync::Arc;

use crate::oci::error::OciError;
use crate::oci::layout::Layout;
use crate::oci::listener::Listener;
use crate::oci::origin::{BlobStream, FetchedManifest, Origin};
use crate::oci::registry::{Connection, Registry};
use crate::oci::store::{Store, StoreError, StorePlace};
use archive::UnpackLimits;
use spec::digest::Digest;
use spec::host_policy::HostPolicy;
use spec::oci::reference::{Place, Reference, Which};
use spec::request::Caller;

/// Who asks, and what the host says.
#[derive(Clone)]
pub struct Terms<'call> {
    pub caller: &'call Caller,
    /// What the host says.
    pub policy: &'call HostPolicy,
    /// Whether the caller lets registries be spoken to without TLS.
    pub insecure: bool,
    /// Who is told, and who can end it.
    pub listener: Arc<dyn Listener>,
}

/// Nothing of the caller: his variables may be secrets.
impl std::fmt::Debug for Terms<'_> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("Terms")
            .field("insecure", &self.insecure)
            .finish_non_exhaustive()
    }
}

/// The store of this caller.
///
/// # Errors
/// [`OciError::Store`]: it is not safe, or cannot be made.
pub fn open_store(caller: &Caller, policy: &HostPolicy) -> Result<Store, OciError> {
    Ok(Store::open(&StorePlace::choose(caller, policy)?)?)
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

impl Terms<'_> {
    /// The store.
    ///
    /// # Errors
    /// [`OciError::Store`]: it is not safe, or cannot be made.
    pub fn store(&self) -> Result<Store, OciError> {
        open_store(self.caller, self.policy)
    }

    /// How big a layer may be.
    #[must_use]
    pub fn layer_limits(&self) -> UnpackLimits {
        layer_limits(self.policy)
    }

    /// The repository of `reference`. Nothing is asked yet.
    ///
    /// # Errors
    /// [`OciError::Registry`]: what this host trusts cannot be read.
    pub fn registry(&self, reference: &Reference) -> Result<Registry, OciError> {
        let oci = &self.policy.oci;
        let connection = Connection {
            insecure: self.insecure || oci.is_insecure(&reference.registry),
            ca_file: oci.ca_file.clone(),
            docker_config: self.caller.docker_config.clone(),
            environment: self.caller.environment.clone(),
            listener: Arc::clone(&self.listener),
            ..Connection::default()
        };
        Registry::new(reference, connection)
    }

    /// Where `place` is read from.
    ///
    /// # Errors
    /// [`OciError`]: as [`Terms::registry`]; the directory is not there, or no layout.
    pub fn origin(&self, place: &Place) -> Result<Box<dyn Origin>, OciError> {
        Ok(match place {
            Place::Registry(reference) => Box::new(self.registry(reference)?),
            Place::Layout { directory, .. } => Box::new(Layout::open(directory)?),
        })
    }
}

/// No place at all: what is not in the store is not to be had.
#[derive(Debug, Clone, Copy, Default)]
pub struct StoreAlone;

impl Origin for StoreAlone {
    fn shown(&self) -> String {
        "the store".to_owned()
    }

    fn is_local(&self) -> bool {
        true
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
