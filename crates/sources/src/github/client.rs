//! The client: resolves references and fetches archives.

use std::cell::{OnceCell, RefCell};
use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

use crate::github::cache::Cache;
use crate::github::error::GitHubError;
use crate::github::fetching::FetchRequest;
use crate::github::reference::is_commit;
use crate::github::resolving::{is_reference, is_repository};
use crate::github::service::{Service, wait};
use crate::github::{FetchedTree, GitHub, RefShape, ResolvedRef, Timeouts, Token};
use crate::progress::Progress;
use archive::UnpackLimits;
use spec::digest::Digest;
use spec::path::{RelPath, escape};

/// Settings of a client.
pub struct ClientSettings {
    /// Base URL of the REST API: `HostPolicy::github.base_url`.
    pub base_url: String,
    /// Sent only to `base_url`.
    pub token: Option<Token>,
    pub require_pin: bool,
    pub limits: UnpackLimits,
    pub cache_directory: PathBuf,
    /// Above this size the least recently used entries are removed.
    pub cache_size_bytes: u64,
    pub timeouts: Timeouts,
}

impl fmt::Debug for ClientSettings {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("ClientSettings")
            .field("base_url", &self.base_url)
            .field("token", &self.token)
            .field("require_pin", &self.require_pin)
            .field("cache_directory", &self.cache_directory)
            .finish_non_exhaustive()
    }
}

/// Client of the service at one base URL.
pub struct Client {
    pub(super) settings: ClientSettings,
    pub(super) service: Service,
    cache: OnceCell<Cache>,
    /// References that this process resolved. Each resolves to one commit.
    resolved: RefCell<BTreeMap<(String, String), ResolvedRef>>,
}

impl fmt::Debug for Client {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Client")
            .field("settings", &self.settings)
            .finish_non_exhaustive()
    }
}

impl Client {
    /// Creates a client. Sends no request and touches no file.
    ///
    /// # Errors
    /// [`GitHubError::Setting`].
    pub fn new(settings: ClientSettings) -> Result<Self, GitHubError> {
        let service = Service::new(
            &settings.base_url,
            settings.token.clone(),
            settings.timeouts,
        )?;
        Ok(Self {
            settings,
            service,
            cache: OnceCell::new(),
            resolved: RefCell::default(),
        })
    }

    pub(super) fn cache(&self) -> Result<&Cache, GitHubError> {
        if let Some(cache) = self.cache.get() {
            return Ok(cache);
        }
        let settings = &self.settings;
        let cache = Cache::open(&settings.cache_directory, settings.cache_size_bytes)?;
        Ok(self.cache.get_or_init(|| cache))
    }

    /// Hashes the parts that identify an entry of the cache. No part contains NUL.
    pub(super) fn cache_key(
        &self,
        kind: &str,
        repository: &str,
        name: &[u8],
        folder: &[u8],
    ) -> Digest {
        let service = self.service.base_url().as_bytes();
        let parts = [
            kind.as_bytes(),
            service,
            repository.as_bytes(),
            name,
            folder,
        ];
        Digest::of(&parts.join(&0))
    }

    pub(super) fn repository_not_found(&self, repository: &str) -> GitHubError {
        GitHubError::RepositoryNotFound {
            repository: escape(repository.as_bytes()),
            service: self.service.base_url().to_owned(),
            with_token: self.service.has_token(),
        }
    }
}

impl GitHub for Client {
    fn resolve_ref(&self, repository: &str, reference: &str) -> Result<ResolvedRef, GitHubError> {
        let shape = RefShape::of(reference);
        if shape == RefShape::Commit {
            return Ok(ResolvedRef {
                sha: reference.to_owned(),
                shape,
                cached: true,
                warnings: Vec::new(),
            });
        }
        if self.settings.require_pin {
            return Err(GitHubError::PinRequired {
                repository: escape(repository.as_bytes()),
                reference: escape(reference.as_bytes()),
                shape,
            });
        }
        if !is_repository(repository) {
            return Err(self.repository_not_found(repository));
        }
        if !is_reference(reference) {
            return Err(GitHubError::RefNotFound {
                repository: repository.to_owned(),
                reference: escape(reference.as_bytes()),
                shape,
                near: None,
            });
        }
        let key = (repository.to_owned(), reference.to_owned());
        if let Some(resolved) = self.resolved.borrow().get(&key) {
            return Ok(resolved.clone());
        }
        let resolved = self.resolve(repository, reference, shape);
        Progress::Done.emit();
        let resolved = resolved?;
        self.resolved.borrow_mut().insert(key, resolved.clone());
        Ok(resolved)
    }

    fn fetch(
        &self,
        repository: &str,
        sha: &str,
        path: Option<&RelPath>,
    ) -> Result<FetchedTree, GitHubError> {
        if !is_repository(repository) {
            return Err(self.repository_not_found(repository));
        }
        let folder = path.map_or(&b""[..], RelPath::as_bytes);
        let request = FetchRequest {
            repository,
            sha,
            folder: path,
            tree_key: self.cache_key("tree", repository, sha.as_bytes(), folder),
            archive_key: self.cache_key("archive", repository, sha.as_bytes(), b""),
        };
        if !is_commit(sha) {
            return Err(request.commit_not_found());
        }
        let cache = self.cache()?;
        if let Some(tree) = cache.tree(&request.tree_key)? {
            return Ok(tree);
        }
        let _claim = cache.claim(&request.archive_key, |pause| {
            wait("another process fetches it", pause);
        })?;
        // The previous holder of the claim may have fetched it.
        if let Some(tree) = cache.tree(&request.tree_key)? {
            return Ok(tree);
        }
        if let Some(tree) = self.unpack_cached(&request)? {
            return Ok(tree);
        }
        let fetched = self.download(&request);
        Progress::Done.emit();
        fetched
    }
}
