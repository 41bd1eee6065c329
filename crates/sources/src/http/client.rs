//! The HTTP client, and the errors of its fetcher.

use std::cell::{Cell, OnceCell, RefCell};
use std::io::{ErrorKind, Read};
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustls::pki_types::CertificateDer;
use ureq::Agent;
use ureq::http::{self, HeaderMap, Request, StatusCode};
use ureq::tls::{Certificate, RootCerts, TlsConfig, TlsProvider};
use ureq::unversioned::transport::{Connector as _, RustlsConnector};

use crate::http::attempt::AttemptError;
use crate::http::cancellation::Cancellation;
use crate::http::message::{
    Failure, Message, PART_BYTES_MAX, Phase, RequestHead, quote, to_fields, to_headers, to_status,
};
use crate::http::names::{NameSettings, Names};
use crate::http::overwriting::Overwriting;
use crate::http::process::{Fetcher, LinkError, WaitLimit};
use crate::http::response::Response;
use crate::http::tcp::TcpConnector;
use crate::http::timeouts::Timeouts;
use spec::parse_permit::ParsePermit;
use spec::units::limit;
use sys::allocator::keep_from_children;

/// What the fetcher may take beyond [`Timeouts::whole`], which it measures itself.
const ANSWER_DELAY: Duration = Duration::from_secs(5);

/// HTTP client. It follows no redirects: a redirect must not receive credentials.
///
/// A process without rights makes the requests ([`Fetcher`]): names, addresses, certificates, heads and
/// bodies of strangers are parsed there. It starts with the first request and ends with the client.
#[derive(Debug)]
pub(crate) struct Client {
    settings: OnceCell<AgentSettings>,
    connection: Rc<Connection>,
}

/// The link to the fetcher, which the client shares with its responses.
#[derive(Debug)]
pub(super) struct Connection {
    timeouts: Timeouts,
    cancellation: Cancellation,
    fetcher: RefCell<Option<Fetcher>>,
    /// The current request: bodies of earlier ones can no longer be read.
    current: Cell<u64>,
}

/// What is sent after the head of a request.
pub(crate) type Upload<'call> = Option<&'call mut dyn Read>;

/// Classified error of a request.
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
            TransferError::Cancelled => Self::Unusable("cancelled".to_owned()),
        }
    }
}

impl Client {
    /// Creates a client without a connection. `cancellation` ends its waits.
    #[must_use]
    pub(crate) fn new(timeouts: Timeouts, cancellation: Cancellation) -> Self {
        Self {
            settings: OnceCell::new(),
            connection: Rc::new(Connection {
                timeouts,
                cancellation,
                fetcher: RefCell::new(None),
                current: Cell::new(0),
            }),
        }
    }

    #[must_use]
    pub(crate) fn timeouts(&self) -> &Timeouts {
        &self.connection.timeouts
    }

    /// Sends one request. The first request calls `roots` for the trusted certificate authorities;
    /// without any, `https://` fails in TLS. A body needs its length in the headers.
    ///
    /// # Errors
    /// The outer error is the one of `roots`, or an invalid request. The inner one is of the
    /// transfer.
    pub(crate) fn send<E>(
        &self,
        request: http::Result<Request<Upload<'_>>>,
        roots: impl FnOnce() -> Result<Vec<CertificateDer<'static>>, AttemptError<E>>,
    ) -> Result<Result<Response, TransferError>, AttemptError<E>> {
        let request = request
            .map_err(|_never| AttemptError::Unusable("the request is invalid".to_owned()))?;
        let settings = match self.settings.get() {
            Some(settings) => settings,
            None => {
                let settings = AgentSettings {
                    timeouts: *self.timeouts(),
                    roots: roots()?,
                    names: NameSettings::of_host(),
                };
                self.settings.get_or_init(|| settings)
            }
        };
        Ok(self.connection.request(settings, request))
    }
}

