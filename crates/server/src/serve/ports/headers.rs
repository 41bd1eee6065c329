//! Which headers pass between a client and a server in a sandbox.

use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, header};

/// Of one connection (RFC 9110, 7.6.1), or answered by this server.
const OF_CONNECTION: [&str; 9] = [
    "connection",
    "expect",
    "keep-alive",
    "proxy-authenticate",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// What a client sends to this server, and a browser to each port of this host: not for a stranger.
const CREDENTIALS: [&str; 7] = [
    "authorization",
    "cookie",
    "e2b-sandbox-id",
    "e2b-sandbox-port",
    "proxy-authorization",
    "x-access-token",
    "x-api-key",
];

/// What a browser or another client would take for a word of this server about all of its paths, or about this host.
const OF_ORIGIN: [&str; 11] = [
    "alt-svc",
    "authentication-info",
    "clear-site-data",
    "nel",
    "report-to",
    "reporting-endpoints",
    "service-worker-allowed",
    "set-cookie",
    "set-cookie2",
    "strict-transport-security",
    "www-authenticate",
];

/// Whether the client asks for another protocol.
pub(super) fn upgrade(method: &Method, headers: &HeaderMap) -> Option<HeaderValue> {
    let is_asked = tokens(headers, &header::CONNECTION).any(|token| token == "upgrade");
    let protocol = headers.get(header::UPGRADE).filter(|_| is_asked)?;
    (method == Method::GET).then(|| protocol.clone())
}

fn tokens(headers: &HeaderMap, name: &HeaderName) -> impl Iterator<Item = String> {
    let values = headers.get_all(name).iter();
    let values = values.filter_map(|value| value.to_str().ok());
    values.flat_map(|value| {
        let tokens = value.split(',');
        tokens.map(|token| token.trim().to_ascii_lowercase())
    })
}

fn remove(headers: &mut HeaderMap, names: &[&str]) {
    let named: Vec<String> = tokens(headers, &header::CONNECTION).collect();
    for name in named
        .iter()
        .map(String::as_str)
        .chain(names.iter().copied())
    {
        headers.remove(name);
    }
}

/// What of a request goes to the server in the sandbox, on a connection for this request alone.
pub(super) fn of_request(headers: &mut HeaderMap, port: u16, upgrade: Option<&HeaderValue>) {
    // Its length is that of its body, whatever `Connection` names.
    let length = headers.get(header::CONTENT_LENGTH).cloned();
    remove(headers, &[&OF_CONNECTION[..], &CREDENTIALS].concat());
    headers.extend(length.map(|length| (header::CONTENT_LENGTH, length)));
    let host = HeaderValue::try_from(format!("localhost:{port}"));
    headers.remove(header::HOST);
    headers.extend(host.ok().map(|host| (header::HOST, host)));
    let word = match upgrade {
        Some(_) => "upgrade",
        None => "close",
    };
    headers.insert(header::CONNECTION, HeaderValue::from_static(word));
    headers.extend(upgrade.map(|protocol| (header::UPGRADE, protocol.clone())));
}

/// # Errors
/// Recipients may take different lengths for the length of the body.
pub(super) fn check_length(headers: &HeaderMap) -> Result<(), &'static str> {
    let count = |name| headers.get_all(name).iter().count();
    let codings = count(header::TRANSFER_ENCODING);
    let coding = headers.get(header::TRANSFER_ENCODING);
    let is_chunked = coding.is_some_and(|one| one.as_bytes().eq_ignore_ascii_case(b"chunked"));
    match (codings, count(header::CONTENT_LENGTH)) {
        (0, 0 | 1) => Ok(()),
        (1, 0) if is_chunked => Ok(()),
        _ => Err("the length of its body is ambiguous"),
    }
}

/// What of an answer goes to the client. `prefix` is the path of the port.
pub(super) fn of_answer(headers: &mut HeaderMap, port: u16, prefix: &str) {
    remove(headers, &[&OF_CONNECTION[..], &OF_ORIGIN].concat());
    if let Some(location) = headers.remove(header::LOCATION) {
        let location = location.to_str().ok();
        let moved = location.and_then(|location| move_location(location, port, prefix));
        let moved = moved.and_then(|moved| HeaderValue::try_from(moved).ok());
        headers.extend(moved.map(|moved| (header::LOCATION, moved)));
    }
    // A page has an origin of its own, and no scripts. Beside a policy of its own both count.
    headers.append(
        header::CONTENT_SECURITY_POLICY,
        HeaderValue::from_static("sandbox"),
    );
}

