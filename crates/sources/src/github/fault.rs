//! Errors of one attempt of a request.

use crate::github::error::GitHubError;
use store::CacheError;

pub(super) type Fault = crate::http::Fault<GitHubError>;

impl From<GitHubError> for Fault {
    fn from(error: GitHubError) -> Self {
        Self::Final(Box::new(error))
    }
}

impl From<CacheError> for Fault {
    fn from(error: CacheError) -> Self {
        GitHubError::from(error).into()
    }
}
