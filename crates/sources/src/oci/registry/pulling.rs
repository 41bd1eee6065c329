//! Downloads of manifests and blobs.

use std::io::{self, Read};
use std::time::{Duration, Instant};

use ureq::http::{HeaderMap, Method, StatusCode, header};

use crate::http::{AttemptError, Client, Response, TransferError};
use crate::oci::error::OciError;
use crate::oci::origin::{BlobStream, FetchedManifest, Origin};
use crate::oci::registry::Registry;
use crate::oci::registry::error::RegistryError;
use crate::oci::registry::requests::{RegistryRequest, cancelled, transfer_error};
use crate::progress::Progress;
use spec::digest::Digest;
use spec::oci::media::{MANIFEST_BYTES_MAX, MANIFESTS};
use spec::oci::reference::Which;

const DIGEST_HEADER: &str = "docker-content-digest";

impl Origin for Registry {
    fn name(&self) -> String {
        format!("{}/{}", self.reference.registry, self.reference.repository)
    }

    fn manifest(&self, which: &Which) -> Result<FetchedManifest, OciError> {
        let path = format!("manifests/{which}");
        let place = format!("{}:{which}", self.name());
        let observer = &self.connection.observer;
        observer.progress(&Progress::Asking { place: &place });
        let accept = MANIFESTS.join(", ");
        let request = RegistryRequest {
            accept: Some(&accept),
            ..RegistryRequest::new(&Method::GET, &path)
        };
        let fetched = self.retry(request.method, request.path, &mut || {
            let response = self.send(&request)?;
            match response.status {
                StatusCode::OK => self.read_manifest(which, &path, response),
                _ => Err(self.status_error(&request, &format!("manifest {which}"), response)),
            }
        });
        observer.progress(&Progress::Done);
        fetched
    }

    fn blob(&self, digest: &Digest, from_byte: u64) -> Result<BlobStream<'_>, OciError> {
        let path = format!("blobs/{digest}");
        let mut request = RegistryRequest {
            from_byte,
            ..RegistryRequest::new(&Method::GET, &path)
        };
        self.retry(&Method::GET, &path, &mut || {
            let response = self.send(&request)?;
            let starts_at = match response.status {
                StatusCode::OK => 0,
                StatusCode::PARTIAL_CONTENT if request.from_byte > 0 => {
                    self.starts_at(&response.headers, request.from_byte)?
                }
                // The partial file is not a prefix of the blob.
                StatusCode::RANGE_NOT_SATISFIABLE if request.from_byte > 0 => {
                    request.from_byte = 0;
                    return Err(AttemptError::temporary("the answer was 416".to_owned()));
                }
                _ => return Err(self.status_error(&request, &format!("blob {digest}"), response)),
            };
            if let Some(coding) = response.headers.get(header::CONTENT_ENCODING)
                && coding != "identity"
            {
                let found = self.quote(&String::from_utf8_lossy(coding.as_bytes()));
                let cause = format!("the answer is encoded as `{found}`, expected no encoding");
                return Err(AttemptError::Unusable(cause));
            }
            Ok(BlobStream {
                starts_at,
                reader: Box::new(Body {
                    client: &self.client,
                    request: self.describe_request(&Method::GET, &path),
                    bytes: 0,
                    waited: Duration::ZERO,
                    period_start: 0,
                    response,
                }),
            })
        })
    }
}

impl Registry {
    fn read_manifest(
        &self,
        which: &Which,
        path: &str,
        response: Response,
    ) -> Result<FetchedManifest, AttemptError<OciError>> {
        let request = self.describe_request(&Method::GET, path);
        let stated = self.stated_digest(&response.headers)?;
        let bytes =
            response
                .bytes(&self.client, MANIFEST_BYTES_MAX)
                .map_err(|error| match error {
                    TransferError::TooLarge { bytes_max } => RegistryError::TooLarge {
                        request: request.clone(),
                        what: "manifest",
                        bytes_max,
                    }
                    .into(),
                    other => transfer_error(other),
                })?;
        let found = Digest::of(&bytes);
        let requested = match which {
            Which::Digest(digest) => Some(*digest),
            Which::Tag(_) | Which::Unnamed => None,
        };
        for expected in [requested, stated].into_iter().flatten() {
            if expected != found {
                return Err(RegistryError::WrongDigest {
                    request,
                    what: "a manifest",
                    found: found.to_string(),
                    expected,
                }
                .into());
            }
        }
        Ok(FetchedManifest {
            bytes,
            digest: found,
        })
    }