/// A redirect within the port. A client that follows another one would send its token and its body to a path
/// that a stranger chose.
fn move_location(location: &str, port: u16, prefix: &str) -> Option<String> {
    let own = format!("http://localhost:{port}");
    let path = location.strip_prefix(&own).unwrap_or(location);
    let end = path.find(['?', '#']).unwrap_or(path.len());
    let segments = path[..end].to_ascii_lowercase().replace("%2e", ".");
    let mut segments = segments.split(['/', '\\', ';']);
    let is_within = path.starts_with('/')
        && !path[1..].starts_with(['/', '\\'])
        && !segments.any(|segment| matches!(segment, "." | ".."))
        && !path.contains(|character: char| character.is_ascii_control());
    is_within.then(|| format!("{prefix}{path}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(lines: &[(&'static str, &'static str)]) -> HeaderMap {
        let pairs = lines.iter().map(|(name, value)| {
            (
                HeaderName::from_static(name),
                HeaderValue::from_static(value),
            )
        });
        let mut map = HeaderMap::new();
        for (name, value) in pairs {
            map.append(name, value);
        }
        map
    }

    fn names(map: &HeaderMap) -> Vec<&str> {
        map.keys().map(HeaderName::as_str).collect()
    }

    #[test]
    fn headers_of_a_connection_credentials_and_words_about_the_origin_do_not_pass() {
        let mut request = map(&[
            ("host", "127.0.0.1:8080"),
            ("authorization", "Bearer x"),
            ("cookie", "a=b"),
            ("connection", "X-Secret, content-length"),
            ("connection", "keep-alive"),
            ("x-secret", "1"),
            ("x-access-token", "1"),
            ("transfer-encoding", "chunked"),
            ("content-length", "3"),
            ("accept", "*/*"),
        ]);
        of_request(&mut request, 8000, None);
        let mut passed = names(&request);
        passed.sort_unstable();
        assert_eq!(passed, ["accept", "connection", "content-length", "host"]);
        assert_eq!(request["host"], "localhost:8000");
        assert_eq!(request["connection"], "close");
        let mut answer = map(&[
            ("set-cookie", "a=b"),
            ("clear-site-data", "\"*\""),
            ("content-security-policy", "default-src 'self'"),
            ("connection", "x-gone"),
            ("x-gone", "1"),
            ("location", "/v1/sandboxes/other"),
            ("x-kept", "1"),
        ]);
        of_answer(&mut answer, 80, "/p");
        let mut kept = names(&answer);
        kept.sort_unstable();
        assert_eq!(kept, ["content-security-policy", "location", "x-kept"]);
        assert_eq!(answer["location"], "/p/v1/sandboxes/other");
        let policies = answer.get_all(header::CONTENT_SECURITY_POLICY);
        assert_eq!(policies.iter().count(), 2);
    }

    #[test]
    fn a_body_has_one_length() {
        let (coding, length) = ("transfer-encoding", "content-length");
        for lines in [&[][..], &[(length, "3")], &[(coding, "Chunked")]] {
            assert_eq!(check_length(&map(lines)), Ok(()), "{lines:?}");
        }
        for lines in [
            &[(length, "3"), (length, "3")][..],
            &[(coding, "chunked"), (length, "3")],
            &[(coding, "chunked"), (coding, "chunked")],
            &[(coding, "gzip, chunked")],
            &[(coding, "identity")],
        ] {
            assert!(check_length(&map(lines)).is_err(), "{lines:?}");
        }
    }

    #[test]
    fn a_redirect_stays_within_the_port() {
        for (location, moved) in [
            ("/", "/p/"),
            ("/a/b?c=/../d#e", "/p/a/b?c=/../d#e"),
            ("http://localhost:80/a", "/p/a"),
        ] {
            assert_eq!(move_location(location, 80, "/p").as_deref(), Some(moved));
        }
        for location in [
            "",
            "a",
            "../a",
            "//evil.example/",
            "/\\evil.example",
            "/../../x",
            "/a/%2E%2e/%2e./x",
            "/a/..\\x",
            "/a/..;/x",
            "/.",
            "http://localhost:8080/v1",
            "http://localhost:80",
            "http://localhost:80@evil.example/",
            "http://localhost:80//evil.example/",
            "https://evil.example/",
            "javascript:alert(1)",
            "/a\tb",
        ] {
            assert_eq!(move_location(location, 80, "/p"), None, "{location}");
        }
    }
}
