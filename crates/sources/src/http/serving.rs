//! What the fetcher does: the requests that its link asks for, one after another.

use std::io::{self, Read, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;

use ureq::http::{Request, Response};
use ureq::{Agent, Body, BodyReader, SendBody, Timeout};

use crate::http::message::{
    Failure, Message, PART_BYTES_MAX, PREFIX_BYTES, Phase, RequestHead, ResponseHead, to_fields,
    to_headers,
};

/// Answers the messages of the client until it closes the link.
pub(super) fn serve(link: OwnedFd, agent: &Agent) {
    let link = UnixStream::from(link);
    let mut download: Option<Download> = None;
    // An error is the end of the client.
    while let Ok(message) = receive(&link) {
        let answer = match message {
            Message::Request(head) => {
                // Closes the connection if the body was not read to its end.
                download = None;
                match request(&link, agent, &head) {
                    Ok(response) => {
                        let (head, body) = Download::begin(response);
                        download = Some(body);
                        Message::Head(head)
                    }
                    Err(error) => Message::Failure(Failure::of(&error)),
                }
            }
            Message::More => match download.as_mut().map(Download::next) {
                Some(Ok((bytes, is_last))) => Message::Part { bytes, is_last },
                Some(Err(error)) => Message::Failure(Failure::of(&ureq::Error::from(error))),
                None => Message::Failure(Failure::Other),
            },
            _ => return,
        };
        if send(&link, &answer).is_err() {
            return;
        }
    }
}

fn send(mut link: &UnixStream, message: &Message) -> io::Result<()> {
    link.write_all(&message.encode())
}

fn receive(mut link: &UnixStream) -> io::Result<Message> {
    let mut prefix = [0; PREFIX_BYTES];
    link.read_exact(&mut prefix)?;
    let malformed = |_malformed| io::Error::from(io::ErrorKind::InvalidInput);
    let mut payload = vec![0; Message::payload_bytes(prefix).map_err(malformed)?];
    link.read_exact(&mut payload)?;
    Message::decode(prefix[0], payload).map_err(malformed)
}

fn request(
    link: &UnixStream,
    agent: &Agent,
    head: &RequestHead,
) -> Result<Response<Body>, ureq::Error> {
    let mut request = Request::builder()
        .method(head.method.as_str())
        .uri(head.url.as_str());
    if let Some(headers) = request.headers_mut() {
        *headers = to_headers(&head.fields)
            .map_err(|_malformed| io::Error::from(io::ErrorKind::InvalidInput))?;
    }
    if head.has_body {
        let mut upload = Upload {
            link,
            part: Vec::new(),
            used: 0,
        };
        agent.run(request.body(SendBody::from_reader(&mut upload))?)
    } else {
        agent.run(request.body(SendBody::none())?)
    }
}

/// The body of a request, which the client sends in parts.
struct Upload<'link> {
    link: &'link UnixStream,
    part: Vec<u8>,
    used: usize,
}

impl Read for Upload<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.used == self.part.len() {
            send(self.link, &Message::More)?;
            match receive(self.link)? {
                Message::Part { bytes, .. } => (self.part, self.used) = (bytes, 0),
                _ => return Err(io::ErrorKind::InvalidInput.into()),
            }
        }
        let mut rest = self.part.get(self.used..).unwrap_or_default();
        let count = rest.read(buffer)?;
        self.used += count;
        Ok(count)
    }
}

/// The body of a response.
struct Download {
    reader: BodyReader<'static>,
    /// Bytes that are missing, if the server stated the length.
    left: Option<u64>,
    part: Vec<u8>,
    /// An error of the start of the body, which is told when the client asks for more.
    failed: Option<io::Error>,
}

impl Download {
    fn begin(response: Response<Body>) -> (ResponseHead, Self) {
        let (head, body) = response.into_parts();
        let stated_bytes = body.content_length();
        let mut download = Self {
            reader: body.into_with_config().limit(u64::MAX).reader(),
            left: stated_bytes,
            part: vec![0; PART_BYTES_MAX],
            failed: None,
        };
        let mut head = ResponseHead {
            status: head.status.as_u16(),
            fields: to_fields(&head.headers),
            stated_bytes,
            is_whole: false,
            start: Vec::new(),
        };
        // The body of an error or a redirect may never arrive, and need not be read.
        if (200..300).contains(&head.status) {
            match download.next() {
                Ok((start, is_last)) => (head.start, head.is_whole) = (start, is_last),
                Err(error) => download.failed = Some(error),
            }
        }
        (head, download)
    }

    /// Returns the next part, and whether it is the last one.
    fn next(&mut self) -> io::Result<(Vec<u8>, bool)> {
        if let Some(error) = self.failed.take() {
            return Err(error);
        }
        let count = self.read()?;
        let bytes = self.part.get(..count).unwrap_or_default().to_vec();
        let left = self.left.and_then(|left| left.checked_sub(count as u64));
        self.left = left;
        // At the end of the body the connection returns to the pool.
        let is_last = count == 0 || (left == Some(0) && self.read()? == 0);
        Ok((bytes, is_last))
    }

    fn read(&mut self) -> io::Result<usize> {
        loop {
            match self.reader.read(&mut self.part) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => (),
                other => return other,
            }
        }
    }
}

impl Failure {
    /// Quotes the text of the library only where it cannot contain a URL: the URL of a redirect may
    /// be a credential.
    fn of(error: &ureq::Error) -> Self {
        match error {
            ureq::Error::Timeout(which) => Self::TimedOut(Phase::of(*which)),
            ureq::Error::Rustls(rustls::Error::InvalidMessage(_)) => Self::NoTls,
            ureq::Error::Io(error) if is_no_tls(error) => Self::NoTls,
            ureq::Error::Io(error) if error.kind() == io::ErrorKind::InvalidData => {
                Self::Tls(Self::text(error))
            }
            ureq::Error::Io(error) => match timeout_inside(error) {
                Some(which) => Self::TimedOut(Phase::of(which)),
                None => Self::Io(Self::text(error)),
            },
            ureq::Error::HostNotFound => Self::NoAddress,
            ureq::Error::ConnectionFailed => Self::NoConnection,
            // How the data is split decides whether this limit or `LargeResponseHeader` applies.
            ureq::Error::Protocol(ureq_proto::Error::HttpParseTooManyHeaders) => {
                Self::TooManyFields
            }
            ureq::Error::Protocol(error) => Self::Protocol(Self::text(error)),
            ureq::Error::Rustls(error) => Self::Tls(Self::text(error)),
            ureq::Error::Tls(error) => Self::Tls(Self::text(error)),
            ureq::Error::LargeResponseHeader(found, limit) => Self::LargeHead {
                found: *found as u64,
                limit: *limit as u64,
            },
            _ => Self::Other,
        }
    }
}

impl Phase {
    fn of(timeout: Timeout) -> Self {
        match timeout {
            Timeout::Resolve => Self::Lookup,
            Timeout::Connect => Self::Connect,
            Timeout::RecvResponse => Self::Head,
            Timeout::PerRead | Timeout::PerWrite => Self::Transfer,
            _ => Self::Whole,
        }
    }
}

fn timeout_inside(error: &io::Error) -> Option<Timeout> {
    match error.get_ref()?.downcast_ref::<ureq::Error>()? {
        ureq::Error::Timeout(which) => Some(*which),
        _ => None,
    }
}

fn is_no_tls(error: &io::Error) -> bool {
    let inside = error.get_ref().and_then(|inside| inside.downcast_ref());
    matches!(inside, Some(rustls::Error::InvalidMessage(_)))
}
