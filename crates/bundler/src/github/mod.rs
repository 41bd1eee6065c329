//! Sources that lie in a repository of a hosting service: references resolved, files fetched.
//!
//! [`GitHub`] is what the rest of this room knows of it, and the only place that sees credentials
//! (AIP-26, "Github auth boundary").

mod answers;
mod cache;
pub mod client;
mod contents;
pub mod error;
mod fault;
mod fetching;
pub mod reference;
mod resolving;
mod service;
mod snapshot;
mod token;

use std::fmt;
use std::os::fd::OwnedFd;
use std::time::Duration;

pub use client::{Client, ClientSettings};
pub use error::GitHubError;
pub use reference::RefShape;
pub use token::Token;

pub use sources::http::Patience;
use spec::digest::Digest;
use spec::path::RelPath;
use spec::report::WarningReport;

/// Repositories by name.
pub trait GitHub {
    /// The commit that `reference` of `repository` (`owner/name`) stands for.
    ///
    /// # Errors
    /// [`GitHubError`]: the reference is not pinned and must be, is not there, or the service
    /// did not answer.
    fn resolve_ref(&self, repository: &str, reference: &str) -> Result<ResolvedRef, GitHubError>;

    /// The files below the folder `path` (`None`: all) of `repository` at the commit `sha`.
    ///
    /// # Errors
    /// [`GitHubError`]: the folder is not there, the archive is refused, or the service did not
    /// answer.
    fn fetch(
        &self,
        repository: &str,
        sha: &str,
        path: Option<&RelPath>,
    ) -> Result<FetchedTree, GitHubError>;
}

/// What the client is doing, for a terminal.
#[derive(Debug, Clone, Copy)]
pub enum Progress<'now> {
    /// It asks for the commit of a reference.
    Resolving {
        /// `owner/name`.
        repository: &'now str,
        reference: &'now str,
    },
    /// It asks for the files of a commit.
    Fetching {
        /// `owner/name`.
        repository: &'now str,
        sha: &'now str,
    },
    /// Bytes of an archive have come.
    Receiving {
        /// So many so far.
        bytes: u64,
        /// So many in all, where the service says it.
        stated: Option<u64>,
    },
    /// It tries again after a pause.
    Waiting { cause: &'now str, pause: Duration },
    /// What was asked for is there, or failed.
    Done,
}

/// A reference and the commit that it stands for now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResolvedRef {
    /// The commit, 40 hexadecimal digits in lower case.
    pub sha: String,
    /// What the reference looks like.
    pub shape: RefShape,
    /// Whether no request was made for it.
    pub cached: bool,
    /// What may surprise: a tag and a branch of the same name.
    pub warnings: Vec<WarningReport>,
}

/// Files of a repository, read-only by agreement: others may have the same directory open.
pub struct FetchedTree {
    /// The folder that was asked for: regular files, directories, and links that stay inside it.
    /// Nothing of `.git` is in it.
    pub directory: OwnedFd,
    /// Bytes of the archive that the files came in.
    pub archive_bytes: u64,
    /// SHA-256 of that archive. The service may pack the same commit anew and otherwise.
    pub archive_digest: Digest,
    /// Whether no request was made for it.
    pub from_cache: bool,
    /// Keeps the directory from being removed while this lives.
    pub hold: Option<OwnedFd>,
}

impl FetchedTree {
    /// Files that lie in a directory of the caller's, which nobody removes: for tests and for
    /// services of another kind.
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
