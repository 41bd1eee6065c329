//! Errors of one attempt of a request, and whether a retry may help.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ureq::http::StatusCode;

use crate::http::headers::retry_after;
use crate::http::response::Response;
use spec::tokens::iso_date;

/// Error of one attempt; `E` is the caller's error type.
#[derive(Debug)]
pub(crate) enum Fault<E> {
    Final(Box<E>),
    Unusable(String),
    Passing {
        cause: String,
        /// Delay that the server asks for.
        wait: Option<Duration>,
        limit: Option<RateLimit>,
    },
}

/// The server limits the request rate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RateLimit {
    pub status: u16,
    pub until: Option<String>,
}

impl<E> Fault<E> {
    /// Creates a temporary error without a stated delay.
    #[must_use]
    pub(crate) fn passing(cause: String) -> Self {
        Self::Passing {
            cause,
            wait: None,
            limit: None,
        }
    }

    /// Creates a rate limit error. It lasts for `wait`, or until `reset` in seconds since 1970;
    /// both may be unknown.
    #[must_use]
    pub(crate) fn rate_limited(
        status: StatusCode,
        wait: Option<Duration>,
        reset: Option<u64>,
    ) -> Self {
        let now = unix_s();
        let wait = wait.or_else(|| {
            let left = reset?.saturating_sub(now);
            Some(Duration::from_secs(left))
        });
        let until = wait.map(|wait| utc(now.saturating_add(wait.as_secs())));
        let status = status.as_u16();
        Self::Passing {
            cause: format!("the answer was {status}, too many requests"),
            wait,
            limit: Some(RateLimit { status, until }),
        }
    }
}

/// Completes the message of a rate limit.
pub(crate) fn until_shown(until: Option<&str>) -> String {
    until.map_or_else(String::new, |until| {
        format!("; it accepts requests again at {until}")
    })
}

/// `one try` or `3 tries`.
pub(crate) fn tries_shown(tries: u32) -> String {
    match tries {
        1 => "one try".to_owned(),
        more => format!("{more} tries"),
    }
}

/// Fails with a temporary error for a status that a retry may change.
pub(crate) fn check_retryable<E>(response: &Response) -> Result<(), Fault<E>> {
    let status = response.status;
    let wait = retry_after(&response.headers);
    if status == StatusCode::TOO_MANY_REQUESTS {
        return Err(Fault::rate_limited(status, wait, None));
    }
    if status.is_server_error() || status == StatusCode::REQUEST_TIMEOUT {
        return Err(Fault::Passing {
            cause: format!("the answer was {}", status.as_u16()),
            wait,
            limit: None,
        });
    }
    Ok(())
}

fn unix_s() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default()
        .as_secs()
}

/// Format: `2026-05-03T12:30:00Z`.
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
    fn the_end_of_a_limit_is_shown_in_utc() {
        assert_eq!(utc(0), "1970-01-01T00:00:00Z");
        assert_eq!(utc(1_700_000_000), "2023-11-14T22:13:20Z");
    }
}
