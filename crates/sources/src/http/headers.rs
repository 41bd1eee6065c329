//! Headers of requests and responses.

use std::time::{Duration, SystemTime};

use ureq::http::{HeaderMap, HeaderValue, header};

use spec::path::escape;
use sys::allocator::keep_from_children;

/// Creates a value of `Authorization`, which [`std::fmt::Debug`] hides. Returns `None` if `secret`
/// is not valid in a header. No process that is forked later has it.
#[must_use]
pub(crate) fn authorization(scheme: &str, secret: &[u8]) -> Option<HeaderValue> {
    keep_from_children(|| {
        let value = [scheme.as_bytes(), b" ", secret].concat();
        let mut header = HeaderValue::from_bytes(&value).ok()?;
        header.set_sensitive(true);
        Some(header)
    })
}

/// Checks that `Content-Type`, if present, contains one of `known`. The error names `expected`.
pub(crate) fn check_content_type(
    headers: &HeaderMap,
    known: &[&str],
    expected: &str,
) -> Result<(), String> {
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

#[must_use]
pub(crate) fn parse_number(headers: &HeaderMap, name: &str) -> Option<u64> {
    headers.get(name)?.to_str().ok()?.trim().parse().ok()
}

/// Parses `Retry-After`, in seconds or as a date, relative to now. A date in the past gives zero.
#[must_use]
pub(crate) fn parse_retry_after(headers: &HeaderMap) -> Option<Duration> {
    if let Some(seconds) = parse_number(headers, "retry-after") {
        return Some(Duration::from_secs(seconds));
    }
    let date = headers.get(header::RETRY_AFTER)?.to_str().ok()?;
    let at = httpdate::parse_http_date(date.trim()).ok()?;
    Some(at.duration_since(SystemTime::now()).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retry_after_is_read_in_each_form() {
        let far = Duration::from_secs(30 * 365 * 86_400);
        for (text, read) in [
            ("7200", Some(Duration::from_secs(7_200))),
            // A date that has passed, in the three forms of RFC 9110, 5.6.7.
            ("Sun, 06 Nov 1994 08:49:37 GMT", Some(Duration::ZERO)),
            ("Sunday, 06-Nov-94 08:49:37 GMT", Some(Duration::ZERO)),
            ("Sun Nov  6 08:49:37 1994", Some(Duration::ZERO)),
            ("Sun, 32 Nov 1994 08:49:37 GMT", None),
            ("soon", None),
            ("-1", None),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(header::RETRY_AFTER, text.parse().expect("a value"));
            assert_eq!(parse_retry_after(&headers), read, "{text}");
        }
        let mut headers = HeaderMap::new();
        let date = "Fri, 31 Dec 2100 00:00:00 GMT".parse().expect("a value");
        headers.insert(header::RETRY_AFTER, date);
        assert!(parse_retry_after(&headers).is_some_and(|wait| wait > far));
    }
}
