//! Requests to the service: where they go, with the token or without, how often, for how long.

use std::cell::OnceCell;
use std::io::Read;
use std::net::IpAddr;
use std::time::Duration;

use ureq::http::{HeaderMap, StatusCode, Uri, header};
use ureq::tls::{Certificate, RootCerts, TlsConfig, TlsProvider};
use ureq::{Agent, Body, Timeout};

use crate::compose::github::error::GitHubError;
use crate::compose::github::fault::{Fault, RateLimit};
use crate::compose::github::token::Token;
use crate::compose::github::{Patience, Progress};
use crate::kernel::name_lookup;
use crate::spec::path::escape;

/// How often one request is tried.
const TRIES_MAX: u32 = 4;
/// How many redirects are followed.
const REDIRECTS_MAX: u32 = 5;
/// Largest JSON answer: some ten thousand references.
const JSON_BYTES_MAX: u64 = 4 << 20;

/// The service at one base URL.
pub(super) struct Service<'caller> {
    base_url: String,
    base: Uri,
    token: Option<Token>,
    patience: Patience,
    progress: &'caller dyn Fn(&Progress<'_>),
    agent: OnceCell<Agent>,
}

/// The head of an answer, and its body not read yet.
pub(super) struct Answer {
    pub(super) status: StatusCode,
    pub(super) headers: HeaderMap,
    body: Body,
}

