//! A repository of a registry, spoken to as the distribution specification has it.

pub mod error;

use std::fmt;
use std::io::{Read, Seek};
use std::path::PathBuf;
use std::sync::Arc;

use crate::http::Patience;
use crate::oci::error::OciError;
use crate::oci::listener::{Listener, Silent};
use crate::oci::origin::{BlobStream, FetchedManifest, Origin};
use crate::oci::registry::error::RegistryError;
use crate::spec::digest::Digest;
use crate::spec::oci::reference::{Reference, Which};
use crate::spec::request::EnvironmentEntry;

/// How a registry is spoken to.
#[derive(Clone)]
pub struct Connection {
    /// Whether it may be spoken to over plain HTTP: nothing else makes that possible, not even that
    /// it lies on this machine.
    pub insecure: bool,
    /// Certificate authorities in PEM that are trusted besides the host's.
    pub ca_file: Option<PathBuf>,
    /// The directory that holds Docker's `config.json`, with the credentials.
    pub docker_config: Option<PathBuf>,
    /// What a credential helper has as its environment.
    pub environment: Vec<EnvironmentEntry>,
    /// How long it is waited for.
    pub patience: Patience,
    /// Who is told, and who can end it.
    pub listener: Arc<dyn Listener>,
}

impl Default for Connection {
    fn default() -> Self {
        Self {
            insecure: false,
            ca_file: None,
            docker_config: None,
            environment: Vec::new(),
            patience: Patience::default(),
            listener: Arc::new(Silent),
        }
    }
}

/// Nothing of the variables: they may be secrets.
impl fmt::Debug for Connection {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Connection")
            .field("insecure", &self.insecure)
            .field("ca_file", &self.ca_file)
            .field("docker_config", &self.docker_config)
            .field("patience", &self.patience)
            .finish_non_exhaustive()
    }
}

/// What a blob is read from while it is sent: more than once where a try fails.
pub trait BlobSource: Read + Seek {}

impl<T: Read + Seek> BlobSource for T {}

/// A repository of a registry.
#[derive(Debug)]
pub struct Registry {
    reference: Reference,
    connection: Connection,
}

impl Registry {
    /// The repository that `reference` names. Nothing is asked yet.
    ///
    /// # Errors
    /// [`OciError::Registry`]: what this host trusts cannot be read.
    pub fn new(reference: &Reference, connection: Connection) -> Result<Self, OciError> {
        Ok(Self {
            reference: reference.clone(),
            connection,
        })
    }

    /// Whether the repository has a blob.
    ///
    /// # Errors
    /// [`OciError`].
    pub fn has_blob(&self, digest: &Digest) -> Result<bool, OciError> {
        Err(self.not_yet(&digest.to_string()))
    }

    /// Sends a blob of `bytes` bytes, unless it is there; whether it was sent.
    ///
    /// # Errors
    /// [`OciError`].
    pub fn push_blob(
        &self,
        digest: &Digest,
        _bytes: u64,
        _source: &mut dyn BlobSource,
    ) -> Result<bool, OciError> {
        Err(self.not_yet(&digest.to_string()))
    }

    /// Sends a manifest, by its digest or under a tag ([`Which::Unnamed`]: `latest`); its digest.
    ///
    /// # Errors
    /// [`OciError`].
    pub fn push_manifest(
        &self,
        which: &Which,
        _bytes: &[u8],
        _media_type: &str,
    ) -> Result<Digest, OciError> {
        Err(self.not_yet(&which.to_string()))
    }

    fn not_yet(&self, what: &str) -> OciError {
        RegistryError::Setting {
            registry: self.reference.registry.clone(),
            problem: format!("{what}: not there yet ({:?})", self.connection),
        }
        .into()
    }
}

impl Origin for Registry {
    fn shown(&self) -> String {
        format!("{}/{}", self.reference.registry, self.reference.repository)
    }

    fn manifest(&self, which: &Which) -> Result<FetchedManifest, OciError> {
        Err(self.not_yet(&which.to_string()))
    }

    fn blob(&self, digest: &Digest, _from_byte: u64) -> Result<BlobStream<'_>, OciError> {
        Err(self.not_yet(&digest.to_string()))
    }
}
