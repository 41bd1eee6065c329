//! One request to a server in a sandbox, and its answer: HTTP/1.1, of which nothing is trusted.

use std::io::{Error, ErrorKind};

use axum::body::Body;
use axum::http::response::Parts;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode, header};
use hyper::body::Bytes;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::time::timeout;

use crate::serve::body::{Pieces, STALL};

/// Most bytes and lines of a head.
const HEAD_BYTES_MAX: usize = 32 << 10;
const HEADERS_MAX: usize = 100;
/// Most bytes of the line before a chunk.
const CHUNK_LINE_BYTES_MAX: usize = 4 << 10;
const PIECE_BYTES: usize = 64 << 10;

/// How the body of a request is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sending {
    Nothing,
    /// As long as its header says.
    Plain,
    Chunks,
}

/// Sends a head and a body. Returns the connection for what follows.
pub(super) async fn send(
    mut to: OwnedWriteHalf,
    head: Vec<u8>,
    body: Body,
    sending: Sending,
) -> std::io::Result<OwnedWriteHalf> {
    write(&mut to, &head).await?;
    if sending == Sending::Nothing {
        return Ok(to);
    }
    let gone = |_error| Error::from(ErrorKind::ConnectionAborted);
    let mut pieces = Pieces::new(body, u64::MAX).map_err(gone)?;
    while let Some(piece) = pieces.next().await.map_err(gone)? {
        // An empty chunk would be the end.
        if piece.is_empty() {
            continue;
        }
        if sending == Sending::Chunks {
            let chunk = [format!("{:x}\r\n", piece.len()).as_bytes(), &piece, b"\r\n"].concat();
            write(&mut to, &chunk).await?;
        } else {
            write(&mut to, &piece).await?;
        }
    }
    if sending == Sending::Chunks {
        write(&mut to, b"0\r\n\r\n").await?;
    }
    Ok(to)
}

async fn write(to: &mut OwnedWriteHalf, bytes: &[u8]) -> std::io::Result<()> {
    let written = timeout(STALL, to.write_all(bytes)).await;
    written.unwrap_or_else(|_late| Err(ErrorKind::TimedOut.into()))
}

/// How much of an answer is left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Left {
    Bytes(u64),
    UntilClosed,
    Chunks,
    /// Bytes of this chunk.
    Chunk(u64),
}

/// An answer, as it arrives.
#[derive(Debug)]
pub(super) struct Answer {
    from: OwnedReadHalf,
    read: Vec<u8>,
    left: Left,
}

fn malformed(what: &'static str) -> Error {
    Error::new(ErrorKind::InvalidData, what)
}

impl Answer {
    pub(super) const fn new(from: OwnedReadHalf) -> Self {
        Self {
            from,
            read: Vec::new(),
            left: Left::UntilClosed,
        }
    }

    /// What was read and is no part of the answer, and the connection.
    pub(super) fn into_rest(self) -> (Vec<u8>, OwnedReadHalf) {
        (self.read, self.from)
    }

    /// # Errors
    /// It has ended in the middle of something.
    async fn fill(&mut self) -> std::io::Result<()> {
        self.read.reserve(PIECE_BYTES);
        match self.from.read_buf(&mut self.read).await? {
            0 => Err(ErrorKind::UnexpectedEof.into()),
            _ => Ok(()),
        }
    }

    /// The head. `has_body`: an answer to such a request may have one.
    ///
    /// # Errors
    /// It is none.
    pub(super) async fn head(&mut self, has_body: bool) -> std::io::Result<Parts> {
        loop {
            match parse(&self.read)? {
                Some((parts, length)) => {
                    self.read.drain(..length);
                    let status = parts.status;
                    if status.is_informational() && status != StatusCode::SWITCHING_PROTOCOLS {
                        continue;
                    }
                    let is_empty = !has_body
                        || [StatusCode::NO_CONTENT, StatusCode::NOT_MODIFIED].contains(&status);
                    self.left = if is_empty {
                        Left::Bytes(0)
                    } else {
                        left(&parts.headers)?
                    };
                    return Ok(parts);
                }
                None if self.read.len() < HEAD_BYTES_MAX => self.fill().await?,
                None => return Err(malformed("its head is too long")),
            }
        }
    }