    /// Returns the digest that a response states, if its algorithm is supported.
    pub(super) fn stated_digest(
        &self,
        headers: &HeaderMap,
    ) -> Result<Option<Digest>, AttemptError<OciError>> {
        let Some(stated) = headers.get(DIGEST_HEADER) else {
            return Ok(None);
        };
        let text = String::from_utf8_lossy(stated.as_bytes());
        match Digest::parse(text.trim()) {
            Some(digest) => Ok(Some(digest)),
            // Another algorithm: only the requested digest is verified.
            None if text.starts_with("sha512:") => Ok(None),
            None => Err(AttemptError::Unusable(format!(
                "the answer states the digest `{}`, expected sha256: and 64 digits",
                self.quote(&text)
            ))),
        }
    }

    fn starts_at(
        &self,
        headers: &HeaderMap,
        from_byte: u64,
    ) -> Result<u64, AttemptError<OciError>> {
        let stated = headers
            .get(header::CONTENT_RANGE)
            .map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned())
            .unwrap_or_default();
        let first = stated
            .strip_prefix("bytes ")
            .and_then(|range| range.split_once('-'))
            .and_then(|(first, _)| first.parse().ok());
        match first {
            Some(first) if first == from_byte => Ok(first),
            _ => Err(AttemptError::Unusable(format!(
                "the answer is the part `{}`, expected one from byte {from_byte} on",
                self.quote(&stated)
            ))),
        }
    }

    pub(super) fn status_error(
        &self,
        request: &RegistryRequest<'_>,
        what: &str,
        response: Response,
    ) -> AttemptError<OciError> {
        let status = response.status;
        if !status.is_client_error() {
            return AttemptError::unexpected_status(status);
        }
        let detail = self.error_detail(response);
        let error = match status {
            StatusCode::NOT_FOUND => RegistryError::NotFound {
                place: self.name(),
                what: what.to_owned(),
                detail,
            },
            _ => RegistryError::Refused {
                request: self.describe_request(request.method, request.path),
                status: status.as_u16(),
                detail,
            },
        };
        error.into()
    }
}

/// Reader of a blob. Its errors contain an [`OciError`].
struct Body<'registry> {
    client: &'registry Client,
    request: String,
    bytes: u64,
    /// Time spent waiting for the server in the current period.
    waited: Duration,
    /// Value of `bytes` at the start of the period.
    period_start: u64,
    response: Response,
}

impl Read for Body<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let started = Instant::now();
        match self.response.read(buffer) {
            Ok(count) => {
                self.bytes += count as u64;
                self.waited += started.elapsed();
                if count > 0 {
                    self.check_rate()?;
                }
                Ok(count)
            }
            Err(error) => Err(self.read_error(error).into_read()),
        }
    }
}

impl Body<'_> {
    /// Ends a transfer that is too slow. Time that the caller spends between reads does not count.
    fn check_rate(&mut self) -> io::Result<()> {
        let timeouts = self.client.timeouts();
        if self.waited < timeouts.slow {
            return Ok(());
        }
        let received = self.bytes - self.period_start;
        if received < timeouts.slow_bytes {
            let (slow, expected) = (timeouts.slow, timeouts.slow_bytes);
            let cause = format!("received {received} bytes in {slow:?}, expected {expected}");
            return Err(self.read_error(TransferError::Temporary(cause)).into_read());
        }
        (self.waited, self.period_start) = (Duration::ZERO, self.bytes);
        Ok(())
    }

    fn read_error(&self, error: TransferError) -> OciError {
        let request = self.request.clone();
        match error {
            TransferError::Cancelled => cancelled(),
            TransferError::Temporary(cause) => RegistryError::BrokenOff {
                request,
                bytes: self.bytes,
                cause,
            }
            .into(),
            TransferError::Unusable(cause) => RegistryError::Unusable { request, cause }.into(),
            TransferError::TooLarge { bytes_max } => RegistryError::TooLarge {
                request,
                what: "blob",
                bytes_max,
            }
            .into(),
            TransferError::NoTls => RegistryError::Unusable {
                request,
                cause: "TLS: connection closed".to_owned(),
            }
            .into(),
        }
    }
}
