//! A repository of a registry, spoken to as the distribution specification has it.

mod asking;
mod authorization;
mod credentials;
mod docker_config;
pub mod error;
mod pulling;
mod pushing;

use std::cell::{OnceCell, RefCell};
use std::fmt;
use std::io::{Read, Seek};
use std::path::PathBuf;
use std::sync::Arc;

use crate::http::url::plain_url;
use crate::http::{Client, Patience, Watch};
use crate::oci::error::OciError;
use crate::oci::listener::{Listener, Silent};
use crate::oci::registry::authorization::Authorization;
use crate::oci::registry::credentials::Credentials;
use crate::oci::registry::error::RegistryError;
use spec::document::excerpt;
use spec::oci::reference::Reference;
use spec::request::EnvironmentEntry;

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
    /// What a credential helper has as its environment: all of the caller's, as with Docker's
    /// client, since helpers are the caller's programs and keep their settings there.
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
            patience: Patience::of_large_bodies(),
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
pub struct Registry {
    reference: Reference,
    connection: Connection,
    client: Client,
    /// How it is spoken to, once that is known.
    scheme: OnceCell<&'static str>,
    /// Who asks, once that was looked up.
    credentials: OnceCell<Option<Credentials>>,
    /// What was answered to its last question for that.
    authorization: RefCell<Option<Authorization>>,
}

impl fmt::Debug for Registry {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Registry")
            .field("reference", &self.reference)
            .field("connection", &self.connection)
            .finish_non_exhaustive()
    }
}

impl Registry {
    /// The repository that `reference` names; its tag and digest do not matter here. Nothing is
    /// asked and no file read yet.
    ///
    /// # Errors
    /// [`OciError::Registry`]: the registry can be no part of a URL.
    pub fn new(reference: &Reference, connection: Connection) -> Result<Self, OciError> {
        let registry = &reference.registry;
        let place = plain_url(&format!("https://{registry}/")).filter(|url| {
            url.authority()
                .is_some_and(|found| found == registry.as_str())
        });
        if place.is_none() {
            return Err(RegistryError::Setting {
                registry: excerpt(registry),
                problem: "expected HOST or HOST:PORT".to_owned(),
            }
            .into());
        }
        let listener = Arc::clone(&connection.listener);
        let watch = Watch::new(Arc::new(move || listener.is_cancelled()));
        Ok(Self {
            reference: reference.clone(),
            client: Client::new(connection.patience, watch),
            connection,
            scheme: OnceCell::new(),
            credentials: OnceCell::new(),
            authorization: RefCell::new(None),
        })
    }
}
