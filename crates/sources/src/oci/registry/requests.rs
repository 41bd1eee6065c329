//! Requests to a registry: scheme, authorization, redirects and common error responses.

use std::cell::RefCell;
use std::io::{Read, SeekFrom};
use std::time::Duration;

use rustls::pki_types::CertificateDer;
use serde::Deserialize;
use ureq::http::{self, Method, Request, StatusCode, Uri, header};

use crate::answers;
use crate::http::url::{follow_redirects, format_origin, is_same_origin, parse_url, request_url};
use crate::http::{
    AttemptError, NO_ROOTS, Response, RetryError, RootsError, TransferError, Upload,
};
use crate::http::{check_retryable, load_directory, load_file, load_host_roots, retry};
use crate::oci::error::OciError;
use crate::oci::registry::error::RegistryError;
use crate::oci::registry::{BlobSource, Registry};
use secrets::mask::Masks;
use spec::document::excerpt;
use sys::allocator::keep_from_children;

const CERTIFICATES_DIRECTORY: &str = "/etc/docker/certs.d";
const ERROR_BYTES_MAX: u64 = 64 << 10;
const ERRORS_SHOWN_MAX: usize = 3;
const WAITING: &str = "waiting for a registry";

#[derive(Clone, Copy)]
pub(super) struct RegistryRequest<'call> {
    pub(super) method: &'call Method,
    /// Below `/v2/REPOSITORY/`; also used in messages.
    pub(super) path: &'call str,
    pub(super) accept: Option<&'call str>,
    pub(super) from_byte: u64,
    pub(super) payload: Payload<'call>,
}

#[derive(Clone, Copy)]
pub(super) enum Payload<'call> {
    None,
    Manifest {
        bytes: &'call [u8],
        media_type: &'call str,
    },
    Blob {
        source: &'call RefCell<&'call mut dyn BlobSource>,
        bytes: u64,
    },
}

impl<'call> RegistryRequest<'call> {
    pub(super) fn new(method: &'call Method, path: &'call str) -> Self {
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
        once: &mut dyn FnMut() -> Result<T, AttemptError<OciError>>,
    ) -> Result<T, OciError> {
        // An attempt may select the scheme, so the request is described afterwards.
        self.retry_named(&|| self.describe_request(method, path), once)
    }

    /// Like [`Registry::retry`]; `name` describes the request in errors.
    pub(super) fn retry_named<T>(
        &self,
        name: &dyn Fn() -> String,
        once: &mut dyn FnMut() -> Result<T, AttemptError<OciError>>,
    ) -> Result<T, OciError> {
        let mut pause = |cause: &str, pause: Duration| {
            let observer = &self.connection.observer;
            observer.pause(cause, pause, WAITING)
        };
        retry(self.client.timeouts(), &mut pause, once).map_err(|error| {
            let request = name();
            match error {
                RetryError::Final(error) => *error,
                RetryError::RateLimited(limit) => RegistryError::RateLimited {
                    request,
                    status: limit.status,
                    until: limit.until,
                }
                .into(),
                RetryError::Unusable { cause, .. } => {
                    RegistryError::Unusable { request, cause }.into()
                }
                RetryError::Unavailable { tries, cause } => RegistryError::Unavailable {
                    request,
                    tries,
                    cause,
                }
                .into(),
            }
        })
    }

    pub(super) fn describe_request(&self, method: &Method, path: &str) -> String {
        format!("{method} {}", self.url(path))
    }

    /// Returns the URL of `path` below `/v2/REPOSITORY/`.
    pub(super) fn url(&self, path: &str) -> String {
        let scheme = self.scheme.get().copied().unwrap_or("https");
        let (registry, repository) = (&self.reference.registry, &self.reference.repository);
        format!("{scheme}://{registry}/v2/{repository}/{path}")
    }

    /// Sends a request. Follows redirects of read requests only.
    pub(super) fn send(
        &self,
        request: &RegistryRequest<'_>,
    ) -> Result<Response, AttemptError<OciError>> {
        self.detect_scheme()?;
        self.send_to(request_url(&self.url(request.path))?, request)
    }

    /// Like [`Registry::send`], for a URL from the registry.
    pub(super) fn send_to(
        &self,
        url: Uri,
        request: &RegistryRequest<'_>,
    ) -> Result<Response, AttemptError<OciError>> {
        let send = |url: &Uri| {
            self.check_scheme(url)?;
            self.send_authorized(url, request)
        };
        let (url, response) = match *request.method {
            Method::GET | Method::HEAD => follow_redirects(url, send)?,
            _ => {
                let response = send(&url)?;
                (url, response)
            }
        };
        self.check_status(request, &url, response)
    }