impl Connection {
    fn request(
        self: &Rc<Self>,
        settings: &AgentSettings,
        request: Request<Upload<'_>>,
    ) -> Result<Response, TransferError> {
        let (head, mut upload) = request.into_parts();
        self.current.set(self.current.get() + 1);
        let until = Instant::now().checked_add(self.timeouts.whole.saturating_add(ANSWER_DELAY));
        if self.fetcher.borrow().is_none() {
            let fetcher = Fetcher::start(settings).map_err(|errno| {
                TransferError::Unusable(format!("the fetcher could not be started: {errno}"))
            })?;
            self.fetcher.replace(Some(fetcher));
        }
        let mut message = keep_from_children(|| {
            Message::Request(RequestHead {
                method: head.method.to_string(),
                url: head.uri.to_string(),
                fields: to_fields(&head.headers),
                has_body: upload.is_some(),
            })
        });
        loop {
            match (self.exchange(&message, until)?, &mut upload) {
                (Message::More, Some(source)) => {
                    let part = keep_from_children(|| read_part(source));
                    message = part.inspect_err(|_error| self.end())?;
                }
                (Message::Head(head), _) => {
                    let response = Response::new(head, Rc::clone(self), self.current.get(), until);
                    return response.map_err(|malformed| self.failed(malformed.into()));
                }
                (Message::Failure(failure), _) => {
                    return Err(failure.classify(&self.timeouts));
                }
                _ => return Err(self.failed(LinkError::Malformed)),
            }
        }
    }

    /// Returns the next part of the body of the request `number`, and whether it is the last one.
    pub(super) fn next_part(
        &self,
        number: u64,
        until: Option<Instant>,
    ) -> Result<(Vec<u8>, bool), TransferError> {
        if self.current.get() != number {
            let problem = "another request was made before the end of the answer";
            return Err(TransferError::Unusable(problem.to_owned()));
        }
        match self.exchange(&Message::More, until)? {
            Message::Part { bytes, is_last } => Ok((bytes, is_last)),
            Message::Failure(failure) => Err(failure.classify(&self.timeouts)),
            _ => Err(self.failed(LinkError::Malformed)),
        }
    }

    fn exchange(
        &self,
        message: &Message,
        until: Option<Instant>,
    ) -> Result<Message, TransferError> {
        let limit = WaitLimit {
            until,
            cancellation: &self.cancellation,
        };
        let exchanged = match self.fetcher.borrow().as_ref() {
            Some(fetcher) => fetcher.exchange(message, limit),
            None => Err(LinkError::Gone),
        };
        exchanged.map_err(|error| self.failed(error))
    }

    /// Ends the fetcher, whose link is out of step. The next request starts another one.
    fn end(&self) {
        drop(self.fetcher.take());
    }

    fn failed(&self, error: LinkError) -> TransferError {
        self.end();
        match error {
            LinkError::Cancelled => TransferError::Cancelled,
            LinkError::Late => TransferError::Temporary(Phase::Whole.timed_out(&self.timeouts)),
            LinkError::Gone => TransferError::Unusable(
                "the fetcher ended without an answer, perhaps for want of memory".to_owned(),
            ),
            LinkError::Malformed => {
                TransferError::Unusable("the answer of the fetcher is malformed".to_owned())
            }
            LinkError::Host(errno) => {
                TransferError::Unusable(format!("the fetcher cannot be reached: {errno}"))
            }
        }
    }
}

impl Failure {
    fn classify(self, timeouts: &Timeouts) -> TransferError {
        use TransferError::{Temporary, Unusable};
        match self {
            Self::TimedOut(phase) => Temporary(phase.timed_out(timeouts)),
            Self::NoTls => TransferError::NoTls,
            Self::Tls(text) => Unusable(quote("TLS: ", &text)),
            Self::Io(text) => Temporary(quote("", &text)),
            Self::NoAddress => Temporary("the host has no address".to_owned()),
            Self::NoConnection => Temporary("no connection".to_owned()),
            Self::TooManyFields => {
                Unusable("the head of the answer has too many fields".to_owned())
            }
            Self::LargeHead { found, limit } => Unusable(format!(
                "the head of the answer has {found} bytes, expected at most {limit}"
            )),
            Self::Protocol(text) => Temporary(quote("no HTTP: ", &text)),
            Self::Other => Unusable("the request could not be made".to_owned()),
        }
    }
}

