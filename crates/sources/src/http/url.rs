//! URLs: validation, origins, redirects.

use std::net::IpAddr;

use ureq::http::{HeaderMap, StatusCode, Uri, header};

use crate::http::{AttemptError, Response};
use spec::path::escape;

const REDIRECTS_MAX: u32 = 5;

/// Parses an http or https URL with a host. A URL with user information is refused.
#[must_use]
pub(crate) fn parse_url(text: &str) -> Option<Uri> {
    let url: Uri = text.parse().ok()?;
    let is_http = matches!(url.scheme_str(), Some("http" | "https"));
    let is_plain = url
        .authority()
        .is_some_and(|authority| !authority.as_str().contains('@'));
    let has_host = url.host().is_some_and(|host| !host.is_empty());
    (is_http && is_plain && has_host).then_some(url)
}

pub(crate) fn request_url<E>(text: &str) -> Result<Uri, AttemptError<E>> {
    parse_url(text).ok_or_else(|| AttemptError::Unusable("the URL is invalid".to_owned()))
}

/// Returns the host, without the brackets of an IPv6 address.
#[must_use]
pub(crate) fn bare_host(url: &Uri) -> &str {
    let host = url.host().unwrap_or_default();
    host.trim_start_matches('[').trim_end_matches(']')
}

/// Returns the port, or the default one of the scheme.
#[must_use]
pub(crate) fn port(url: &Uri) -> u16 {
    let default = match url.scheme_str() {
        Some("https") => 443,
        _ => 80,
    };
    url.port_u16().unwrap_or(default)
}

/// Whether others on the network cannot read the traffic.
#[must_use]
pub(crate) fn is_tls_or_loopback(url: &Uri) -> bool {
    let host = bare_host(url);
    let is_loopback = host == "localhost" || host.parse().is_ok_and(|ip: IpAddr| ip.is_loopback());
    url.scheme_str() == Some("https") || is_loopback
}

/// Whether scheme, host and port are equal, so that credentials may be sent.
#[must_use]
pub(crate) fn is_same_origin(one: &Uri, other: &Uri) -> bool {
    let host = |url: &Uri| url.host().unwrap_or_default().to_ascii_lowercase();
    one.scheme_str() == other.scheme_str() && host(one) == host(other) && port(one) == port(other)
}

fn is_redirect(status: StatusCode) -> bool {
    matches!(status.as_u16(), 301 | 302 | 303 | 307 | 308)
}

/// Resolves the `Location` header. Path and query may be a credential, so messages show the origin
/// only.
///
/// # Errors
/// The reason for a refusal, such as a redirect from TLS to plain HTTP on another machine.
pub(crate) fn resolve_location(from: &Uri, headers: &HeaderMap) -> Result<Uri, String> {
    let location = headers
        .get(header::LOCATION)
        .and_then(|value| value.to_str().ok())
        .unwrap_or_default();
    let scheme = from.scheme_str().unwrap_or_default();
    let origin = format!(
        "{scheme}://{}",
        from.authority().map_or("", |authority| authority.as_str())
    );
    // The first segment of a relative reference contains no `:` (RFC 3986, 4.2).
    let is_absolute = location
        .split(['/', '?', '#'])
        .next()
        .is_some_and(|segment| segment.contains(':'));
    let text = if is_absolute {
        location.to_owned()
    } else if location.starts_with("//") {
        format!("{scheme}:{location}")
    } else if location.starts_with('/') {
        format!("{origin}{location}")
    } else {
        let folder = from.path().rfind('/').map_or("", |at| &from.path()[..at]);
        format!("{origin}{folder}/{location}")
    };
    let text = text.split('#').next().unwrap_or_default();
    let to = parse_url(text)
        .filter(|_| !location.is_empty())
        .ok_or_else(|| "the `Location` is not a usable http or https URL".to_owned())?;
    if from.scheme_str() == Some("https") && !is_tls_or_loopback(&to) {
        return Err(format!(
            "a redirect from https:// to {} is refused",
            format_origin(&to)
        ));
    }
    Ok(to)
}

/// Calls `send` for `url`, then for each redirect. Returns the last URL and its response.
pub(crate) fn follow_redirects<E>(
    mut url: Uri,
    mut send: impl FnMut(&Uri) -> Result<Response, AttemptError<E>>,
) -> Result<(Uri, Response), AttemptError<E>> {
    for _ in 0..=REDIRECTS_MAX {
        let response = send(&url)?;
        if !is_redirect(response.status) {
            return Ok((url, response));
        }
        url = resolve_location(&url, &response.headers).map_err(AttemptError::Unusable)?;
    }
    Err(AttemptError::Unusable(format!(
        "more than {REDIRECTS_MAX} redirects, the last one to {}",
        format_origin(&url)
    )))
}

/// Formats scheme, host and port, escaped.
#[must_use]
pub(crate) fn format_origin(url: &Uri) -> String {
    let authority = url.authority().map_or("", |authority| authority.as_str());
    let scheme = url.scheme_str().unwrap_or_default();
    escape(format!("{scheme}://{authority}").as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use ureq::http::HeaderValue;

    fn resolve(from: &str, location: &str) -> Result<String, String> {
        let mut headers = HeaderMap::new();
        let location = HeaderValue::from_str(location).expect("a header");
        headers.insert(header::LOCATION, location);
        let from = parse_url(from).expect("a URL");
        resolve_location(&from, &headers).map(|to| to.to_string())
    }

    #[test]
    fn a_location_is_resolved_as_in_a_browser() {
        let from = "https://a.example.org/x/y?z";
        for (location, to) in [
            (
                "https://b.example.org/p?q=1#f",
                "https://b.example.org/p?q=1",
            ),
            ("//b.example.org:8443/p", "https://b.example.org:8443/p"),
            ("/p?q", "https://a.example.org/p?q"),
            ("p", "https://a.example.org/x/p"),
            ("p?a:b", "https://a.example.org/x/p?a:b"),
            ("http://127.0.0.1:80/p", "http://127.0.0.1:80/p"),
        ] {
            assert_eq!(resolve(from, location).expect("resolved"), to, "{location}");
        }
    }

    #[test]
    fn a_redirect_to_plain_http_or_to_another_scheme_is_refused() {
        let from = "https://a.example.org/x";
        for location in [
            "http://a.example.org/x",
            "http://b.example.org/x",
            "http://127.0.0.1.example.org/",
            "ftp://b.example.org/",
            "file:///etc/passwd",
            "https://user:word@b.example.org/",
            "https://",
            "",
        ] {
            assert!(resolve(from, location).is_err(), "{location}");
        }
        assert!(resolve("http://a.example.org/", "http://b.example.org/").is_ok());
    }

    #[test]
    fn an_origin_is_scheme_host_and_port() {
        let same = |one: &str, other: &str| {
            let url = |text| parse_url(text).expect("a URL");
            is_same_origin(&url(one), &url(other))
        };
        assert!(same(
            "https://a.example.org/x",
            "https://A.example.org:443/y"
        ));
        assert!(same("http://127.0.0.1:80", "http://127.0.0.1/"));
        for other in [
            "http://a.example.org",
            "https://a.example.org:444",
            "https://b.example.org",
            "https://a.example.org.evil",
        ] {
            assert!(!same("https://a.example.org", other), "{other}");
        }
    }
}
