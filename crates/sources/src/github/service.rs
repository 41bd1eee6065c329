//! Requests to the service: token, retries, time-outs.

use std::io::Read as _;

use rustls::pki_types::CertificateDer;
use ureq::http::{Request, StatusCode, Uri, header};

use crate::github::Timeouts;
use crate::github::error::GitHubError;
use crate::github::fault::Fault;
use crate::github::token::Token;
pub(super) use crate::http::Response;
use crate::http::url::{follow, is_private_way, is_same_origin, plain_url};
use crate::http::{
    Client, GaveUp, Watch, check_retryable, expect_content, number, of_host, retry, retry_after,
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
            client: Client::new(timeouts, Watch::default()),
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
        mut once: impl FnMut() -> Result<T, Fault>,
    ) -> Result<T, GitHubError> {
        let watch = self.client.watch();
        let mut pause = |cause: &str, pause| {
            Progress::Waiting { cause, pause }.emit();
            watch
                .pause(pause)
                .map_err(|cancelled| self.unavailable(path, 1, cancelled.to_string()))
        };
        retry(self.client.timeouts(), &mut pause, &mut once).map_err(|gave_up| match gave_up {
            GaveUp::Final(error) => *error,
            GaveUp::Unavailable {
                limit: Some(limit), ..
            } => GitHubError::RateLimited {
                request: self.shown(path),
                status: limit.status,
                until: limit.until,
                with_token: self.has_token(),
            },
            GaveUp::Unavailable { tries, cause, .. } => self.unavailable(path, tries, cause),
        })
    }

    fn unavailable(&self, path: &str, tries: u32, cause: String) -> GitHubError {
        GitHubError::Unavailable {
            request: self.shown(path),
            tries,
            cause,
        }
    }

    fn shown(&self, path: &str) -> String {
        format!("GET {}{path}", self.base_url)
    }

    /// Sends one request and follows redirects. Returns any other response, such as 404, unless it
    /// refuses the caller or reports a server failure.
    ///
    /// # Errors
    /// [`Fault`].
    pub(super) fn get(&self, path: &str, accept: &str) -> Result<Response, Fault> {
        let url = plain_url(&format!("{}{path}", self.base_url))
            .ok_or_else(|| Fault::Unusable("the URL cannot be written".to_owned()))?;
        let (_, response) = follow(url, |url| self.one(url, accept))?;
        self.check_status(path, response)
    }

    fn one(&self, url: &Uri, accept: &str) -> Result<Response, Fault> {
        let mut request = Request::get(url.clone())
            .header(header::ACCEPT, accept)
            .header("X-GitHub-Api-Version", "2022-11-28");
        if let Some(token) = &self.token
            && is_same_origin(url, &self.base)
        {
            request = request.header(header::AUTHORIZATION, token.header());
        }
        let request = request
            .body(())
            .map_err(|_never| Fault::Unusable("the request cannot be written".to_owned()))?;
        let response = self.client.send(request, || self.trusted())?;
        Ok(response?)
    }

    fn check_status(&self, path: &str, response: Response) -> Result<Response, Fault> {
        let status = response.status;
        let wait = retry_after(&response.headers);
        let is_used_up = number(&response.headers, "x-ratelimit-remaining") == Some(0);
        let is_limited = status == StatusCode::TOO_MANY_REQUESTS
            || (status == StatusCode::FORBIDDEN && (is_used_up || wait.is_some()));
        if is_limited {
            let reset = number(&response.headers, "x-ratelimit-reset");
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
        check_retryable(&response)?;
        Ok(response)
    }

    fn trusted(&self) -> Result<Vec<CertificateDer<'static>>, Fault> {
        let is_plain = self.base.scheme_str() == Some("http");
        let found = if is_plain { Vec::new() } else { of_host() };
        if found.is_empty() && !is_plain {
            return Err(GitHubError::Setting {
                setting: "github.base_url",
                problem: "no certificate authority is known to this host, so https:// cannot be \
                          trusted; install ca-certificates, or name a file with SSL_CERT_FILE"
                    .to_owned(),
            }
            .into());
        }
        Ok(found)
    }

    /// Parses a JSON response.
    ///
    /// # Errors
    /// [`Fault`]: wrong content type, too large, invalid JSON, or truncated.
    pub(super) fn json(&self, response: Response) -> Result<serde_json::Value, Fault> {
        expect_content(&response.headers, &["json"], "a JSON document").map_err(Fault::Unusable)?;
        let bytes = response.bytes(&self.client, JSON_BYTES_MAX)?;
        serde_json::from_slice(&bytes)
            .map_err(|error| Fault::Unusable(format!("the answer is not a JSON document: {error}")))
    }

    /// Copies the body of an archive to `out` and returns its size in bytes.
    ///
    /// # Errors
    /// [`Fault`]: wrong content type, `too_large` above `bytes_max`, truncated, or an error of
    /// `write`.
    pub(super) fn archive(
        &self,
        response: Response,
        place: &str,
        bytes_max: u64,
        too_large: &dyn Fn() -> Fault,
        write: &mut dyn FnMut(&[u8]) -> Result<(), GitHubError>,
    ) -> Result<u64, Fault> {
        expect_content(
            &response.headers,
            &["gzip", "octet-stream", "x-tar", "x-compressed"],
            "a gzip-compressed tar",
        )
        .map_err(Fault::Unusable)?;
        let stated = response.stated_bytes();
        if stated.is_some_and(|stated| bytes_max < stated) {
            return Err(too_large());
        }
        let mut source = response.reader();
        let mut buffer = vec![0; 64 * 1024];
        let mut bytes: u64 = 0;
        loop {
            let count = match source.read(&mut buffer) {
                Ok(0) => return Ok(bytes),
                Ok(count) => count,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(self.client.read_error(error).into()),
            };
            bytes = bytes.saturating_add(count as u64);
            if bytes_max < bytes {
                return Err(too_large());
            }
            write(&buffer[..count])?;
            let of_bytes = stated;
            let downloading = Progress::Downloading {
                place,
                bytes,
                of_bytes,
            };
            downloading.emit();
        }
    }
}
