//! What can go wrong with one try of a request to the service.

use crate::github::error::GitHubError;

/// What went wrong with one try.
pub(super) type Fault = sources::http::Fault<GitHubError>;

impl From<GitHubError> for Fault {
    fn from(error: GitHubError) -> Self {
        Self::Final(Box::new(error))
    }
}
