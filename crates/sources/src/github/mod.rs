//! Repository sources: resolves references and fetches files.
//!
//! Only this module handles the token (AIP-26, "Github auth boundary").

mod cache;
mod client;
mod error;
mod fetching;
mod reference;
mod resolving;
mod responses;
mod service;
mod token;

use std::fmt;
use std::os::fd::OwnedFd;

pub use client::{Client, ClientSettings};
pub use error::GitHubError;
pub use reference::RefShape;
pub use token::Token;

use crate::github::cache::ArchiveNote;
use crate::http::Timeouts;
use spec::digest::Digest;
use spec::path::RelPath;
use spec::report::WarningReport;
pub use store::InUseDirectory;
use store::KeyedTree;

/// Access to repositories.
pub trait GitHub {
    /// Resolves `reference` of `repository` (`owner/name`) to a commit.
    ///
    /// # Errors
    /// [`GitHubError`]: not pinned where required, missing, or a failed request.
    fn resolve_ref(&self, repository: &str, reference: &str) -> Result<ResolvedRef, GitHubError>;

    /// Fetches the folder `path` (`None`: everything) of `repository` at the commit `sha`.
    ///
    /// # Errors
    /// [`GitHubError`]: a missing folder, a refused archive, or a failed request.
    fn fetch(
        &self,
        repository: &str,
        sha: &str,
        path: Option<&RelPath>,
    ) -> Result<FetchedTree, GitHubError>;
}

/// A resolved reference.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResolvedRef {
    /// 40 hexadecimal digits in lower case.
    pub sha: String,
    pub shape: RefShape,
    /// No request was made.
    pub cached: bool,
    /// For example, a tag and a branch have the same name.
    pub warnings: Vec<WarningReport>,
}

/// Files of a repository. Do not change them: other processes may use the same directory.
pub struct FetchedTree {
    /// The requested folder: regular files, directories, and links within it. `.git` is excluded.
    pub directory: OwnedFd,
    pub archive_bytes: u64,
    /// SHA-256 of the archive. The service may pack the same commit differently.
    pub archive_digest: Digest,
    pub from_cache: bool,
    /// Prevents the removal of the directory.
    pub hold: Option<InUseDirectory>,
}

impl FetchedTree {
    fn of_entry(entry: KeyedTree, archive: ArchiveNote, from_cache: bool) -> Self {
        let (directory, lock) = entry.into_parts();
        Self {
            directory,
            archive_bytes: archive.bytes,
            archive_digest: archive.digest,
            from_cache,
            hold: Some(lock),
        }
    }

    /// Wraps a directory of the caller.
    #[must_use]
    pub fn of_directory(directory: OwnedFd, archive_bytes: u64, archive_digest: Digest) -> Self {
        Self {
            directory,
            archive_bytes,
            archive_digest,
            from_cache: false,
            hold: None,
        }
    }
}

impl fmt::Debug for FetchedTree {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("FetchedTree")
            .field("archive_bytes", &self.archive_bytes)
            .field("archive_digest", &self.archive_digest)
            .field("from_cache", &self.from_cache)
            .field("held", &self.hold.is_some())
            .finish_non_exhaustive()
    }
}