impl Phase {
    fn timed_out(self, timeouts: &Timeouts) -> String {
        match self {
            Self::Lookup => format!("no address within {:?}", timeouts.connect),
            Self::Connect => format!("no connection within {:?}", timeouts.connect),
            Self::Head => format!("no answer within {:?}", timeouts.head),
            Self::Transfer => {
                format!("nothing was sent or received for {:?}", timeouts.stall)
            }
            Self::Whole => format!("the request took longer than {:?}", timeouts.whole),
        }
    }
}

/// What the fetcher knows of this host: it opens no file.
#[derive(Debug)]
pub(super) struct AgentSettings {
    timeouts: Timeouts,
    /// The trusted certificate authorities.
    roots: Vec<CertificateDer<'static>>,
    names: NameSettings,
}

impl AgentSettings {
    /// Makes the agent, which parses what servers and name servers answer.
    pub(super) fn build_agent(&self, permit: ParsePermit) -> Agent {
        let timeouts = &self.timeouts;
        let roots: Vec<Certificate<'static>> = self
            .roots
            .iter()
            .map(|certificate| Certificate::from_der(certificate).to_owned())
            .collect();
        let tls = TlsConfig::builder()
            .provider(TlsProvider::Rustls)
            .root_certs(RootCerts::from(roots))
            .unversioned_rustls_crypto_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .build();
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
        let connector = TcpConnector
            .chain(RustlsConnector::default())
            .chain(Overwriting);
        let names = Names {
            settings: self.names.clone(),
            permit,
        };
        Agent::with_parts(config, connector, names)
    }
}

/// What a client makes of a message of its fetcher.
#[derive(Debug)]
pub enum FetcherAnswer {
    Head {
        status: StatusCode,
        headers: HeaderMap,
    },
    /// Some bytes of a body.
    Part(Vec<u8>),
    /// The text of the error.
    Failure(String),
}

/// Parses a message of a fetcher, as its client receives it. `None`: no fetcher answers so.
#[must_use]
pub fn read_fetcher_answer(bytes: &[u8]) -> Option<FetcherAnswer> {
    match Message::read(bytes).ok()? {
        Message::Head(head) => Some(FetcherAnswer::Head {
            status: to_status(head.status).ok()?,
            headers: to_headers(&head.fields).ok()?,
        }),
        Message::Part { bytes, .. } => Some(FetcherAnswer::Part(bytes)),
        Message::Failure(failure) => {
            let text = match failure.classify(&Timeouts::default()) {
                TransferError::Temporary(text) | TransferError::Unusable(text) => text,
                TransferError::TooLarge { .. }
                | TransferError::NoTls
                | TransferError::Cancelled => String::new(),
            };
            Some(FetcherAnswer::Failure(text))
        }
        Message::Request(_) | Message::More => None,
    }
}

