//! Requests to a registry: scheme, authorization, redirects and common error responses.

use std::cell::RefCell;
use std::io::{Read, SeekFrom};
use std::time::Duration;

use rustls::pki_types::CertificateDer;
use serde::Deserialize;
use ureq::SendBody;
use ureq::http::{Method, Request, StatusCode, Uri, header};

use crate::http::url::{follow, is_same_origin, origin_shown, plain_url};
use crate::http::{Fault, GaveUp, Response, RootsError, TransferError};
use crate::http::{beside, check_retryable, of_file, of_host, retry};
use crate::oci::error::OciError;
use crate::oci::registry::error::RegistryError;
use crate::oci::registry::{BlobSource, Registry};
use crate::progress::Progress;
use secrets::mask::Masks;
use spec::document::excerpt;

const CERTIFICATES_OF_REGISTRIES: &str = "/etc/docker/certs.d";
const ERROR_BYTES_MAX: u64 = 64 << 10;
const ERRORS_SHOWN_MAX: usize = 3;

#[derive(Clone, Copy)]
pub(super) struct Ask<'ask> {
    pub(super) method: &'ask Method,
    /// Below `/v2/REPOSITORY/`; also used in messages.
    pub(super) path: &'ask str,
    pub(super) accept: Option<&'ask str>,
    pub(super) from_byte: u64,
    pub(super) payload: Payload<'ask>,
}

#[derive(Clone, Copy)]
pub(super) enum Payload<'ask> {
    None,
    Bytes(&'ask [u8], &'ask str),
    Source(&'ask RefCell<&'ask mut dyn BlobSource>, u64),
}

impl<'ask> Ask<'ask> {
    pub(super) fn new(method: &'ask Method, path: &'ask str) -> Self {
        Self {
            method,
            path,
            accept: None,
            from_byte: 0,
            payload: Payload::None,
        }
    }
}

/// Error document (distribution-spec, "Error Codes").
#[derive(Deserialize)]
struct ErrorDocument {
    errors: Vec<DocumentedError>,
}

#[derive(Deserialize)]
struct DocumentedError {
    #[serde(default)]
    code: String,
    #[serde(default)]
    message: String,
}

impl Registry {
    pub(super) fn retry<T>(
        &self,
        method: &Method,
        path: &str,
        once: &mut dyn FnMut() -> Result<T, Fault<OciError>>,
    ) -> Result<T, OciError> {
        let mut pause = |cause: &str, pause: Duration| {
            let observer = &self.connection.observer;
            observer.progress(&Progress::Waiting { cause, pause });
            let paused = self.client.watch().pause(pause);
            paused.map_err(|_cancelled| cancelled())
        };
        retry(self.client.timeouts(), &mut pause, once).map_err(|gave_up| {
            let request = self.shown_request(method, path);
            match gave_up {
                GaveUp::Final(error) => *error,
                GaveUp::Unavailable {
                    limit: Some(limit), ..
                } => RegistryError::RateLimited {
                    request,
                    status: limit.status,
                    until: limit.until,
                }
                .into(),
                GaveUp::Unavailable {
                    cause,
                    is_final: true,
                    ..
                } => RegistryError::Unusable { request, cause }.into(),
                GaveUp::Unavailable { tries, cause, .. } => RegistryError::Unavailable {
                    request,
                    tries,
                    cause,
                }
                .into(),
            }
        })
    }

    pub(super) fn shown_request(&self, method: &Method, path: &str) -> String {
        let scheme = self.scheme.get().copied().unwrap_or("https");
        let reference = &self.reference;
        format!(
            "{method} {scheme}://{}/v2/{}/{path}",
            reference.registry, reference.repository
        )
    }

    /// Sends a request. Follows redirects of read requests only.
    pub(super) fn ask(&self, ask: &Ask<'_>) -> Result<Response, Fault<OciError>> {
        let scheme = self.scheme()?;
        let reference = &self.reference;
        let url = format!(
            "{scheme}://{}/v2/{}/{}",
            reference.registry, reference.repository, ask.path
        );
        let url = plain_url(&url)
            .ok_or_else(|| Fault::Unusable("the URL cannot be written".to_owned()))?;
        self.ask_at(url, ask)
    }

    /// Like [`Registry::ask`], for a URL from the registry.
    pub(super) fn ask_at(&self, url: Uri, ask: &Ask<'_>) -> Result<Response, Fault<OciError>> {
        let send = |url: &Uri| {
            self.check_scheme(url)?;
            self.send_authorized(url, ask)
        };
        let (url, response) = match *ask.method {
            Method::GET | Method::HEAD => follow(url, send)?,
            _ => {
                let response = send(&url)?;
                (url, response)
            }
        };
        self.check_status(ask, &url, response)
    }