impl<'caller> Service<'caller> {
    /// The service at `base_url`.
    ///
    /// # Errors
    /// [`GitHubError::Setting`]: no URL of http or https, or a token that would go over plain
    /// HTTP to another machine.
    pub(super) fn new(
        base_url: &str,
        token: Option<Token>,
        patience: Patience,
        progress: &'caller dyn Fn(&Progress<'_>),
    ) -> Result<Self, GitHubError> {
        let refused = |problem: String| GitHubError::Setting {
            setting: "github.base_url",
            problem,
        };
        let base_url = base_url.trim_end_matches('/').to_owned();
        let shown = escape(base_url.as_bytes());
        let expected = "expected https://HOST[/PATH] without a user name, a query or a fragment";
        let base = plain_url(&base_url)
            .filter(|base| base.query().is_none() && !base_url.contains('#'))
            .ok_or_else(|| refused(format!("found `{shown}`, {expected}")))?;
        if token.is_some() && !is_private_way(&base) {
            return Err(refused(format!(
                "found `{shown}`, expected https://: a token never goes over plain HTTP to \
                 another machine"
            )));
        }
        Ok(Self {
            base_url,
            base,
            token,
            patience,
            progress,
            agent: OnceCell::new(),
        })
    }

    pub(super) fn base_url(&self) -> &str {
        &self.base_url
    }

    pub(super) fn has_token(&self) -> bool {
        self.token.is_some()
    }

    pub(super) fn tell(&self, progress: &Progress<'_>) {
        (self.progress)(progress);
    }

    /// Does `once` until it succeeds, fails for good, or [`TRIES_MAX`] are used up.
    ///
    /// # Errors
    /// What `once` fails with; [`GitHubError::Unavailable`] and [`GitHubError::RateLimited`]
    /// with the last cause, where it may pass but did not.
    pub(super) fn tried<T>(
        &self,
        path: &str,
        mut once: impl FnMut() -> Result<T, Fault>,
    ) -> Result<T, GitHubError> {
        let mut delay = self.patience.first_delay;
        for tries in 1.. {
            let (cause, wait, limit) = match once() {
                Ok(done) => return Ok(done),
                Err(Fault::Final(error)) => return Err(*error),
                Err(Fault::Unusable(cause)) => return Err(self.unavailable(path, tries, cause)),
                Err(Fault::Passing { cause, wait, limit }) => (cause, wait, limit),
            };
            let is_too_long = wait.is_some_and(|wait| self.patience.wait_max < wait);
            if TRIES_MAX <= tries || is_too_long {
                return Err(match limit {
                    Some(RateLimit { status, until }) => GitHubError::RateLimited {
                        request: self.shown(path),
                        status: status.as_u16(),
                        until,
                        with_token: self.has_token(),
                    },
                    None => self.unavailable(path, tries, cause),
                });
            }
            // What the service asks for counts; less than the delay would only be refused again.
            let pause = wait.map_or(delay, |wait| wait.max(delay));
            self.tell(&Progress::Waiting {
                cause: &cause,
                pause,
            });
            std::thread::sleep(pause);
            delay = delay.saturating_mul(2);
        }
        Err(self.unavailable(path, TRIES_MAX, String::new()))
    }

    fn unavailable(&self, path: &str, tries: u32, cause: String) -> GitHubError {
        GitHubError::Unavailable {
            request: self.shown(path),
            tries,
            cause,
        }
    }

    /// The request as messages show it.
    fn shown(&self, path: &str) -> String {
        format!("GET {}{path}", self.base_url)
    }

    /// One request, redirects followed. Every answer that is no redirect and neither a refusal
    /// of the caller nor a failure of the service is returned, 404 among them.
    ///
    /// # Errors
    /// [`Fault`].
    pub(super) fn get(&self, path: &str, accept: &str) -> Result<Answer, Fault> {
        let mut url = plain_url(&format!("{}{path}", self.base_url))
            .ok_or_else(|| Fault::Unusable("the URL cannot be written".to_owned()))?;
        for _ in 0..=REDIRECTS_MAX {
            let answer = self.one(&url, accept)?;
            if !is_redirect(answer.status) {
                return self.judged(path, answer);
            }
            url = next(&url, &answer.headers)?;
        }
        Err(Fault::Unusable(format!(
            "more than {REDIRECTS_MAX} redirects, the last one to {}",
            origin_shown(&url)
        )))
    }

    fn one(&self, url: &Uri, accept: &str) -> Result<Answer, Fault> {
        let mut request = self
            .agent()?
            .get(url.clone())
            .header(header::ACCEPT, accept)
            .header("X-GitHub-Api-Version", "2022-11-28");
        if let Some(token) = &self.token
            && is_same_origin(url, &self.base)
        {
            request = request.header(header::AUTHORIZATION, token.header());
        }
        let response = request.call().map_err(|error| self.fault(&error))?;
        let (head, body) = response.into_parts();
        Ok(Answer {
            status: head.status,
            headers: head.headers,
            body,
        })
    }

    /// Sorts out answers that mean the same for every request.
    fn judged(&self, path: &str, answer: Answer) -> Result<Answer, Fault> {
        let status = answer.status;
        let wait = retry_after(&answer.headers);
        let is_used_up = header_number(&answer.headers, "x-ratelimit-remaining") == Some(0);
        let is_limited = status == StatusCode::TOO_MANY_REQUESTS
            || (status == StatusCode::FORBIDDEN && (is_used_up || wait.is_some()));
        if is_limited {
            let reset = header_number(&answer.headers, "x-ratelimit-reset");
            return Err(Fault::rate_limited(
                status,
                wait,
                reset.filter(|_| is_used_up),
            ));
        }
        if matches!(status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN) {
            return Err(GitHubError::Unauthorized {
                request: self.shown(path),
                token: self.token.as_ref().map(|token| token.origin().to_owned()),
            }
            .into());
        }
        if status.is_server_error() || status == StatusCode::REQUEST_TIMEOUT {
            return Err(Fault::Passing {
                cause: format!("the answer was {}", status.as_u16()),
                wait,
                limit: None,
            });
        }
        Ok(answer)
    }

    fn agent(&self) -> Result<&Agent, Fault> {
        if let Some(agent) = self.agent.get() {
            return Ok(agent);
        }
        let patience = self.patience;
        let config = Agent::config_builder()
            .http_status_as_error(false)
            // Redirects are followed here: the token must not go with them.
            .max_redirects(0)
            // From the environment it would see the token wherever the base URL is plain HTTP.
            .proxy(None)
            .user_agent(concat!("runner/", env!("CARGO_PKG_VERSION")))
            .tls_config(self.tls()?)
            .timeout_resolve(Some(patience.connect))
            .timeout_connect(Some(patience.connect))
            .timeout_recv_response(Some(patience.head))
            .timeout_per_read(Some(patience.stall))
            .timeout_per_write(Some(patience.stall))
            .timeout_per_call(Some(patience.whole))
            .build();
        // A C library that did not take it goes by nsswitch.conf, which mostly says the same.
        let _taken = name_lookup::only_files_and_dns();
        Ok(self.agent.get_or_init(|| config.new_agent()))
    }

    fn tls(&self) -> Result<TlsConfig, Fault> {
        let is_plain = self.base.scheme_str() == Some("http");
        let found = match is_plain {
            true => Vec::new(),
            false => rustls_native_certs::load_native_certs().certs,
        };
        if found.is_empty() && !is_plain {
            return Err(GitHubError::Setting {
                setting: "github.base_url",
                problem: "no certificate authority is known to this host, so https:// cannot be \
                          trusted; install ca-certificates, or name a file with SSL_CERT_FILE"
                    .to_owned(),
            }
            .into());
        }
        let roots: Vec<Certificate<'static>> = found
            .iter()
            .map(|certificate| Certificate::from_der(certificate).to_owned())
            .collect();
        Ok(TlsConfig::builder()
            .provider(TlsProvider::Rustls)
            .root_certs(RootCerts::from(roots))
            .unversioned_rustls_crypto_provider(std::sync::Arc::new(
                rustls::crypto::ring::default_provider(),
            ))
            .build())
    }

    /// What an error of the HTTP library means. Its own text is used only where it cannot hold a
    /// URL: that of a redirect may be a credential.
    fn fault(&self, error: &ureq::Error) -> Fault {
        let passing = |cause: String| Fault::Passing {
            cause,
            wait: None,
            limit: None,
        };
        match error {
            ureq::Error::Timeout(which) => passing(self.timed_out(*which)),
            ureq::Error::Io(error) if error.kind() == std::io::ErrorKind::InvalidData => {
                Fault::Unusable(format!("TLS: {error}"))
            }
            ureq::Error::Io(error) => match timeout_inside(error) {
                Some(which) => passing(self.timed_out(which)),
                None => passing(error.to_string()),
            },
            ureq::Error::HostNotFound => passing("the host has no address".to_owned()),
            ureq::Error::ConnectionFailed => passing("no connection".to_owned()),
            ureq::Error::Protocol(error) => passing(format!("no HTTP: {error}")),
            ureq::Error::Rustls(error) => Fault::Unusable(format!("TLS: {error}")),
            ureq::Error::Tls(error) => Fault::Unusable(format!("TLS: {error}")),
            ureq::Error::LargeResponseHeader(found, limit) => Fault::Unusable(format!(
                "the head of the answer has {found} bytes, expected at most {limit}"
            )),
            _ => Fault::Unusable("the request could not be made".to_owned()),
        }
    }

    fn timed_out(&self, which: Timeout) -> String {
        let patience = &self.patience;
        match which {
            Timeout::Resolve => format!("no address within {:?}", patience.connect),
            Timeout::Connect => format!("no connection within {:?}", patience.connect),
            Timeout::RecvResponse => format!("no answer within {:?}", patience.head),
            Timeout::PerRead | Timeout::PerWrite => {
                format!("nothing was sent or received for {:?}", patience.stall)
            }
            _ => format!("the request took longer than {:?}", patience.whole),
        }
    }

    /// The JSON document of an answer.
    ///
    /// # Errors
    /// [`Fault`]: another type of content, too large, no JSON, or the body ends too early.
    pub(super) fn json(&self, mut answer: Answer) -> Result<serde_json::Value, Fault> {
        expect_content(&answer.headers, &["json"], "a JSON document")?;
        let bytes = answer
            .body
            .with_config()
            .limit(JSON_BYTES_MAX)
            .read_to_vec()
            .map_err(|error| match error {
                ureq::Error::BodyExceedsLimit(_) => {
                    Fault::Unusable(format!("the answer has more than {JSON_BYTES_MAX} bytes"))
                }
                other => self.fault(&other),
            })?;
        serde_json::from_slice(&bytes)
            .map_err(|error| Fault::Unusable(format!("the answer is no JSON document: {error}")))
    }

    /// Copies the body of an archive to `out`; how many bytes it has.
    ///
    /// # Errors
    /// [`Fault`]: another type of content, `too_large` for more than `bytes_max`, the body ends
    /// too early, or what `write` says.
    pub(super) fn archive(
        &self,
        answer: Answer,
        bytes_max: u64,
        too_large: &dyn Fn() -> GitHubError,
        write: &mut dyn FnMut(&[u8]) -> Result<(), GitHubError>,
    ) -> Result<u64, Fault> {
        expect_content(
            &answer.headers,
            &["gzip", "octet-stream", "x-tar", "x-compressed"],
            "a gzip-compressed tar",
        )?;
        let stated = answer.body.content_length();
        if stated.is_some_and(|stated| bytes_max < stated) {
            return Err(too_large().into());
        }
        let mut source = answer.body.into_with_config().limit(u64::MAX).reader();
        let mut buffer = vec![0; 64 * 1024];
        let mut bytes: u64 = 0;
        loop {
            let count = match source.read(&mut buffer) {
                Ok(0) => return Ok(bytes),
                Ok(count) => count,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(self.fault(&ureq::Error::from(error))),
            };
            bytes = bytes.saturating_add(count as u64);
            if bytes_max < bytes {
                return Err(too_large().into());
            }
            write(&buffer[..count])?;
            self.tell(&Progress::Receiving { bytes, stated });
        }
    }
}

