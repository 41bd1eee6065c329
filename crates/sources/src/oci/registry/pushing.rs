//! Uploads of manifests and blobs.

use std::cell::RefCell;
use std::io::{self, Read, Seek, SeekFrom};

use ureq::http::{Method, StatusCode, Uri};

use crate::http::AttemptError;
use crate::http::url::{request_url, resolve_location};
use crate::oci::error::OciError;
use crate::oci::observer::Observer;
use crate::oci::origin::Origin as _;
use crate::oci::registry::error::RegistryError;
use crate::oci::registry::requests::{Payload, RegistryRequest};
use crate::oci::registry::{BlobSource, Registry};
use crate::progress::Progress;
use spec::digest::Digest;
use spec::oci::reference::Which;
use sys::file::CallError;

impl Registry {
    /// Checks whether the repository has a blob.
    pub fn has_blob(&self, digest: &Digest) -> Result<bool, OciError> {
        let path = format!("blobs/{digest}");
        let request = RegistryRequest::new(&Method::HEAD, &path);
        self.retry(request.method, request.path, &mut || {
            let response = self.send(&request)?;
            match response.status {
                StatusCode::OK => Ok(true),
                StatusCode::NOT_FOUND => Ok(false),
                _ => Err(self.status_error(&request, &format!("blob {digest}"), response)),
            }
        })
    }

    /// Uploads a blob of `bytes` bytes, unless it exists. Returns whether it was uploaded.
    ///
    /// # Errors
    /// [`OciError`]: the registry rejects it, or `source` cannot be read.
    pub fn push_blob(
        &self,
        digest: &Digest,
        bytes: u64,
        source: &mut dyn BlobSource,
    ) -> Result<bool, OciError> {
        if self.has_blob(digest)? {
            return Ok(false);
        }
        let mut reader = UploadReader {
            source,
            observer: &*self.connection.observer,
            digest,
            bytes: 0,
            of_bytes: bytes,
            failed: None,
        };
        let sent = {
            let source: RefCell<&mut dyn BlobSource> = RefCell::new(&mut reader);
            self.retry(&Method::PUT, &format!("blobs/{digest}"), &mut || {
                let source = &source;
                self.upload(digest, Payload::Blob { source, bytes })
            })
        };
        self.connection.observer.progress(&Progress::Done);
        match reader.failed {
            Some(errno) => Err(RegistryError::Source {
                what: format!("the blob {digest}"),
                source: CallError::new("read", digest.to_string(), errno),
            }
            .into()),
            None => sent.map(|()| true),
        }
    }

    fn upload(&self, digest: &Digest, payload: Payload<'_>) -> Result<(), AttemptError<OciError>> {
        let start = RegistryRequest::new(&Method::POST, "blobs/uploads/");
        let started = self.send(&start)?;
        if started.status != StatusCode::ACCEPTED {
            return Err(self.status_error(&start, "repository of this name", started));
        }
        let start_url = request_url(&self.url(start.path))?;
        let upload_url =
            resolve_location(&start_url, &started.headers).map_err(AttemptError::Unusable)?;
        let request = RegistryRequest {
            payload,
            ..RegistryRequest::new(&Method::PUT, "blobs/uploads/…")
        };
        let response = self.send_to(with_digest(&upload_url, digest)?, &request)?;
        if response.status != StatusCode::CREATED {
            return Err(self.status_error(&request, "such upload", response));
        }
        let stated = self.stated_digest(&response.headers)?;
        Ok(self.check_stated(&request, "a blob", stated, digest)?)
    }

    fn check_stated(
        &self,
        request: &RegistryRequest<'_>,
        what: &'static str,
        stated: Option<Digest>,
        expected: &Digest,
    ) -> Result<(), OciError> {
        match stated {
            Some(found) if found != *expected => Err(RegistryError::WrongDigest {
                request: self.describe_request(request.method, request.path),
                what,
                found: found.to_string(),
                expected: *expected,
            }
            .into()),
            _ => Ok(()),
        }
    }

    /// Uploads a manifest by digest or under a tag ([`Which::Unnamed`]: `latest`). Returns its
    /// digest.
    ///
    /// # Errors
    /// [`OciError`]: the registry rejects it, or returns another digest.
    pub fn push_manifest(
        &self,
        which: &Which,
        bytes: &[u8],
        media_type: &str,
    ) -> Result<Digest, OciError> {
        let digest = Digest::of(bytes);
        let path = format!("manifests/{which}");
        let request = RegistryRequest {
            payload: Payload::Manifest { bytes, media_type },
            ..RegistryRequest::new(&Method::PUT, &path)
        };
        let place = self.name();
        let observer = &self.connection.observer;
        observer.progress(&Progress::Asking { place: &place });
        let stated = self.retry(request.method, request.path, &mut || {
            let response = self.send(&request)?;
            if response.status != StatusCode::CREATED {
                return Err(self.status_error(&request, "repository of this name", response));
            }
            self.stated_digest(&response.headers)
        });
        observer.progress(&Progress::Done);
        self.check_stated(&request, "a manifest", stated?, &digest)?;
        Ok(digest)
    }
}

fn with_digest(upload_url: &Uri, digest: &Digest) -> Result<Uri, AttemptError<OciError>> {
    let separator = if upload_url.query().is_some() {
        '&'
    } else {
        '?'
    };
    request_url(&format!("{upload_url}{separator}digest={digest}"))
}

struct UploadReader<'push> {
    source: &'push mut dyn BlobSource,
    observer: &'push dyn Observer,
    digest: &'push Digest,
    bytes: u64,
    of_bytes: u64,
    failed: Option<rustix::io::Errno>,
}

impl Read for UploadReader<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = match self.source.read(buffer) {
            // The server would wait for the rest of the announced bytes.
            Ok(0) if self.bytes < self.of_bytes && !buffer.is_empty() => {
                self.failed = Some(rustix::io::Errno::IO);
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            Ok(count) => count,
            Err(error) => {
                self.failed = Some(sys::file::errno_of(&error));
                return Err(error);
            }
        };
        self.bytes += count as u64;
        self.observer.progress(&Progress::Sending {
            digest: self.digest,
            bytes: self.bytes,
            of_bytes: self.of_bytes,
        });
        Ok(count)
    }
}

impl Seek for UploadReader<'_> {
    /// Starts an attempt: `failed` is of the last one.
    fn seek(&mut self, position: SeekFrom) -> io::Result<u64> {
        let sought = self.source.seek(position);
        self.failed = sought.as_ref().err().map(sys::file::errno_of);
        self.bytes = sought?;
        Ok(self.bytes)
    }
}
