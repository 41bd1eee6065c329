//! Client for one repository of a registry (OCI distribution-spec).

mod authorization;
mod credentials;
mod docker_config;
pub mod error;
mod pulling;
mod pushing;
mod requests;

use std::cell::{OnceCell, RefCell};
use std::fmt;
use std::io::{Read, Seek};
use std::path::PathBuf;
use std::sync::Arc;

use ureq::http::HeaderValue;

use crate::http::url::parse_url;
use crate::http::{Cancellation, Client, Timeouts};
use crate::oci::error::OciError;
use crate::oci::observer::{NoObserver, Observer};
use crate::oci::registry::credentials::Credentials;
use crate::oci::registry::error::RegistryError;
use spec::document::excerpt;
use spec::oci::reference::Reference;
use spec::request::EnvironmentEntry;

/// Connection settings of a registry.
#[derive(Clone)]
pub struct Connection {
    /// Allows plain HTTP, which is refused by default even for loopback.
    pub insecure: bool,
    /// Additional certificate authorities, in PEM.
    pub ca_file: Option<PathBuf>,
    /// Directory of Docker's `config.json`.
    pub docker_config: Option<PathBuf>,
    /// Environment of credential helpers: all of the caller's, as with Docker's client. Helpers are
    /// programs of the caller and read their settings there.
    pub environment: Arc<[EnvironmentEntry]>,
    pub timeouts: Timeouts,
    pub observer: Arc<dyn Observer>,
}

impl Default for Connection {
    fn default() -> Self {
        Self {
            insecure: false,
            ca_file: None,
            docker_config: None,
            environment: Arc::default(),
            timeouts: Timeouts::of_large_bodies(),
            observer: Arc::new(NoObserver),
        }
    }
}

/// Omits the environment: it may contain secrets.
impl fmt::Debug for Connection {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Connection")
            .field("insecure", &self.insecure)
            .field("ca_file", &self.ca_file)
            .field("docker_config", &self.docker_config)
            .field("timeouts", &self.timeouts)
            .finish_non_exhaustive()
    }
}

/// Content of an upload; a retry reads it again.
pub trait BlobSource: Read + Seek {}

impl<T: Read + Seek> BlobSource for T {}

/// A repository of a registry.
pub struct Registry {
    reference: Reference,
    connection: Connection,
    client: Client,
    scheme: OnceCell<&'static str>,
    credentials: OnceCell<Option<Credentials>>,
    /// Value of the `Authorization` header.
    authorization: RefCell<Option<HeaderValue>>,
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
    /// Creates a client for the repository of `reference`; its tag and digest are ignored. Sends no
    /// request and reads no file.
    ///
    /// # Errors
    /// [`OciError::Registry`]: the registry is not valid in a URL.
    pub fn new(reference: &Reference, connection: Connection) -> Result<Self, OciError> {
        let registry = &reference.registry;
        let is_host = parse_url(&format!("https://{registry}/")).is_some_and(|url| {
            url.authority()
                .is_some_and(|found| found == registry.as_str())
        });
        if !is_host {
            return Err(RegistryError::Setting {
                registry: excerpt(registry),
                problem: "expected HOST or HOST:PORT".to_owned(),
            }
            .into());
        }
        let observer = Arc::clone(&connection.observer);
        let cancellation = Cancellation::new(Arc::new(move || observer.is_cancelled()));
        Ok(Self {
            reference: reference.clone(),
            client: Client::new(connection.timeouts, cancellation),
            connection,
            scheme: OnceCell::new(),
            credentials: OnceCell::new(),
            authorization: RefCell::new(None),
        })
    }
}