/// A time-out of the library that came through [`Read`].
fn timeout_inside(error: &std::io::Error) -> Option<Timeout> {
    match error.get_ref()?.downcast_ref::<ureq::Error>()? {
        ureq::Error::Timeout(which) => Some(*which),
        _ => None,
    }
}

/// A URL of http or https with a host, and without a user name.
fn plain_url(text: &str) -> Option<Uri> {
    let url: Uri = text.parse().ok()?;
    let is_http = matches!(url.scheme_str(), Some("http" | "https"));
    let is_plain = url
        .authority()
        .is_some_and(|authority| !authority.as_str().contains('@'));
    let has_host = url.host().is_some_and(|host| !host.is_empty());
    (is_http && is_plain && has_host).then_some(url)
}

/// Whether nobody on the network can read along: TLS, or this machine.
fn is_private_way(url: &Uri) -> bool {
    let host = url.host().unwrap_or_default();
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    let is_here = bare == "localhost" || bare.parse().is_ok_and(|ip: IpAddr| ip.is_loopback());
    url.scheme_str() == Some("https") || is_here
}

fn is_same_origin(one: &Uri, other: &Uri) -> bool {
    let port = |url: &Uri| match url.scheme_str() {
        Some("https") => url.port_u16().unwrap_or(443),
        _ => url.port_u16().unwrap_or(80),
    };
    let host = |url: &Uri| url.host().unwrap_or_default().to_ascii_lowercase();
    one.scheme_str() == other.scheme_str() && host(one) == host(other) && port(one) == port(other)
}

