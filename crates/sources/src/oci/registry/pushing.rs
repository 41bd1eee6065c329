//! Uploads of manifests and blobs.

use std::cell::RefCell;
use std::io::{self, Read, Seek, SeekFrom};

use ureq::http::{Method, StatusCode, Uri};

use crate::http::Fault;
use crate::http::url::{next, plain_url};
use crate::oci::error::OciError;
use crate::oci::observer::Observer;
use crate::oci::origin::Origin as _;
use crate::oci::registry::asking::{Ask, Payload};
use crate::oci::registry::error::RegistryError;
use crate::oci::registry::{BlobSource, Registry};
use crate::progress::Progress;
use spec::digest::Digest;
use spec::oci::reference::Which;
use sys::file::CallError;

impl Registry {
    /// Checks whether the repository has a blob.
    ///
    /// # Errors
    /// [`OciError`].
    pub fn has_blob(&self, digest: &Digest) -> Result<bool, OciError> {
        let path = format!("blobs/{digest}");
        let ask = Ask::new(&Method::HEAD, &path);
        self.retry(ask.method, ask.path, &mut || {
            let response = self.ask(&ask)?;
            match response.status {
                StatusCode::OK => Ok(true),
                StatusCode::NOT_FOUND => Ok(false),
                _ => Err(self.refused(&ask, &format!("blob {digest}"), response)),
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
                self.upload(digest, Payload::Source(&source, bytes))
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

    fn upload(&self, digest: &Digest, payload: Payload<'_>) -> Result<(), Fault<OciError>> {
        let begin = Ask::new(&Method::POST, "blobs/uploads/");
        let begun = self.ask(&begin)?;
        if begun.status != StatusCode::ACCEPTED {
            return Err(self.refused(&begin, "uploads", begun));
        }
        let own = self.own_url(begin.path)?;
        let place = next(&own, &begun.headers).map_err(Fault::Unusable)?;
        let ask = Ask {
            payload,
            ..Ask::new(&Method::PUT, "blobs/uploads/…")
        };
        let sent = self.ask_at(with_digest(&place, digest)?, &ask)?;
        if sent.status != StatusCode::CREATED {
            return Err(self.refused(&ask, "upload", sent));
        }
        match self.stated_digest(&sent.headers)? {
            Some(found) if found != *digest => Err(RegistryError::WrongDigest {
                request: self.shown_request(ask.method, ask.path),
                what: "a blob",
                found: found.to_string(),
                expected: *digest,
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
        let ask = Ask {
            payload: Payload::Bytes(bytes, media_type),
            ..Ask::new(&Method::PUT, &path)
        };
        let place = self.shown();
        let observer = &self.connection.observer;
        observer.progress(&Progress::Asking { place: &place });
        let sent = self.retry(ask.method, ask.path, &mut || {
            let response = self.ask(&ask)?;
            if response.status != StatusCode::CREATED {
                return Err(self.refused(&ask, &format!("manifest {which}"), response));
            }
            self.stated_digest(&response.headers)
        });
        observer.progress(&Progress::Done);
        match sent? {
            Some(found) if found != digest => Err(RegistryError::WrongDigest {
                request: self.shown_request(ask.method, ask.path),
                what: "a manifest",
                found: found.to_string(),
                expected: digest,
            }
            .into()),
            _ => Ok(digest),
        }
    }

    fn own_url(&self, path: &str) -> Result<Uri, Fault<OciError>> {
        let shown = self.shown_request(&Method::GET, path);
        shown
            .strip_prefix("GET ")
            .and_then(plain_url)
            .ok_or_else(|| Fault::Unusable("the URL cannot be written".to_owned()))
    }
}

fn with_digest(place: &Uri, digest: &Digest) -> Result<Uri, Fault<OciError>> {
    let mark = if place.query().is_some() { '&' } else { '?' };
    plain_url(&format!("{place}{mark}digest={digest}"))
        .ok_or_else(|| Fault::Unusable("the place of the upload cannot be written".to_owned()))
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
            // With fewer bytes than announced, the server would wait for the rest.
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
    fn seek(&mut self, place: SeekFrom) -> io::Result<u64> {
        self.bytes = self.source.seek(place)?;
        Ok(self.bytes)
    }
}