    /// The next piece of the body; `None` at the end.
    ///
    /// # Errors
    /// It is malformed, or was cut.
    pub(super) async fn next(&mut self) -> std::io::Result<Option<Bytes>> {
        loop {
            match self.left {
                Left::Bytes(0) => return Ok(None),
                Left::Bytes(left) => {
                    let piece = self.take(left).await?;
                    self.left = Left::Bytes(left - piece.len() as u64);
                    return Ok(Some(piece));
                }
                Left::UntilClosed => match self.take(u64::MAX).await {
                    Err(error) if error.kind() == ErrorKind::UnexpectedEof => return Ok(None),
                    piece => return piece.map(Some),
                },
                Left::Chunks => match httparse::parse_chunk_size(&self.read) {
                    Ok(httparse::Status::Complete((length, size))) => {
                        self.read.drain(..length);
                        // Trailers mean nothing here.
                        self.left = match size {
                            0 => Left::Bytes(0),
                            size => Left::Chunk(size),
                        };
                    }
                    Ok(httparse::Status::Partial) if self.read.len() < CHUNK_LINE_BYTES_MAX => {
                        self.fill().await?;
                    }
                    _ => return Err(malformed("a chunk has no length")),
                },
                Left::Chunk(0) => {
                    while self.read.len() < 2 {
                        self.fill().await?;
                    }
                    if !self.read.starts_with(b"\r\n") {
                        return Err(malformed("a chunk does not end where its length says"));
                    }
                    self.read.drain(..2);
                    self.left = Left::Chunks;
                }
                Left::Chunk(left) => {
                    let piece = self.take(left).await?;
                    self.left = Left::Chunk(left - piece.len() as u64);
                    return Ok(Some(piece));
                }
            }
        }
    }

    /// What was read, or comes next, and at most `bytes_max` bytes of it.
    async fn take(&mut self, bytes_max: u64) -> std::io::Result<Bytes> {
        if self.read.is_empty() {
            self.fill().await?;
        }
        let count = usize::try_from(bytes_max).unwrap_or(usize::MAX);
        let rest = self.read.split_off(count.min(self.read.len()));
        Ok(std::mem::replace(&mut self.read, rest).into())
    }
}

/// The head at the beginning of `bytes`, and its length; `None`: it has not arrived.
fn parse(bytes: &[u8]) -> std::io::Result<Option<(Parts, usize)>> {
    let none = || malformed("its head is not one of HTTP/1.1");
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut head = httparse::Response::new(&mut headers);
    let length = match head.parse(bytes) {
        Ok(httparse::Status::Complete(length)) => length,
        Ok(httparse::Status::Partial) => return Ok(None),
        Err(_) => return Err(none()),
    };
    let mut response = Response::new(());
    let code = head.code.and_then(|code| StatusCode::from_u16(code).ok());
    *response.status_mut() = code.ok_or_else(none)?;
    for line in head.headers {
        let name = HeaderName::from_bytes(line.name.as_bytes()).map_err(|_name| none())?;
        let value = HeaderValue::from_bytes(line.value).map_err(|_value| none())?;
        response.headers_mut().append(name, value);
    }
    Ok(Some((response.into_parts().0, length)))
}

/// How long a body is (RFC 9112, 6.3).
fn left(headers: &HeaderMap) -> std::io::Result<Left> {
    let mut codings = headers.get_all(header::TRANSFER_ENCODING).iter();
    let lengths = || headers.get_all(header::CONTENT_LENGTH).iter();
    match (codings.next(), codings.next(), lengths().next()) {
        (Some(coding), None, None) if coding.as_bytes().eq_ignore_ascii_case(b"chunked") => {
            Ok(Left::Chunks)
        }
        (Some(_), _, _) => Err(malformed("its length cannot be known")),
        (None, _, None) => Ok(Left::UntilClosed),
        (None, _, Some(_)) => {
            let mut lengths = lengths();
            let first = lengths.next().and_then(|length| length.to_str().ok());
            let first = first.filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()));
            let length = first.and_then(|text| text.parse().ok());
            let is_one = lengths.next().is_none();
            let length = length.filter(|_| is_one);
            length
                .map(Left::Bytes)
                .ok_or_else(|| malformed("its length cannot be known"))
        }
    }
}
