//! Requests to the service: token, retries, time-outs.

use std::time::Duration;

use rustls::pki_types::CertificateDer;
use ureq::http::{Request, StatusCode, Uri, header};

use crate::answers;
use crate::github::Timeouts;
use crate::github::error::{AttemptError, GitHubError};
use crate::github::token::Token;
use crate::http::url::{
    follow_redirects, is_same_origin, is_tls_or_loopback, parse_url, request_url,
};
use crate::http::{
    Cancellation, Client, NO_ROOTS, Response, RetryError, check_content_type, check_retryable,
    load_host_roots, parse_number, parse_retry_after, retry,
};
use crate::progress::Progress;
use spec::path::escape;

/// Largest JSON response, in bytes: some ten thousand references.
const JSON_BYTES_MAX: u64 = 4 << 20;

pub(super) struct Service {
    base_url: String,
    base: Uri,
    token: Option<Token>,
    client: Client,
}

impl Service {
    /// Creates a client of `base_url`.
    ///
    /// # Errors
    /// [`GitHubError::Setting`]: not an http or https URL, or a token over plain HTTP to another
    /// machine.
    pub(super) fn new(
        base_url: &str,
        token: Option<Token>,
        timeouts: Timeouts,
    ) -> Result<Self, GitHubError> {
        let refused = |problem: String| GitHubError::Setting {
            setting: "github.base_url",
            problem,
        };
        let base_url = base_url.trim_end_matches('/').to_owned();
        let found = escape(base_url.as_bytes());
        let expected = "expected https://HOST[/PATH] without a user name, a query or a fragment";
        let base = parse_url(&base_url)
            .filter(|base| base.query().is_none() && !base_url.contains('#'))
            .ok_or_else(|| refused(format!("found `{found}`, {expected}")))?;
        if token.is_some() && !is_tls_or_loopback(&base) {
            return Err(refused(format!(
                "found `{found}`, expected https://: a token is not sent over plain HTTP to \
                 another machine"
            )));
        }
        Ok(Self {
            base_url,
            base,
            token,
            client: Client::new(timeouts, Cancellation::default()),
        })
    }

    pub(super) fn base_url(&self) -> &str {
        &self.base_url
    }

    pub(super) fn has_token(&self) -> bool {
        self.token.is_some()
    }

    /// Retries `once`.
    ///
    /// # Errors
    /// The error of `once`; [`GitHubError::Unavailable`] or [`GitHubError::RateLimited`] with the
    /// last cause, if a temporary error persisted.
    pub(super) fn retry<T>(
        &self,
        path: &str,
        mut once: impl FnMut() -> Result<T, AttemptError>,
    ) -> Result<T, GitHubError> {
        let mut pause = |cause: &str, pause| {
            wait(cause, pause);
            Ok(())
        };
        retry(self.client.timeouts(), &mut pause, &mut once).map_err(|error| match error {
            RetryError::Final(error) => *error,
            RetryError::RateLimited(limit) => GitHubError::RateLimited {
                request: self.describe_request(path),
                status: limit.status,
                until: limit.until,
                with_token: self.has_token(),
            },
            RetryError::Unusable { tries, cause } | RetryError::Unavailable { tries, cause } => {
                GitHubError::Unavailable {
                    request: self.describe_request(path),
                    tries,
                    cause,
                }
            }
        })
    }

    fn describe_request(&self, path: &str) -> String {
        format!("GET {}{path}", self.base_url)
    }

    /// Sends one request and follows redirects. Returns any other response, such as 404, unless it
    /// refuses the caller or reports a server failure.
    pub(super) fn get(&self, path: &str, accept: &str) -> Result<Response, AttemptError> {
        let url = request_url(&format!("{}{path}", self.base_url))?;
        let (_, response) = follow_redirects(url, |url| self.send(url, accept))?;
        self.check_status(path, response)
    }