    /// Redirects and upload URLs may use plain HTTP only if the registry itself may.
    fn check_scheme(&self, url: &Uri) -> Result<(), AttemptError<OciError>> {
        if url.scheme_str() == Some("https") || self.connection.insecure {
            return Ok(());
        }
        Err(AttemptError::Unusable(format!(
            "a URL of the registry is on {}, expected https://",
            format_origin(url)
        )))
    }

    /// Sends with the current authorization. On 401 it authorizes once and repeats the request.
    fn send_authorized(
        &self,
        url: &Uri,
        request: &RegistryRequest<'_>,
    ) -> Result<Response, AttemptError<OciError>> {
        let response = self.send_once(url, request)?;
        if response.status != StatusCode::UNAUTHORIZED || !self.is_own(url) {
            return Ok(response);
        }
        // The authorization expired or has another scope.
        self.authorization.take();
        match self.authorize(&response.headers)? {
            Some(authorization) => {
                *self.authorization.borrow_mut() = Some(authorization);
                self.send_once(url, request)
            }
            None => Ok(response),
        }
    }

    fn send_once(
        &self,
        url: &Uri,
        request: &RegistryRequest<'_>,
    ) -> Result<Response, AttemptError<OciError>> {
        let mut http = Request::builder().method(request.method).uri(url.clone());
        if let Some(accept) = request.accept {
            http = http.header(header::ACCEPT, accept);
        }
        if request.from_byte > 0 {
            http = http.header(header::RANGE, format!("bytes={}-", request.from_byte));
        }
        if let Some(authorization) = self.authorization.borrow().as_ref()
            && self.is_own(url)
        {
            http = http.header(header::AUTHORIZATION, authorization.clone());
        }
        let response = match request.payload {
            Payload::None if *request.method == Method::POST => {
                let http = http.header(header::CONTENT_LENGTH, 0);
                self.send_http(http.body(Some(&mut std::io::empty())))
            }
            Payload::None => self.send_http(http.body(None)),
            Payload::Manifest {
                mut bytes,
                media_type,
            } => {
                let http = http
                    .header(header::CONTENT_TYPE, media_type)
                    .header(header::CONTENT_LENGTH, bytes.len());
                self.send_http(http.body(Some(&mut bytes)))
            }
            Payload::Blob { source, bytes } => {
                let mut source = source.borrow_mut();
                let source: &mut dyn BlobSource = &mut **source;
                source
                    .seek(SeekFrom::Start(0))
                    .map_err(|error| AttemptError::Unusable(format!("the blob: {error}")))?;
                let http = http
                    .header(header::CONTENT_TYPE, "application/octet-stream")
                    .header(header::CONTENT_LENGTH, bytes);
                let mut limited = source.take(bytes);
                self.send_http(http.body(Some(&mut limited)))
            }
        }?;
        response.map_err(|error| match error {
            TransferError::NoTls if self.is_own(url) => RegistryError::PlainHttp {
                registry: self.reference.registry.clone(),
            }
            .into(),
            error => self.locate(url, transfer_error(error)),
        })
    }

    /// Adds the server of `url` to the cause, unless it is the registry.
    fn locate(&self, url: &Uri, error: AttemptError<OciError>) -> AttemptError<OciError> {
        if self.is_own(url) {
            return error;
        }
        error.at(&format_origin(url))
    }

    /// The outer error is of the certificates, the inner one of the transfer.
    pub(super) fn send_http(
        &self,
        request: http::Result<Request<Upload<'_>>>,
    ) -> Result<Result<Response, TransferError>, AttemptError<OciError>> {
        self.client.send(request, || self.roots())
    }

    /// Selects `http` if plain HTTP is allowed and the registry does not speak TLS.
    fn detect_scheme(&self) -> Result<(), AttemptError<OciError>> {
        if self.scheme.get().is_some() || !self.connection.insecure {
            return Ok(());
        }
        let url = format!("https://{}/v2/", self.reference.registry);
        let request = Request::get(url).body(None);
        let scheme = match self.send_http(request)? {
            // A server that speaks TLS is never used without it, even with an invalid certificate.
            Ok(_) | Err(TransferError::Unusable(_) | TransferError::TooLarge { .. }) => "https",
            Err(TransferError::Cancelled) => return Err(cancelled().into()),
            Err(TransferError::NoTls | TransferError::Temporary(_)) => "http",
        };
        self.scheme.get_or_init(|| scheme);
        Ok(())
    }