    /// Redirects and upload URLs may use plain HTTP only if the registry itself may.
    fn check_scheme(&self, url: &Uri) -> Result<(), Fault<OciError>> {
        if url.scheme_str() == Some("https") || self.connection.insecure {
            return Ok(());
        }
        Err(Fault::Unusable(format!(
            "it leads to {}, expected https://",
            origin_shown(url)
        )))
    }

    /// Sends with the current authorization. On 401 it authorizes once and repeats the request.
    fn send_authorized(&self, url: &Uri, ask: &Ask<'_>) -> Result<Response, Fault<OciError>> {
        let response = self.once(url, ask)?;
        if response.status != StatusCode::UNAUTHORIZED || !self.is_own(url) {
            return Ok(response);
        }
        // The authorization expired or has another scope.
        self.authorization.take();
        match self.authorized(&response.headers)? {
            Some(authorization) => {
                *self.authorization.borrow_mut() = Some(authorization);
                self.once(url, ask)
            }
            None => Ok(response),
        }
    }

    fn once(&self, url: &Uri, ask: &Ask<'_>) -> Result<Response, Fault<OciError>> {
        let mut request = Request::builder().method(ask.method).uri(url.clone());
        if let Some(accept) = ask.accept {
            request = request.header(header::ACCEPT, accept);
        }
        if 0 < ask.from_byte {
            request = request.header(header::RANGE, format!("bytes={}-", ask.from_byte));
        }
        if let Some(authorization) = self.authorization.borrow().as_ref()
            && self.is_own(url)
        {
            request = request.header(header::AUTHORIZATION, authorization.header.clone());
        }
        match ask.payload {
            Payload::None if *ask.method == Method::POST => {
                let request = request.header(header::CONTENT_LENGTH, 0);
                self.sent(request.body(SendBody::from_reader(&mut std::io::empty())))
            }
            Payload::None => self.sent(request.body(SendBody::none())),
            Payload::Bytes(mut bytes, media_type) => {
                let request = request
                    .header(header::CONTENT_TYPE, media_type)
                    .header(header::CONTENT_LENGTH, bytes.len());
                self.sent(request.body(SendBody::from_reader(&mut bytes)))
            }
            Payload::Source(source, bytes) => {
                let mut source = source.borrow_mut();
                let source: &mut dyn BlobSource = &mut **source;
                source
                    .seek(SeekFrom::Start(0))
                    .map_err(|error| Fault::Unusable(format!("what is sent: {error}")))?;
                let request = request
                    .header(header::CONTENT_TYPE, "application/octet-stream")
                    .header(header::CONTENT_LENGTH, bytes);
                let mut limited = source.take(bytes);
                self.sent(request.body(SendBody::from_reader(&mut limited)))
            }
        }
    }

    pub(super) fn sent(
        &self,
        request: Result<Request<SendBody<'_>>, ureq::http::Error>,
    ) -> Result<Response, Fault<OciError>> {
        let request = request
            .map_err(|_never| Fault::Unusable("the request cannot be written".to_owned()))?;
        let sent = self.client.send(request, || self.trusted())?;
        sent.map_err(|error| self.fault(error))
    }

    pub(super) fn fault(&self, error: TransferError) -> Fault<OciError> {
        match error {
            TransferError::Cancelled => cancelled().into(),
            TransferError::NoTls => RegistryError::PlainHttp {
                registry: self.reference.registry.clone(),
            }
            .into(),
            other => other.into(),
        }
    }

