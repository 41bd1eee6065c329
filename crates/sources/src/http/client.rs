//! The HTTP client and the meaning of its errors.

use std::cell::OnceCell;
use std::sync::Arc;

use rustls::pki_types::CertificateDer;
use ureq::http::Request;
use ureq::tls::{Certificate, RootCerts, TlsConfig, TlsProvider};
use ureq::unversioned::transport::{Connector as _, RustlsConnector};
use ureq::{Agent, AsSendBody, Timeout};

use crate::http::fault::Fault;
use crate::http::response::Response;
use crate::http::timeouts::Timeouts;
use crate::http::watch::{Cancelled, Watch};
use crate::http::wire::{Dialler, Lookup};
use spec::path::escape;
use spec::units::limit;
use sys::name_lookup;

const NO_TLS: &str = "TLS: the server does not speak TLS";

/// HTTP client. It follows no redirects: a redirect must not receive credentials.
#[derive(Debug)]
pub(crate) struct Client {
    timeouts: Timeouts,
    watch: Watch,
    agent: OnceCell<Agent>,
}

/// Classified error of the HTTP library.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum TransferError {
    Passing(String),
    Unusable(String),
    /// The body is larger than its reader takes.
    TooLarge {
        bytes_max: u64,
    },
    NoTls,
    Cancelled,
}

impl<E> From<TransferError> for Fault<E> {
    fn from(error: TransferError) -> Self {
        match error {
            TransferError::Passing(cause) => Self::passing(cause),
            TransferError::Unusable(cause) => Self::Unusable(cause),
            TransferError::TooLarge { bytes_max } => {
                Self::Unusable(format!("the answer has more than {}", limit(&bytes_max)))
            }
            TransferError::NoTls => Self::Unusable(NO_TLS.to_owned()),
            TransferError::Cancelled => Self::Unusable(Cancelled.to_string()),
        }
    }
}

impl Client {
    /// Creates a client. `watch` can end its waits. No connection is opened yet.
    #[must_use]
    pub(crate) fn new(timeouts: Timeouts, watch: Watch) -> Self {
        Self {
            timeouts,
            watch,
            agent: OnceCell::new(),
        }
    }

    /// Returns the watch that can end the waits.
    #[must_use]
    pub(crate) fn watch(&self) -> &Watch {
        &self.watch
    }

    /// Returns the time-outs.
    #[must_use]
    pub(crate) fn timeouts(&self) -> &Timeouts {
        &self.timeouts
    }

    /// Sends one request. The first request calls `trust` for the trusted certificate authorities;
    /// without any, `https://` fails in TLS.
    ///
    /// # Errors
    /// The error of `trust`, or a [`TransferError`] as a [`Fault`].
    pub(crate) fn send<E>(
        &self,
        request: Request<impl AsSendBody>,
        trust: impl FnOnce() -> Result<Vec<CertificateDer<'static>>, Fault<E>>,
    ) -> Result<Result<Response, TransferError>, Fault<E>> {
        let agent = match self.agent.get() {
            Some(agent) => agent,
            None => {
                let agent = self.made(&trust()?);
                self.agent.get_or_init(|| agent)
            }
        };
        Ok(agent
            .run(request)
            .map(Response::new)
            .map_err(|error| self.error(&error)))
    }

    fn made(&self, trusted: &[CertificateDer<'static>]) -> Agent {
        let roots: Vec<Certificate<'static>> = trusted
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
        // If the C library ignores it, nsswitch.conf applies, which usually has the same order.
        let _taken = name_lookup::only_files_and_dns();
        let watch = self.watch.clone();
        let connector = Dialler {
            watch: watch.clone(),
        }
        .chain(RustlsConnector::default());
        Agent::with_parts(config, connector, Lookup { watch })
    }

    /// Classifies an error of a body's reader.
    #[must_use]
    pub(crate) fn read_error(&self, error: std::io::Error) -> TransferError {
        self.error(&ureq::Error::from(error))
    }

    /// Uses the library's text only where it cannot contain a URL: the URL of a redirect may be a
    /// credential.
    fn error(&self, error: &ureq::Error) -> TransferError {
        let passing = TransferError::Passing;
        match error {
            ureq::Error::Timeout(which) => passing(self.timed_out(*which)),
            ureq::Error::Io(error) if is_cancelled(error) => TransferError::Cancelled,
            ureq::Error::Rustls(rustls::Error::InvalidMessage(_)) => TransferError::NoTls,
            ureq::Error::Io(error) if is_no_tls(error) => TransferError::NoTls,
            ureq::Error::Io(error) if error.kind() == std::io::ErrorKind::InvalidData => {
                TransferError::Unusable(shown("TLS: ", error))
            }
            ureq::Error::Io(error) => match timeout_inside(error) {
                Some(which) => passing(self.timed_out(which)),
                None => passing(shown("", error)),
            },
            ureq::Error::HostNotFound => passing("the host has no address".to_owned()),
            ureq::Error::ConnectionFailed => passing("no connection".to_owned()),
            // Which limit of a head applies first depends on how the data is split.
            ureq::Error::Protocol(ureq_proto::Error::HttpParseTooManyHeaders) => {
                TransferError::Unusable("the head of the answer has too many fields".to_owned())
            }
            ureq::Error::Protocol(error) => passing(shown("no HTTP: ", error)),
            ureq::Error::Rustls(error) => TransferError::Unusable(shown("TLS: ", error)),
            ureq::Error::Tls(error) => TransferError::Unusable(shown("TLS: ", error)),
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

/// The library may quote the server: a name in a certificate, a line of a head. So the text is
/// escaped.
fn shown(start: &str, error: &dyn std::fmt::Display) -> String {
    escape(format!("{start}{error}").as_bytes())
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
