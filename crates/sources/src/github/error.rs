//! Errors of repositories.

use crate::github::reference::RefShape;
use crate::http::{self, format_tries, format_until};
use reader::Problem;
use spec::path::RelPath;
use store::CacheError;

/// Error while fetching from a repository. No variant contains a token or a response body.
#[derive(Debug, thiserror::Error)]
pub enum GitHubError {
    /// A movable reference where only commits are allowed.
    #[error("{repository}: `{reference}` is {shape}; expected a commit, 40 hexadecimal digits")]
    PinRequired {
        repository: String,
        reference: String,
        shape: RefShape,
    },
    #[error("{repository}: not found at {service}, or not accessible")]
    RepositoryNotFound {
        /// `owner/name`.
        repository: String,
        service: String,
        with_token: bool,
    },
    #[error("{repository}: no tag and no branch `{reference}`{}", suggest(.near.as_ref()))]
    RefNotFound {
        repository: String,
        reference: String,
        shape: RefShape,
        /// A similar existing name, escaped.
        near: Option<String>,
    },
    #[error("{repository}: no commit {sha}, or it is not accessible")]
    CommitNotFound {
        /// `owner/name`.
        repository: String,
        sha: String,
    },
    /// The tag refers to a tree or a blob.
    #[error("{repository}: the tag `{reference}` refers to {found}, expected a commit")]
    NotACommit {
        repository: String,
        reference: String,
        found: String,
    },
    #[error("{repository}: the lock file has no commit for `{reference}`")]
    NotLocked {
        repository: String,
        reference: String,
    },
    #[error("{repository} at {sha}: `{path}` {problem}")]
    FolderNotFound {
        repository: String,
        sha: String,
        path: RelPath,
        /// `does not exist`, or its type.
        problem: String,
    },
    #[error("{request}: the service refuses {}", describe_credentials(.token.as_deref()))]
    Unauthorized {
        request: String,
        /// Source of the token; `None` without a token.
        token: Option<String>,
    },
    #[error("{request}: the service answered {status}{}", format_until(.until.as_deref()))]
    RateLimited {
        request: String,
        status: u16,
        until: Option<String>,
        with_token: bool,
    },
    #[error("{request}: no usable answer after {}: {cause}", format_tries(*.tries))]
    Unavailable {
        request: String,
        tries: u32,
        cause: String,
    },
    #[error("{repository} at {sha}: the archive is refused: {cause}")]
    ArchiveRefused {
        repository: String,
        sha: String,
        cause: String,
        #[source]
        source: Option<Box<Problem>>,
    },
    #[error("the cache of repositories cannot be used")]
    Unpack(#[source] Box<Problem>),
    #[error("the cache of repositories cannot be used")]
    Cache(#[from] CacheError),
    #[error("{setting}: {problem}")]
    Setting {
        /// Key in the host policy.
        setting: &'static str,
        problem: String,
    },
}

/// Error of one attempt of a request.
pub(super) type AttemptError = http::AttemptError<GitHubError>;

impl From<GitHubError> for AttemptError {
    fn from(error: GitHubError) -> Self {
        Self::Final(Box::new(error))
    }
}

impl From<CacheError> for AttemptError {
    fn from(error: CacheError) -> Self {
        GitHubError::from(error).into()
    }
}

fn suggest(near: Option<&String>) -> String {
    near.map_or_else(String::new, |near| format!("; did you mean `{near}`?"))
}

fn describe_credentials(token: Option<&str>) -> String {
    match token {
        Some(origin) => format!("the token of `{origin}` (github.token)"),
        None => "requests without a token".to_owned(),
    }
}

impl GitHubError {
    /// Returns the stable name of the cause, in snake case.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::PinRequired { .. } => "pin_required",
            Self::RepositoryNotFound { .. }
            | Self::RefNotFound { .. }
            | Self::CommitNotFound { .. }
            | Self::NotACommit { .. }
            | Self::FolderNotFound { .. } => "github_not_found",
            Self::NotLocked { .. } => "lock_drift",
            Self::Unauthorized { .. } => "github_unauthorized",
            Self::RateLimited { .. } => "github_rate_limited",
            Self::Unavailable { .. } => "github_unavailable",
            Self::ArchiveRefused { .. } => "github_archive_refused",
            Self::Cache { .. } | Self::Unpack(_) => "github_cache",
            Self::Setting { .. } => "github_setting",
        }
    }

    /// Returns advice for the user, if any.
    #[must_use]
    pub fn hint(&self) -> Option<String> {
        let text = match self {
            Self::PinRequired {
                repository,
                shape: RefShape::Abbreviated,
                ..
            }
            | Self::RefNotFound {
                repository,
                shape: RefShape::Abbreviated,
                ..
            } => {
                return Some(format!(
                    "write all 40 digits of the commit: `git rev-parse` in a clone of \
                     {repository} prints them"
                ));
            }
            Self::PinRequired {
                repository,
                reference,
                ..
            } => {
                return Some(format!(
                    "write the commit instead: `git ls-remote` of {repository} shows which one \
                     `{reference}` is now"
                ));
            }
            Self::RepositoryNotFound {
                with_token: false, ..
            } => "a private repository looks like this without a token: set github.token",
            Self::RepositoryNotFound { .. } => {
                "check owner and name, and that the token of github.token may read it"
            }
            Self::CommitNotFound { .. } => {
                "check that the commit was pushed to this repository, and that the token of github.token may read it"
            }
            Self::FolderNotFound { .. } => "`path` is relative to the top of the repository",
            Self::Unauthorized { token: None, .. } => {
                "set github.token to env:NAME or file:PATH in the host's configuration"
            }
            Self::Unauthorized { .. } => {
                "the token of github.token may have expired or been revoked: replace it"
            }
            Self::RateLimited {
                with_token: false, ..
            } => "requests with a token have a higher limit: set github.token",
            Self::RateLimited { .. } => {
                "wait, or pin commits: a commit that was fetched before needs no request"
            }
            Self::Unavailable { .. } => "check github.base_url, and try again later",
            Self::Cache(CacheError::Locked { .. }) => {
                "try again when the other process, or the body, has ended"
            }
            Self::Cache(_) | Self::Unpack(_) => {
                "set cache.directory in the host's configuration to another directory"
            }
            Self::NotLocked { .. } => "write the lock file again: `runner bundle … --lock FILE`",
            Self::RefNotFound { .. }
            | Self::NotACommit { .. }
            | Self::ArchiveRefused { .. }
            | Self::Setting { .. } => return None,
        };
        Some(text.to_owned())
    }
}
