//! What can go wrong with one try of a request, and whether another one may help.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ureq::http::StatusCode;

use spec::tokens::iso_date;

/// What went wrong with one try; `E` is the error of whoever makes it.
#[derive(Debug)]
pub enum Fault<E> {
    /// Another try would end the same way.
    Final(Box<E>),
    /// The answer is none that can be used, and another one would be the same.
    Unusable(String),
    /// Another try may help.
    Passing {
        cause: String,
        /// For how long the service asks to be left alone.
        wait: Option<Duration>,
        /// Whether it is because too much was asked.
        limit: Option<RateLimit>,
    },
}

/// The service was asked too often.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RateLimit {
    /// 429, or what stands for it.
    pub status: u16,
    pub until: Option<String>,
}

impl<E> Fault<E> {
    /// Another try may help, and nobody said when.
    #[must_use]
    pub fn passing(cause: String) -> Self {
        Self::Passing {
            cause,
            wait: None,
            limit: None,
        }
    }

    /// Too much was asked: for `wait`, or until `reset` in seconds since 1970, or for a time that
    /// the service does not tell.
    #[must_use]
    pub fn rate_limited(status: StatusCode, wait: Option<Duration>, reset: Option<u64>) -> Self {
        let now = unix_s();
        let wait = wait.or_else(|| {
            let left = reset?.saturating_sub(now);
            Some(Duration::from_secs(left))
        });
        let until = wait.map(|wait| utc(now.saturating_add(wait.as_secs())));
        let status = status.as_u16();
        Self::Passing {
            cause: format!("the answer was {status}, asked too often"),
            wait,
            limit: Some(RateLimit { status, until }),
        }
    }
}

/// Seconds since 1970.
pub(super) fn unix_s() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default()
        .as_secs()
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
