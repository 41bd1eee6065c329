//! The HTTP client and the classification of its errors.

use std::cell::OnceCell;
use std::sync::Arc;

use rustls::pki_types::CertificateDer;
use ureq::http::{self, Request};
use ureq::tls::{Certificate, RootCerts, TlsConfig, TlsProvider};
use ureq::unversioned::transport::{Connector as _, RustlsConnector};
use ureq::{Agent, AsSendBody, Timeout};

use crate::http::attempt::AttemptError;
use crate::http::cancellation::{Cancellation, Cancelled};
use crate::http::response::Response;
use crate::http::tcp::{NameResolver, TcpConnector};
use crate::http::timeouts::Timeouts;
use spec::path::escape;
use spec::units::limit;
use sys::name_lookup;

/// HTTP client. It follows no redirects: a redirect must not receive credentials.
#[derive(Debug)]
pub(crate) struct Client {
    timeouts: Timeouts,
    cancellation: Cancellation,
    agent: OnceCell<Agent>,
}

/// Classified error of the HTTP library.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum TransferError {
    Temporary(String),
    Unusable(String),
    /// The body is larger than the limit of its reader.
    TooLarge {
        bytes_max: u64,
    },
    NoTls,
    Cancelled,
}

impl<E> From<TransferError> for AttemptError<E> {
    fn from(error: TransferError) -> Self {
        match error {
            TransferError::Temporary(cause) => Self::temporary(cause),
            TransferError::Unusable(cause) => Self::Unusable(cause),
            TransferError::TooLarge { bytes_max } => {
                Self::Unusable(format!("the answer has more than {}", limit(&bytes_max)))
            }
            TransferError::NoTls => Self::Unusable("TLS: the server does not speak TLS".to_owned()),
            TransferError::Cancelled => Self::Unusable(Cancelled.to_string()),
        }
    }
}

impl Client {
    /// Creates a client without a connection. `cancellation` ends its waits.
    #[must_use]
    pub(crate) fn new(timeouts: Timeouts, cancellation: Cancellation) -> Self {
        Self {
            timeouts,
            cancellation,
            agent: OnceCell::new(),
        }
    }

    #[must_use]
    pub(crate) fn timeouts(&self) -> &Timeouts {
        &self.timeouts
    }

    /// Sends one request. The first request calls `roots` for the trusted certificate authorities;
    /// without any, `https://` fails in TLS.
    ///
    /// # Errors
    /// The outer error is the one of `roots`, or an invalid request. The inner one is of the
    /// transfer.
    pub(crate) fn send<E>(
        &self,
        request: http::Result<Request<impl AsSendBody>>,
        roots: impl FnOnce() -> Result<Vec<CertificateDer<'static>>, AttemptError<E>>,
    ) -> Result<Result<Response, TransferError>, AttemptError<E>> {
        let request = request
            .map_err(|_never| AttemptError::Unusable("the request is invalid".to_owned()))?;
        let agent = match self.agent.get() {
            Some(agent) => agent,
            None => {
                let agent = self.build_agent(&roots()?);
                self.agent.get_or_init(|| agent)
            }
        };
        Ok(agent
            .run(request)
            .map(Response::new)
            .map_err(|error| self.classify(&error)))
    }