    fn is_own(&self, url: &Uri) -> bool {
        parse_url(&self.url("")).is_some_and(|own| is_same_origin(&own, url))
    }

    pub(super) fn host(&self) -> Option<String> {
        let url = parse_url(&self.url(""))?;
        url.host().map(str::to_ascii_lowercase)
    }

    fn roots(&self) -> Result<Vec<CertificateDer<'static>>, AttemptError<OciError>> {
        let refused = |error: RootsError| self.setting_error(spec::report::with_causes(&error));
        let registry = &self.reference.registry;
        let directory = std::path::Path::new(CERTIFICATES_DIRECTORY).join(registry);
        let mut all = load_host_roots();
        if let Some(file) = &self.connection.ca_file {
            all.extend(load_file(file).map_err(refused)?);
        }
        all.extend(load_directory(&directory).map_err(refused)?);
        if all.is_empty() && !self.connection.insecure {
            return Err(self.setting_error(NO_ROOTS.to_owned()).into());
        }
        Ok(all)
    }

    fn setting_error(&self, problem: String) -> OciError {
        RegistryError::Setting {
            registry: self.reference.registry.clone(),
            problem,
        }
        .into()
    }

    pub(super) fn error_detail(&self, response: Response) -> Option<String> {
        let bytes = response.bytes(&self.client, ERROR_BYTES_MAX).ok()?;
        let document: ErrorDocument = answers::parse_as(&bytes).ok()?;
        let errors: Vec<String> = document
            .errors
            .iter()
            .take(ERRORS_SHOWN_MAX)
            .map(|one| {
                let code = self.quote(&one.code);
                if one.message.is_empty() {
                    return code;
                }
                format!("{code}: {}", self.quote(&one.message))
            })
            .collect();
        (!errors.is_empty()).then(|| errors.join("; "))
    }

    /// Escapes, shortens and masks text of the registry for a message. The registry may echo
    /// credentials.
    pub(super) fn quote(&self, text: &str) -> String {
        let mut masks = Masks::default();
        let authorization = self.authorization.borrow();
        let header = authorization
            .as_ref()
            .and_then(|header| header.to_str().ok());
        if let Some((_, value)) = header.and_then(|header| header.split_once(' ')) {
            masks.add(value.as_bytes());
        }
        if let Some(found) = self.credentials.get().and_then(Option::as_ref) {
            masks.add(found.login.secret());
            let encoded = keep_from_children(|| found.login.encode());
            masks.add(encoded.as_bytes());
        }
        let mut text = text.to_owned();
        masks.mask_text(&mut text);
        excerpt(&text)
    }

    fn check_status(
        &self,
        request: &RegistryRequest<'_>,
        url: &Uri,
        response: Response,
    ) -> Result<Response, AttemptError<OciError>> {
        let status = response.status;
        check_retryable(&response).map_err(|error| self.locate(url, error))?;
        if !matches!(status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN) {
            return Ok(response);
        }
        if !self.is_own(url) {
            return Err(self.locate(url, AttemptError::unexpected_status(status)));
        }
        let credentials = self.credentials.get().and_then(Option::as_ref);
        let credentials = credentials.map(|found| found.origin.clone());
        let detail = self.error_detail(response);
        let request = self.describe_request(request.method, request.path);
        Err(if status == StatusCode::UNAUTHORIZED {
            RegistryError::Unauthorized {
                request,
                credentials,
                detail,
            }
        } else {
            RegistryError::Denied {
                request,
                credentials,
                detail,
            }
        }
        .into())
    }
}

pub(super) fn cancelled() -> OciError {
    OciError::Cancelled { during: WAITING }
}

pub(super) fn transfer_error(error: TransferError) -> AttemptError<OciError> {
    match error {
        TransferError::Cancelled => cancelled().into(),
        error => error.into(),
    }
}

impl From<OciError> for AttemptError<OciError> {
    fn from(error: OciError) -> Self {
        Self::Final(Box::new(error))
    }
}

impl From<RegistryError> for AttemptError<OciError> {
    fn from(error: RegistryError) -> Self {
        OciError::from(error).into()
    }
}