fn is_redirect(status: StatusCode) -> bool {
    matches!(status.as_u16(), 301 | 302 | 303 | 307 | 308)
}

/// Where a redirect leads. Its path and query may be a credential: messages show the host only.
fn next(from: &Uri, headers: &HeaderMap) -> Result<Uri, Fault> {
    let location = headers
        .get(header::LOCATION)
        .and_then(|value| value.to_str().ok())
        .unwrap_or_default();
    let scheme = from.scheme_str().unwrap_or_default();
    let origin = format!(
        "{scheme}://{}",
        from.authority().map_or("", |authority| authority.as_str())
    );
    // The first segment of a relative reference holds no `:` (RFC 3986, 4.2).
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
    let to = plain_url(text)
        .filter(|_| !location.is_empty())
        .ok_or_else(|| Fault::Unusable("a redirect leads nowhere".to_owned()))?;
    if from.scheme_str() == Some("https") && !is_private_way(&to) {
        return Err(Fault::Unusable(format!(
            "a redirect leads from https:// to {}",
            origin_shown(&to)
        )));
    }
    Ok(to)
}

fn origin_shown(url: &Uri) -> String {
    let authority = url.authority().map_or("", |authority| authority.as_str());
    let scheme = url.scheme_str().unwrap_or_default();
    escape(format!("{scheme}://{authority}").as_bytes())
}

fn expect_content(headers: &HeaderMap, known: &[&str], expected: &str) -> Result<(), Fault> {
    let Some(found) = headers.get(header::CONTENT_TYPE) else {
        return Ok(());
    };
    let found = escape(found.as_bytes()).to_ascii_lowercase();
    if known.iter().any(|known| found.contains(known)) {
        return Ok(());
    }
    let found: String = found.chars().take(60).collect();
    Err(Fault::Unusable(format!(
        "the answer is of the type `{found}`, expected {expected}"
    )))
}

fn header_number(headers: &HeaderMap, name: &str) -> Option<u64> {
    headers.get(name)?.to_str().ok()?.trim().parse().ok()
}

/// `Retry-After` in seconds; its other form, a date, is as good as none.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    header_number(headers, "retry-after").map(Duration::from_secs)
}

#[cfg(test)]
mod tests {
    use super::*;
    use ureq::http::HeaderValue;

    fn led(from: &str, location: &str) -> Result<String, Fault> {
        let mut headers = HeaderMap::new();
        let location = HeaderValue::from_str(location).expect("a header");
        headers.insert(header::LOCATION, location);
        let from = plain_url(from).expect("a URL");
        next(&from, &headers).map(|to| to.to_string())
    }

    #[test]
    fn a_redirect_leads_where_a_browser_would_go() {
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
            assert_eq!(led(from, location).expect("leads"), to, "{location}");
        }
    }

    #[test]
    fn a_redirect_away_from_tls_or_from_http_leads_nowhere() {
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
            assert!(led(from, location).is_err(), "{location}");
        }
        assert!(led("http://a.example.org/", "http://b.example.org/").is_ok());
    }

    #[test]
    fn one_origin_is_one_scheme_host_and_port() {
        let same = |one: &str, other: &str| {
            let url = |text| plain_url(text).expect("a URL");
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