    /// Returns `https`, unless the registry does not speak TLS and plain HTTP is allowed.
    fn scheme(&self) -> Result<&'static str, Fault<OciError>> {
        if let Some(scheme) = self.scheme.get() {
            return Ok(scheme);
        }
        if !self.connection.insecure {
            return Ok(self.scheme.get_or_init(|| "https"));
        }
        let url = format!("https://{}/v2/", self.reference.registry);
        let request = Request::get(url).body(SendBody::none()).map_err(|_never| {
            Fault::Unusable("the URL of the registry cannot be written".to_owned())
        })?;
        let scheme = match self.client.send(request, || self.trusted())? {
            // A server that speaks TLS is never used without it, even with an invalid certificate.
            Ok(_) | Err(TransferError::Unusable(_) | TransferError::TooLarge { .. }) => "https",
            Err(TransferError::Cancelled) => return Err(cancelled().into()),
            Err(TransferError::NoTls | TransferError::Passing(_)) => "http",
        };
        Ok(self.scheme.get_or_init(|| scheme))
    }

    fn is_own(&self, url: &Uri) -> bool {
        let scheme = self.scheme.get().copied().unwrap_or("https");
        plain_url(&format!("{scheme}://{}/", self.reference.registry))
            .is_some_and(|own| is_same_origin(&own, url))
    }

    pub(super) fn host(&self) -> Option<String> {
        let url = plain_url(&format!("https://{}/", self.reference.registry))?;
        url.host().map(str::to_ascii_lowercase)
    }

    fn trusted(&self) -> Result<Vec<CertificateDer<'static>>, Fault<OciError>> {
        let refused = |error: RootsError| self.setting(spec::report::with_causes(&error));
        let registry = &self.reference.registry;
        let directory = std::path::Path::new(CERTIFICATES_OF_REGISTRIES).join(registry);
        let mut all = of_host();
        if let Some(file) = &self.connection.ca_file {
            all.extend(of_file(file).map_err(refused)?);
        }
        all.extend(beside(&directory).map_err(refused)?);
        if all.is_empty() && !self.connection.insecure {
            let problem = "no certificate authority is known to this host, so it cannot be \
                           trusted; install ca-certificates, or name a file with SSL_CERT_FILE";
            return Err(self.setting(problem.to_owned()).into());
        }
        Ok(all)
    }

    fn setting(&self, problem: String) -> OciError {
        RegistryError::Setting {
            registry: self.reference.registry.clone(),
            problem,
        }
        .into()
    }

    pub(super) fn error_detail(&self, response: Response) -> Option<String> {
        let bytes = response.bytes(&self.client, ERROR_BYTES_MAX).ok()?;
        let document: ErrorDocument = serde_json::from_slice(&bytes).ok()?;
        let errors: Vec<String> = document
            .errors
            .iter()
            .take(ERRORS_SHOWN_MAX)
            .map(|one| match one.message.is_empty() {
                true => self.quoted(&one.code),
                false => format!("{}: {}", self.quoted(&one.code), self.quoted(&one.message)),
            })
            .collect();
        (!errors.is_empty()).then(|| errors.join("; "))
    }

    /// Prepares text of the registry for a message: escaped, shortened, and with credentials
    /// masked, since the registry may echo them.
    pub(super) fn quoted(&self, text: &str) -> String {
        let mut masks = Masks::default();
        let held = self.authorization.borrow();
        let header = held.as_ref().and_then(|held| held.header.to_str().ok());
        if let Some((_, value)) = header.and_then(|header| header.split_once(' ')) {
            masks.add(value.as_bytes());
        }
        if let Some(found) = self.credentials.get().and_then(Option::as_ref) {
            masks.add(found.login.secret());
            // The form that is sent to a token service.
            masks.add(found.login.written().as_bytes());
        }
        let mut text = text.to_owned();
        masks.mask_text(&mut text);
        excerpt(&text)
    }

    fn check_status(
        &self,
        ask: &Ask<'_>,
        url: &Uri,
        response: Response,
    ) -> Result<Response, Fault<OciError>> {
        let status = response.status;
        check_retryable(&response)?;
        let is_unknown = status == StatusCode::UNAUTHORIZED;
        if !is_unknown && status != StatusCode::FORBIDDEN {
            return Ok(response);
        }
        if !self.is_own(url) {
            let (status, origin) = (status.as_u16(), origin_shown(url));
            return Err(Fault::Unusable(format!("{origin} answered {status}")));
        }
        let credentials = self.credentials.get().cloned().flatten();
        let credentials = credentials.map(|found| found.origin);
        let detail = self.error_detail(response);
        let request = self.shown_request(ask.method, ask.path);
        let error = match is_unknown {
            true => RegistryError::Unauthorized {
                request,
                credentials,
                detail,
            },
            false => RegistryError::Denied {
                request,
                credentials,
                detail,
            },
        };
        Err(error.into())
    }
}

pub(super) fn cancelled() -> OciError {
    OciError::Cancelled {
        during: "a registry was asked",
    }
}

impl From<OciError> for Fault<OciError> {
    fn from(error: OciError) -> Self {
        Self::Final(Box::new(error))
    }
}

impl From<RegistryError> for Fault<OciError> {
    fn from(error: RegistryError) -> Self {
        OciError::from(error).into()
    }
}
