//! Response headers.

use std::time::Duration;

use ureq::http::{HeaderMap, header};

use crate::http::fault::unix_s;
use spec::http_date::unix_s_of;
use spec::path::escape;

/// Checks that `Content-Type`, if present, contains one of `known`.
///
/// # Errors
/// What was found and what was `expected`.
pub fn expect_content(headers: &HeaderMap, known: &[&str], expected: &str) -> Result<(), String> {
    let Some(found) = headers.get(header::CONTENT_TYPE) else {
        return Ok(());
    };
    let found = escape(found.as_bytes()).to_ascii_lowercase();
    if known.iter().any(|known| found.contains(known)) {
        return Ok(());
    }
    let found: String = found.chars().take(60).collect();
    Err(format!(
        "the answer is of the type `{found}`, expected {expected}"
    ))
}

/// Parses a header that is one number.
#[must_use]
pub fn number(headers: &HeaderMap, name: &str) -> Option<u64> {
    headers.get(name)?.to_str().ok()?.trim().parse().ok()
}

/// Parses `Retry-After`, in seconds or as a date, relative to now. A date in the past gives zero.
#[must_use]
pub fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    if let Some(seconds) = number(headers, "retry-after") {
        return Some(Duration::from_secs(seconds));
    }
    let date = headers.get(header::RETRY_AFTER)?.to_str().ok()?;
    let at = unix_s_of(date.trim())?;
    Some(Duration::from_secs(at.saturating_sub(unix_s())))
}