fn read_part(source: &mut dyn Read) -> Result<Message, TransferError> {
    let mut bytes = vec![0; PART_BYTES_MAX];
    loop {
        match source.read(&mut bytes) {
            Ok(count) => {
                bytes.truncate(count);
                let is_last = count == 0;
                return Ok(Message::Part { bytes, is_last });
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => (),
            Err(error) => return Err(TransferError::Temporary(quote("", &error.to_string()))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{SocketAddr, TcpListener, UdpSocket};
    use std::os::unix::net::UnixStream;
    use std::sync::atomic::{AtomicU32, Ordering};

    use crate::http::message::ResponseHead;

    /// A client whose fetcher says `said`, whatever it is asked, and then waits for its end.
    fn of_forged(said: Vec<u8>, cancellation: Cancellation) -> Client {
        let client = Client::new(Timeouts::default(), cancellation);
        let fetcher = Fetcher::serving(move |_permit, link| {
            let mut link = UnixStream::from(link);
            std::io::Write::write_all(&mut link, &said).expect("written");
            if !said.is_empty() {
                let _end = std::io::copy(&mut link, &mut std::io::sink());
            }
        });
        let fetcher = fetcher.expect("started");
        client.connection.fetcher.replace(Some(fetcher));
        client
    }

    fn send(client: &Client, upload: Upload<'_>) -> Result<Response, TransferError> {
        let request = Request::get("http://127.0.0.1:1/").body(upload);
        let sent = client.send(request, || Ok::<_, AttemptError<()>>(Vec::new()));
        sent.expect("a request")
    }

    fn head() -> Message {
        Message::Head(ResponseHead {
            status: 200,
            fields: vec![("x".to_owned(), "y".to_owned())],
            stated_bytes: Some(3),
            is_whole: false,
            start: Vec::new(),
        })
    }

    fn part(bytes: &[u8], is_last: bool) -> Message {
        let bytes = bytes.to_vec();
        Message::Part { bytes, is_last }
    }

    /// A-64.
    #[test]
    fn a_forged_head_is_an_error_and_ends_the_fetcher() {
        let with = |change: fn(&mut ResponseHead)| match head() {
            Message::Head(mut head) => {
                change(&mut head);
                Message::Head(head).encode()
            }
            other => other.encode(),
        };
        let malformed = "the answer of the fetcher is malformed";
        let ended = "the fetcher ended without an answer, perhaps for want of memory";
        for (said, cause) in [
            (Vec::new(), ended),
            (b"HTTP/1.1 200 OK\r\n\r\n".to_vec(), malformed),
            (vec![5, 0xff, 0xff, 0xff, 0x7f], malformed),
            (Message::More.encode(), malformed),
            (part(b"x", true).encode(), malformed),
            (with(|head| head.status = 100), malformed),
            (with(|head| head.status = 1000), malformed),
            (with(|head| head.fields[0].0 = "a\nb".to_owned()), malformed),
            (with(|head| head.fields[0].1 = "a\nb".to_owned()), malformed),
        ] {
            let client = of_forged(said, Cancellation::default());
            let error = send(&client, None).expect_err(cause);
            assert_eq!(error, TransferError::Unusable(cause.to_owned()));
            assert!(client.connection.fetcher.borrow().is_none());
        }
    }

    /// A-64.
    #[test]
    fn a_forged_body_is_an_error_and_ends_the_fetcher() {
        for then in [
            head().encode(),
            Message::More.encode(),
            vec![3, 0, 0, 0, 0],
            vec![3, 1, 0, 1, 0],
        ] {
            let said = [head().encode(), part(b"abc", false).encode(), then].concat();
            let client = of_forged(said, Cancellation::default());
            let mut response = send(&client, None).expect("a head");
            assert_eq!(response.stated_bytes(), Some(3));
            let mut buffer = [0; 2];
            assert_eq!(response.read(&mut buffer), Ok(2));
            assert_eq!(response.read(&mut buffer), Ok(1));
            let error = response.read(&mut buffer).expect_err("malformed");
            assert!(matches!(error, TransferError::Unusable(_)), "{error:?}");
            assert!(client.connection.fetcher.borrow().is_none());
        }
    }

    #[test]
    fn more_than_a_server_stated_is_counted_by_the_client() {
        let said = [head(), part(&[b'x'; 9], false), part(b"", true)];
        let said: Vec<u8> = said.iter().flat_map(Message::encode).collect();
        let client = of_forged(said, Cancellation::default());
        let response = send(&client, None).expect("a head");
        let error = response.bytes(&client, 8).expect_err("more");
        assert_eq!(error, TransferError::TooLarge { bytes_max: 8 });
    }

    #[test]
    fn texts_of_the_fetcher_are_escaped_and_short() {
        let long = "\u{1b}[31m".repeat(60);
        for (failure, start) in [
            (Failure::Io(long.clone()), "\\x1b[31m"),
            (Failure::Tls(long.clone()), "TLS: \\x1b[31m"),
            (Failure::Protocol(long), "no HTTP: \\x1b[31m"),
        ] {
            let said = Message::Failure(failure).encode();
            let client = of_forged(said, Cancellation::default());
            let error = send(&client, None).expect_err("failed");
            let (TransferError::Temporary(cause) | TransferError::Unusable(cause)) = error else {
                panic!("{error:?}");
            };
            assert!(cause.starts_with(start) && cause.len() < 1000, "{cause}");
            assert!(!cause.contains('\u{1b}'), "{cause}");
        }
    }

    /// Cancels at the second look.
    fn soon_cancelled() -> Cancellation {
        let looks = AtomicU32::new(0);
        Cancellation::new(Arc::new(move || looks.fetch_add(1, Ordering::Relaxed) > 0))
    }

    #[test]
    fn a_fetcher_that_asks_for_more_than_there_is_can_be_cancelled() {
        let said = Message::More.encode().repeat(1000);
        let client = of_forged(said, soon_cancelled());
        let error = send(&client, Some(&mut std::io::empty())).expect_err("cancelled");
        assert_eq!(error, TransferError::Cancelled);
    }

    #[test]
    fn a_fetcher_that_says_half_a_message_can_be_cancelled() {
        let said = head().encode();
        let client = of_forged(said[..said.len() - 1].to_vec(), soon_cancelled());
        let error = send(&client, None).expect_err("cancelled");
        assert_eq!(error, TransferError::Cancelled);
        assert!(client.connection.fetcher.borrow().is_none());
    }

    /// Answers queries for the addresses of `r.corp` with 127.0.0.1, and knows no other name.
    fn name_server() -> SocketAddr {
        let socket = UdpSocket::bind("127.0.0.1:0").expect("bound");
        let address = socket.local_addr().expect("bound");
        // It ends with the process.
        std::thread::spawn(move || {
            let mut buffer = [0; 512];
            loop {
                let (count, from) = socket.recv_from(&mut buffer).expect("received");
                let end = 12
                    + buffer[12..count]
                        .iter()
                        .position(|byte| *byte == 0)
                        .expect("a name");
                let mut answer = buffer[..end + 5].to_vec();
                let is_known = answer[12..=end] == *b"\x01r\x04corp\0";
                let is_v4 = answer[end + 2] == 1;
                (answer[2], answer[3]) = (0x81, if is_known { 0x80 } else { 0x83 });
                (answer[7], answer[11]) = (u8::from(is_known && is_v4), 0);
                if is_known && is_v4 {
                    answer.extend([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 9, 0, 4, 127, 0, 0, 1]);
                }
                socket.send_to(&answer, from).expect("sent");
            }
        });
        address
    }

    #[test]
    fn the_fetcher_asks_the_name_server_and_searches_the_domains() {
        let server = TcpListener::bind("127.0.0.1:0").expect("bound");
        let port = server.local_addr().expect("bound").port();
        std::thread::spawn(move || {
            let (mut stream, _) = server.accept().expect("accepted");
            let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
            std::io::Write::write_all(&mut stream, answer).expect("written");
            let _end = std::io::copy(&mut stream, &mut std::io::sink());
        });
        let client = Client::new(Timeouts::default(), Cancellation::default());
        let settings = AgentSettings {
            timeouts: *client.timeouts(),
            roots: Vec::new(),
            names: NameSettings::of_server(
                name_server(),
                b"10.0.0.1 other\n",
                b"search a.com corp",
            ),
        };
        client.settings.set(settings).expect("unset");
        let send = |host: &str| {
            let request = Request::get(format!("http://{host}:{port}/")).body(None);
            let sent = client.send(request, || Ok::<_, AttemptError<()>>(Vec::new()));
            sent.expect("a request")
        };
        let error = send("unknown").expect_err("no address");
        let cause = "the host has no address".to_owned();
        assert_eq!(error, TransferError::Temporary(cause));
        let response = send("r").expect("an answer");
        assert_eq!(response.bytes(&client, 100), Ok(b"ok".to_vec()));
    }

    #[test]
    fn an_upload_that_cannot_be_read_ends_the_fetcher() {
        struct Broken;
        impl Read for Broken {
            fn read(&mut self, _buffer: &mut [u8]) -> std::io::Result<usize> {
                Err(ErrorKind::UnexpectedEof.into())
            }
        }
        let client = of_forged(Message::More.encode(), Cancellation::default());
        let error = send(&client, Some(&mut Broken)).expect_err("unreadable");
        assert!(matches!(error, TransferError::Temporary(_)), "{error:?}");
        assert!(client.connection.fetcher.borrow().is_none());
    }
}
