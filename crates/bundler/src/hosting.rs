//! Repository client with the host's settings, and one that uses the commits of a lock file.

use std::path::PathBuf;

use archive::UnpackLimits;
use sources::github::{Client, ClientSettings};
use sources::github::{
    FetchedTree, GitHub, GitHubError, Patience, Progress, RefShape, ResolvedRef, Token,
};
use spec::host_policy::{HostPolicy, UnpackCaps};
use spec::lock::Lock;
use spec::path::{RelPath, escape};

/// Creates a client for the service in `policy`. Sends no request.
///
/// # Errors
/// [`GitHubError::Setting`].
pub fn client<'caller>(
    policy: &HostPolicy,
    token: Option<Token>,
    cache_directory: PathBuf,
    progress: &'caller dyn Fn(&Progress<'_>),
) -> Result<Client<'caller>, GitHubError> {
    Client::new(ClientSettings {
        base_url: policy.github.base_url.clone(),
        token,
        // Checked earlier, where the position of the source is known.
        require_pin: false,
        limits: limits_of(policy.unpack),
        cache_directory,
        cache_size_bytes: policy.cache.size_bytes,
        patience: Patience::default(),
        progress,
    })
}

#[must_use]
pub(crate) fn limits_of(caps: UnpackCaps) -> UnpackLimits {
    UnpackLimits {
        compressed_bytes: caps.archive_bytes,
        unpacked_bytes: caps.unpacked_bytes,
        entries: caps.entries,
    }
}

/// Repositories at the commits of a lock file. A reference without a locked commit is refused.
pub struct Locked<'call> {
    pub github: &'call dyn GitHub,
    pub lock: &'call Lock,
}

impl std::fmt::Debug for Locked<'_> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("Locked")
            .field("lock", &self.lock)
            .finish_non_exhaustive()
    }
}

impl GitHub for Locked<'_> {
    fn resolve_ref(&self, repository: &str, reference: &str) -> Result<ResolvedRef, GitHubError> {
        match self.lock.pinned(repository, reference) {
            Some(sha) => Ok(ResolvedRef {
                sha: sha.to_owned(),
                shape: RefShape::of(reference),
                cached: true,
                warnings: Vec::new(),
            }),
            None => Err(GitHubError::NotLocked {
                repository: repository.to_owned(),
                reference: escape(reference.as_bytes()),
            }),
        }
    }

    fn fetch(
        &self,
        repository: &str,
        sha: &str,
        path: Option<&RelPath>,
    ) -> Result<FetchedTree, GitHubError> {
        self.github.fetch(repository, sha, path)
    }
}