    fn build_agent(&self, roots: &[CertificateDer<'static>]) -> Agent {
        let roots: Vec<Certificate<'static>> = roots
            .iter()
            .map(|certificate| Certificate::from_der(certificate).to_owned())
            .collect();
        let tls = TlsConfig::builder()
            .provider(TlsProvider::Rustls)
            .root_certs(RootCerts::from(roots))
            .unversioned_rustls_crypto_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .build();
        let timeouts = self.timeouts;
        let config = Agent::config_builder()
            .http_status_as_error(false)
            .max_redirects(0)
            .proxy(None)
            .user_agent(concat!("runner/", env!("CARGO_PKG_VERSION")))
            .tls_config(tls)
            .timeout_resolve(Some(timeouts.connect))
            .timeout_connect(Some(timeouts.connect))
            .timeout_recv_response(Some(timeouts.head))
            .timeout_per_read(Some(timeouts.stall))
            .timeout_per_write(Some(timeouts.stall))
            .timeout_per_call(Some(timeouts.whole))
            .build();
        // A failure leaves the order of nsswitch.conf, which is usually the same.
        let _result = name_lookup::only_files_and_dns();
        let connector = TcpConnector {
            cancellation: self.cancellation.clone(),
        };
        let resolver = NameResolver {
            cancellation: self.cancellation.clone(),
        };
        Agent::with_parts(
            config,
            connector.chain(RustlsConnector::default()),
            resolver,
        )
    }

    /// Classifies an error of the reader of a body.
    #[must_use]
    pub(crate) fn read_error(&self, error: std::io::Error) -> TransferError {
        self.classify(&ureq::Error::from(error))
    }

    /// Quotes the text of the library only where it cannot contain a URL: the URL of a redirect may
    /// be a credential.
    fn classify(&self, error: &ureq::Error) -> TransferError {
        let temporary = TransferError::Temporary;
        match error {
            ureq::Error::Timeout(which) => temporary(self.timed_out(*which)),
            ureq::Error::Io(error) if is_cancelled(error) => TransferError::Cancelled,
            ureq::Error::Rustls(rustls::Error::InvalidMessage(_)) => TransferError::NoTls,
            ureq::Error::Io(error) if is_no_tls(error) => TransferError::NoTls,
            ureq::Error::Io(error) if error.kind() == std::io::ErrorKind::InvalidData => {
                TransferError::Unusable(describe("TLS: ", error))
            }
            ureq::Error::Io(error) => match timeout_inside(error) {
                Some(which) => temporary(self.timed_out(which)),
                None => temporary(describe("", error)),
            },
            ureq::Error::HostNotFound => temporary("the host has no address".to_owned()),
            ureq::Error::ConnectionFailed => temporary("no connection".to_owned()),
            // How the data is split decides whether this limit or `LargeResponseHeader` applies.
            ureq::Error::Protocol(ureq_proto::Error::HttpParseTooManyHeaders) => {
                TransferError::Unusable("the head of the answer has too many fields".to_owned())
            }
            ureq::Error::Protocol(error) => temporary(describe("no HTTP: ", error)),
            ureq::Error::Rustls(error) => TransferError::Unusable(describe("TLS: ", error)),
            ureq::Error::Tls(error) => TransferError::Unusable(describe("TLS: ", error)),
            ureq::Error::LargeResponseHeader(found, limit) => TransferError::Unusable(format!(
                "the head of the answer has {found} bytes, expected at most {limit}"
            )),
            _ => TransferError::Unusable("the request could not be made".to_owned()),
        }
    }

    fn timed_out(&self, which: Timeout) -> String {
        let timeouts = &self.timeouts;
        match which {
            Timeout::Resolve => format!("no address within {:?}", timeouts.connect),
            Timeout::Connect => format!("no connection within {:?}", timeouts.connect),
            Timeout::RecvResponse => format!("no answer within {:?}", timeouts.head),
            Timeout::PerRead | Timeout::PerWrite => {
                format!("nothing was sent or received for {:?}", timeouts.stall)
            }
            _ => format!("the request took longer than {:?}", timeouts.whole),
        }
    }
}

/// Escapes the text, since the library may quote the server.
fn describe(prefix: &str, error: &dyn std::fmt::Display) -> String {
    escape(format!("{prefix}{error}").as_bytes())
}

fn timeout_inside(error: &std::io::Error) -> Option<Timeout> {
    match error.get_ref()?.downcast_ref::<ureq::Error>()? {
        ureq::Error::Timeout(which) => Some(*which),
        _ => None,
    }
}

/// Searches the chain: TLS and the library may wrap the error.
fn is_cancelled(error: &std::io::Error) -> bool {
    let Some(inside) = error.get_ref() else {
        return false;
    };
    if inside.is::<Cancelled>() {
        return true;
    }
    match inside.downcast_ref::<ureq::Error>() {
        Some(ureq::Error::Io(error)) => is_cancelled(error),
        _ => inside.downcast_ref().is_some_and(is_cancelled),
    }
}

fn is_no_tls(error: &std::io::Error) -> bool {
    let inside = error.get_ref().and_then(|inside| inside.downcast_ref());
    matches!(inside, Some(rustls::Error::InvalidMessage(_)))
}