    fn send(&self, url: &Uri, accept: &str) -> Result<Response, AttemptError> {
        let mut request = Request::get(url.clone())
            .header(header::ACCEPT, accept)
            .header("X-GitHub-Api-Version", "2022-11-28");
        if let Some(token) = &self.token
            && is_same_origin(url, &self.base)
        {
            request = request.header(header::AUTHORIZATION, token.header());
        }
        let response = self.client.send(request.body(None), || self.roots())?;
        Ok(response?)
    }

    fn check_status(&self, path: &str, response: Response) -> Result<Response, AttemptError> {
        let status = response.status;
        let wait = parse_retry_after(&response.headers);
        let is_exhausted = parse_number(&response.headers, "x-ratelimit-remaining") == Some(0);
        let is_limited = status == StatusCode::TOO_MANY_REQUESTS
            || (status == StatusCode::FORBIDDEN && (is_exhausted || wait.is_some()));
        if is_limited {
            let reset = parse_number(&response.headers, "x-ratelimit-reset");
            return Err(AttemptError::rate_limited(
                status,
                wait,
                reset.filter(|_| is_exhausted),
            ));
        }
        if matches!(status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN) {
            return Err(GitHubError::Unauthorized {
                request: self.describe_request(path),
                token: self.token.as_ref().map(|token| token.origin().to_owned()),
            }
            .into());
        }
        check_retryable(&response)?;
        Ok(response)
    }

    fn roots(&self) -> Result<Vec<CertificateDer<'static>>, AttemptError> {
        if self.base.scheme_str() == Some("http") {
            return Ok(Vec::new());
        }
        let roots = load_host_roots();
        if roots.is_empty() {
            return Err(GitHubError::Setting {
                setting: "github.base_url",
                problem: NO_ROOTS.to_owned(),
            }
            .into());
        }
        Ok(roots)
    }

    /// Parses a JSON response.
    ///
    /// # Errors
    /// [`AttemptError`]: wrong content type, too large, invalid JSON, or truncated.
    pub(super) fn json(&self, response: Response) -> Result<serde_json::Value, AttemptError> {
        check_content_type(&response.headers, &["json"], "a JSON document")
            .map_err(AttemptError::Unusable)?;
        let bytes = response.bytes(&self.client, JSON_BYTES_MAX)?;
        answers::parse_large(&bytes).map_err(|problem| {
            AttemptError::Unusable(format!("the answer is not a JSON document: {problem}"))
        })
    }

    /// Passes the body of an archive to `write`.
    ///
    /// # Errors
    /// [`AttemptError`]: wrong content type, `too_large` above `bytes_max`, truncated, or an error
    /// of `write`.
    pub(super) fn archive(
        &self,
        mut response: Response,
        place: &str,
        bytes_max: u64,
        too_large: &dyn Fn() -> AttemptError,
        write: &mut dyn FnMut(&[u8]) -> Result<(), GitHubError>,
    ) -> Result<(), AttemptError> {
        check_content_type(
            &response.headers,
            &["gzip", "octet-stream", "x-tar", "x-compressed"],
            "a gzip-compressed tar",
        )
        .map_err(AttemptError::Unusable)?;
        let stated = response.stated_bytes();
        if stated.is_some_and(|stated| stated > bytes_max) {
            return Err(too_large());
        }
        let mut buffer = vec![0; 64 * 1024];
        let mut bytes: u64 = 0;
        loop {
            let count = match response.read(&mut buffer)? {
                0 => return Ok(()),
                count => count,
            };
            bytes = bytes.saturating_add(count as u64);
            if bytes > bytes_max {
                return Err(too_large());
            }
            write(&buffer[..count])?;
            Progress::Downloading {
                place,
                bytes,
                of_bytes: stated,
            }
            .emit();
        }
    }
}

/// Reports the pause and sleeps.
pub(super) fn wait(cause: &str, pause: Duration) {
    Progress::Waiting { cause, pause }.emit();
    std::thread::sleep(pause);
}
