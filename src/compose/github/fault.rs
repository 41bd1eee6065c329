//! What can go wrong with one try of a request, and whether another one may help.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ureq::http::StatusCode;

use crate::compose::github::error::GitHubError;
use crate::spec::tokens::iso_date;

/// What went wrong with one try.
#[derive(Debug)]
pub(super) enum Fault {
    /// Another try would end the same way.
    Final(Box<GitHubError>),
    /// The answer is none that can be used, and another one would be the same.
    Unusable(String),
    /// Another try may help.
    Passing {
        /// What happened.
        cause: String,
        /// For how long the service asks to be left alone.
        wait: Option<Duration>,
        /// Whether it is because too much was asked.
        limit: Option<RateLimit>,
    },
}

/// The service was asked too often.
#[derive(Debug)]
pub(super) struct RateLimit {
    pub(super) status: StatusCode,
    /// When it accepts requests again.
    pub(super) until: Option<String>,
}

impl From<GitHubError> for Fault {
    fn from(error: GitHubError) -> Self {
        Self::Final(Box::new(error))
    }
}

impl Fault {
    /// Too much was asked: for `wait`, or until `reset` in seconds since 1970, or for a time that
    /// the service does not tell.
    pub(super) fn rate_limited(
        status: StatusCode,
        wait: Option<Duration>,
        reset: Option<u64>,
    ) -> Self {
        let now = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default()
            .as_secs();
        let wait = wait.or_else(|| {
            let left = reset?.saturating_sub(now);
            Some(Duration::from_secs(left))
        });
        let until = wait.map(|wait| utc(now.saturating_add(wait.as_secs())));
        Self::Passing {
            cause: format!("the answer was {}, asked too often", status.as_u16()),
            wait,
            limit: Some(RateLimit { status, until }),
        }
    }
}

/// `2026-05-03T12:30:00Z`.
fn utc(unix_s: u64) -> String {
    let day = iso_date(i64::try_from(unix_s).unwrap_or(i64::MAX));
    let second = unix_s % 86_400;
    let (hour, minute, second) = (second / 3_600, second / 60 % 60, second % 60);
    format!("{day}T{hour:02}:{minute:02}:{second:02}Z")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_a_limit_is_told_in_utc() {
        assert_eq!(utc(0), "1970-01-01T00:00:00Z");
        assert_eq!(utc(1_700_000_000), "2023-11-14T22:13:20Z");
    }
}
