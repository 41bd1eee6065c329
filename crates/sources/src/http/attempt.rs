//! Errors of one attempt of a request, and whether a retry may help.

use std::time::Duration;

use ureq::http::StatusCode;

use crate::http::headers::parse_retry_after;
use crate::http::response::Response;
use crate::unix_s;
use spec::tokens::iso_date;

/// Error of one attempt; `E` is the caller's error type.
#[derive(Debug)]
pub(crate) enum AttemptError<E> {
    /// Error of the caller. No retry follows.
    Final(Box<E>),
    /// The response is unusable. No retry follows.
    Unusable(String),
    /// A retry may succeed.
    Temporary {
        cause: String,
        /// Delay that the server requests.
        wait: Option<Duration>,
        limit: Option<RateLimit>,
    },
}

/// The server limits the request rate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RateLimit {
    pub status: u16,
    /// UTC, RFC 3339.
    pub until: Option<String>,
}

impl<E> AttemptError<E> {
    #[must_use]
    pub(crate) fn temporary(cause: String) -> Self {
        Self::Temporary {
            cause,
            wait: None,
            limit: None,
        }
    }

    #[must_use]
    pub(crate) fn unexpected_status(status: StatusCode) -> Self {
        Self::Unusable(format!("the answer was {}", status.as_u16()))
    }

    /// Adds the server `origin` to the cause.
    #[must_use]
    pub(crate) fn at(self, origin: &str) -> Self {
        match self {
            Self::Final(error) => Self::Final(error),
            Self::Unusable(cause) => Self::Unusable(format!("{origin}: {cause}")),
            Self::Temporary { cause, wait, limit } => Self::Temporary {
                cause: format!("{origin}: {cause}"),
                wait,
                limit,
            },
        }
    }

    /// Creates a rate limit error. The limit ends after `wait`, else at `reset`, in seconds since
    /// 1970. Both may be unknown.
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
        Self::Temporary {
            cause: format!("the answer was {status}, too many requests"),
            wait,
            limit: Some(RateLimit { status, until }),
        }
    }
}

/// Formats the end of the message of a rate limit.
pub(crate) fn format_until(until: Option<&str>) -> String {
    until.map_or_else(String::new, |until| {
        format!("; it accepts requests again at {until}")
    })
}

/// Formats `one try` or `3 tries`.
pub(crate) fn format_tries(tries: u32) -> String {
    match tries {
        1 => "one try".to_owned(),
        more => format!("{more} tries"),
    }
}

/// Fails with a temporary error for 408, 429 and server errors.
pub(crate) fn check_retryable<E>(response: &Response) -> Result<(), AttemptError<E>> {
    let status = response.status;
    let wait = parse_retry_after(&response.headers);
    if status == StatusCode::TOO_MANY_REQUESTS {
        return Err(AttemptError::rate_limited(status, wait, None));
    }
    if status.is_server_error() || status == StatusCode::REQUEST_TIMEOUT {
        return Err(AttemptError::Temporary {
            cause: format!("the answer was {}", status.as_u16()),
            wait,
            limit: None,
        });
    }
    Ok(())
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
    fn the_end_of_a_rate_limit_is_formatted_in_utc() {
        assert_eq!(utc(0), "1970-01-01T00:00:00Z");
        assert_eq!(utc(1_700_000_000), "2023-11-14T22:13:20Z");
    }
}
