//! Streams of events, and output as text or base64.

use axum::body::Body;
use axum::http::{HeaderMap, header};
use axum::response::Response;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hyper::body::Bytes;
use serde::Serialize;

use super::body::set_type;
use super::types::{Chunk, Output, StreamEvent, WatchEvent};

/// The form of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    /// One document at the end.
    Document,
    /// A line for each event.
    Lines,
    /// Server-sent events.
    ServerSent,
}

impl Form {
    /// The one that the client asks for: the first known in its `Accept`.
    pub(super) fn of(headers: &HeaderMap) -> Self {
        let accept = headers.get_all(header::ACCEPT).iter();
        let types = accept
            .filter_map(|value| value.to_str().ok())
            .flat_map(|value| value.split(','));
        let known =
            types.filter_map(
                |name| match name.split(';').next().unwrap_or_default().trim() {
                    "application/json" => Some(Self::Document),
                    "application/x-ndjson" => Some(Self::Lines),
                    "text/event-stream" => Some(Self::ServerSent),
                    _ => None,
                },
            );
        known.into_iter().next().unwrap_or(Self::Document)
    }

    pub(super) fn response(self, body: Body) -> Response {
        let mut response = Response::new(body);
        let content_type = match self {
            Self::ServerSent => "text/event-stream",
            Self::Lines | Self::Document => "application/x-ndjson",
        };
        set_type(&mut response, content_type);
        response
    }

    pub(super) fn encode(self, name: &str, event: &impl Serialize) -> Bytes {
        // Strings and numbers: this cannot fail. JSON has no line break outside of a string, and none
        // that is not escaped inside.
        let json = serde_json::to_string(event).unwrap_or_default();
        Bytes::from(match self {
            Self::ServerSent => format!("event: {name}\ndata: {json}\n\n"),
            Self::Lines | Self::Document => format!("{json}\n"),
        })
    }
}

impl StreamEvent {
    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::Started { .. } => "started",
            Self::Stdout(_) => "stdout",
            Self::Stderr(_) => "stderr",
            Self::Exit { .. } => "exit",
            Self::End => "end",
            Self::Error(_) => "error",
        }
    }
}

impl WatchEvent {
    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::Started => "started",
            Self::Create(_) => "create",
            Self::Write(_) => "write",
            Self::Remove(_) => "remove",
            Self::Rename(_) => "rename",
            Self::Chmod(_) => "chmod",
            Self::Overflow => "overflow",
            Self::Error(_) => "error",
        }
    }
}

/// Text or base64 of the bytes.
fn text_or_base64(bytes: Vec<u8>) -> (Option<String>, Option<String>) {
    match String::from_utf8(bytes) {
        Ok(text) => (Some(text), None),
        Err(error) => (None, Some(STANDARD.encode(error.as_bytes()))),
    }
}

pub(super) fn base64(bytes: &[u8]) -> String {
    STANDARD.encode(bytes)
}

impl Chunk {
    fn of(bytes: Vec<u8>) -> Self {
        let (text, base64) = text_or_base64(bytes);
        Self { text, base64 }
    }
}

/// Splits a stream of bytes into pieces between characters.
#[derive(Debug, Default)]
pub(super) struct Splitter {
    /// The beginning of a character.
    rest: Vec<u8>,
}

impl Splitter {
    /// The next piece; `None` if there is no more than the beginning of a character.
    pub(super) fn push(&mut self, bytes: &[u8]) -> Option<Chunk> {
        let mut piece = std::mem::take(&mut self.rest);
        piece.extend_from_slice(bytes);
        if let Err(error) = std::str::from_utf8(&piece)
            && error.error_len().is_none()
        {
            self.rest = piece.split_off(error.valid_up_to());
        }
        (!piece.is_empty()).then(|| Chunk::of(piece))
    }

    /// What is left at the end.
    pub(super) fn finish(&mut self) -> Option<Chunk> {
        let rest = std::mem::take(&mut self.rest);
        (!rest.is_empty()).then(|| Chunk::of(rest))
    }
}

/// The first bytes of a stream.
#[derive(Debug)]
pub(super) struct Start {
    bytes: Vec<u8>,
    bytes_max: usize,
    is_cut: bool,
}

impl Start {
    pub(super) fn new(bytes_max: usize) -> Self {
        Self {
            bytes: Vec::new(),
            bytes_max,
            is_cut: false,
        }
    }

    pub(super) fn push(&mut self, bytes: &[u8]) {
        let kept = bytes.len().min(self.bytes_max - self.bytes.len());
        self.bytes.extend_from_slice(&bytes[..kept]);
        self.is_cut |= kept < bytes.len();
    }

    pub(super) fn into_output(mut self) -> Output {
        // Not within a character.
        if self.is_cut
            && let Err(error) = std::str::from_utf8(&self.bytes)
            && error.error_len().is_none()
        {
            self.bytes.truncate(error.valid_up_to());
        }
        output(self.bytes, self.is_cut)
    }

    /// Its bytes, and whether there was more.
    pub(super) fn into_bytes(self) -> (Vec<u8>, bool) {
        (self.bytes, self.is_cut)
    }
}

pub(super) fn output(bytes: Vec<u8>, truncated: bool) -> Output {
    let (text, base64) = text_or_base64(bytes);
    Output {
        text,
        base64,
        truncated,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_end_between_characters() {
        let whole = "aä€😀".as_bytes();
        for cut in 0..=whole.len() {
            let mut splitter = Splitter::default();
            let mut text = String::new();
            for part in [&whole[..cut], &whole[cut..]] {
                if let Some(chunk) = splitter.push(part) {
                    text.push_str(&chunk.text.unwrap_or_else(|| "base64".to_owned()));
                }
            }
            assert_eq!((&*text, splitter.rest.len()), ("aä€😀", 0), "{cut}");
        }
        let mut splitter = Splitter::default();
        let bytes = |chunk: Option<Chunk>| chunk.and_then(|chunk| chunk.base64);
        assert_eq!(bytes(splitter.push(b"\xff")), Some("/w==".to_owned()));
        assert_eq!(bytes(splitter.push(b"\xe2\x82")), None);
        assert_eq!(bytes(splitter.finish()), Some("4oI=".to_owned()));
    }

    #[test]
    fn the_start_of_a_stream_is_kept_up_to_a_character() {
        let mut start = Start::new(4);
        start.push("a€".as_bytes());
        assert!(!start.is_cut);
        start.push(b"b");
        let output = start.into_output();
        assert_eq!(
            (output.text.as_deref(), output.truncated),
            (Some("a€"), true)
        );
        let mut start = Start::new(3);
        start.push("a€".as_bytes());
        let output = start.into_output();
        assert_eq!(
            (output.text.as_deref(), output.truncated),
            (Some("a"), true)
        );
    }

    #[test]
    fn the_first_known_form_of_accept_counts() {
        for (accept, form) in [
            (None, Form::Document),
            (Some("*/*"), Form::Document),
            (Some("text/event-stream"), Form::ServerSent),
            (
                Some("text/html, application/x-ndjson;q=0.9, */*"),
                Form::Lines,
            ),
            (Some("application/json, text/event-stream"), Form::Document),
        ] {
            let mut headers = HeaderMap::new();
            if let Some(accept) = accept {
                headers.insert(header::ACCEPT, axum::http::HeaderValue::from_static(accept));
            }
            assert_eq!(Form::of(&headers), form, "{accept:?}");
        }
    }
}
