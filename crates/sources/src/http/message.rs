//! Messages between a client and its fetcher: a kind, a length, a payload. Both sides have the same
//! format; the client treats those of the fetcher as hostile.

use serde::{Deserialize, Serialize};
use ureq::http::{HeaderMap, HeaderName, HeaderValue, StatusCode};

use spec::path::escape;

/// Longest part of a body.
pub(super) const PART_BYTES_MAX: usize = 64 << 10;
/// A head with the longest headers that the HTTP library accepts, in JSON.
const HEAD_BYTES_MAX: usize = 512 << 10;
const HEADERS_MAX: usize = 256;
/// Longest text of an error.
const TEXT_CHARS_MAX: usize = 400;
/// A kind, and the length of the payload in little-endian order.
pub(super) const PREFIX_BYTES: usize = 5;

const REQUEST: u8 = 1;
const MORE: u8 = 2;
const PART: u8 = 3;
const LAST_PART: u8 = 4;
const HEAD: u8 = 5;
const FAILURE: u8 = 6;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Message {
    /// To the fetcher: ends whatever came before.
    Request(RequestHead),
    /// Asks for the next part: of the response from the fetcher, of the upload from the client.
    More,
    /// An empty part is the last one.
    Part {
        bytes: Vec<u8>,
        is_last: bool,
    },
    Head(ResponseHead),
    Failure(Failure),
}

/// A header: its name, and its value with one character per byte.
pub(super) type Field = (String, String);

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct RequestHead {
    pub(super) method: String,
    pub(super) url: String,
    pub(super) fields: Vec<Field>,
    pub(super) has_body: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct ResponseHead {
    pub(super) status: u16,
    pub(super) fields: Vec<Field>,
    pub(super) stated_bytes: Option<u64>,
    /// `start` is the whole body.
    pub(super) is_whole: bool,
    /// The first bytes of the body, which often arrive with the head: this saves small bodies a
    /// message. It follows the rest of the head.
    #[serde(skip)]
    pub(super) start: Vec<u8>,
}

/// Why the fetcher has no response, or not all of its body. Texts are of the HTTP library and may
/// quote the server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Failure {
    TimedOut(Phase),
    NoTls,
    Tls(String),
    Io(String),
    NoAddress,
    NoConnection,
    TooManyFields,
    LargeHead { found: u64, limit: u64 },
    Protocol(String),
    Other,
}

/// What took too long.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Phase {
    Lookup,
    Connect,
    Head,
    Transfer,
    Whole,
}

/// The peer sent what it cannot have meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Malformed;

impl Message {
    pub(super) fn encode(&self) -> Vec<u8> {
        match self {
            Self::Request(head) => frame(REQUEST, &crate::to_json(head)),
            Self::More => frame(MORE, &[]),
            Self::Part { bytes, is_last } => frame(if *is_last { LAST_PART } else { PART }, bytes),
            Self::Head(head) => {
                let text = crate::to_json(head);
                let length = u32::try_from(text.len()).unwrap_or(u32::MAX);
                frame(
                    HEAD,
                    &[&length.to_le_bytes()[..], &text, &head.start].concat(),
                )
            }
            Self::Failure(failure) => frame(FAILURE, &crate::to_json(failure)),
        }
    }

    /// Returns the length of the payload after `prefix`.
    pub(super) fn payload_bytes(prefix: [u8; PREFIX_BYTES]) -> Result<usize, Malformed> {
        let [kind, length @ ..] = prefix;
        let length = usize::try_from(u32::from_le_bytes(length)).map_err(|_range| Malformed)?;
        let most = match kind {
            REQUEST => HEAD_BYTES_MAX,
            HEAD => HEAD_BYTES_MAX + PART_BYTES_MAX,
            PART | LAST_PART => PART_BYTES_MAX,
            // An escape in JSON has up to six bytes.
            FAILURE => 8 * TEXT_CHARS_MAX,
            _ => 0,
        };
        if length > most {
            return Err(Malformed);
        }
        Ok(length)
    }

    /// Parses the message at the start of `bytes`.
    pub(super) fn read(bytes: &[u8]) -> Result<Self, Malformed> {
        let (prefix, rest) = bytes.split_first_chunk().ok_or(Malformed)?;
        let length = Self::payload_bytes(*prefix)?;
        Self::decode(prefix[0], rest.get(..length).ok_or(Malformed)?.to_vec())
    }

    pub(super) fn decode(kind: u8, payload: Vec<u8>) -> Result<Self, Malformed> {
        fn json<'text, T: Deserialize<'text>>(text: &'text [u8]) -> Result<T, Malformed> {
            serde_json::from_slice(text).map_err(|_error| Malformed)
        }
        match kind {
            REQUEST => json(&payload).map(Self::Request),
            MORE if payload.is_empty() => Ok(Self::More),
            PART if payload.is_empty() => Err(Malformed),
            PART | LAST_PART => Ok(Self::Part {
                bytes: payload,
                is_last: kind == LAST_PART,
            }),
            HEAD => {
                let (length, rest) = payload.split_first_chunk().ok_or(Malformed)?;
                let length = u32::from_le_bytes(*length);
                let length = usize::try_from(length).map_err(|_range| Malformed)?;
                let (text, start) = rest.split_at_checked(length).ok_or(Malformed)?;
                let mut head: ResponseHead = json(text)?;
                head.start = start.to_vec();
                Ok(Self::Head(head))
            }
            FAILURE => json(&payload).map(Self::Failure),
            _ => Err(Malformed),
        }
    }
}

fn frame(kind: u8, payload: &[u8]) -> Vec<u8> {
    // The peer refuses a longer one.
    let length = u32::try_from(payload.len()).unwrap_or(u32::MAX);
    [&[kind][..], &length.to_le_bytes(), payload].concat()
}

impl Failure {
    /// Cuts a text to the length that a message may have.
    pub(super) fn text(text: &dyn std::fmt::Display) -> String {
        text.to_string().chars().take(TEXT_CHARS_MAX).collect()
    }
}

pub(super) fn to_fields(headers: &HeaderMap) -> Vec<Field> {
    let text = |value: &HeaderValue| value.as_bytes().iter().copied().map(char::from).collect();
    let fields = headers.iter();
    fields
        .map(|(name, value)| (name.as_str().to_owned(), text(value)))
        .collect()
}

/// Builds headers again, with the checks of the type.
pub(super) fn to_headers(fields: &[Field]) -> Result<HeaderMap, Malformed> {
    if fields.len() > HEADERS_MAX {
        return Err(Malformed);
    }
    let mut headers = HeaderMap::new();
    for (name, value) in fields {
        let name = HeaderName::from_bytes(name.as_bytes()).map_err(|_invalid| Malformed)?;
        let value: Option<Vec<u8>> = value.chars().map(|c| u8::try_from(c).ok()).collect();
        let value = HeaderValue::from_bytes(&value.ok_or(Malformed)?);
        headers.append(name, value.map_err(|_invalid| Malformed)?);
    }
    Ok(headers)
}

pub(super) fn to_status(number: u16) -> Result<StatusCode, Malformed> {
    // The type accepts up to 999; the HTTP library answers nothing below 200.
    StatusCode::from_u16(number)
        .ok()
        .filter(|status| !status.is_informational())
        .ok_or(Malformed)
}

/// Escapes and bounds a text of the fetcher.
pub(super) fn quote(prefix: &str, text: &str) -> String {
    escape(format!("{prefix}{}", Failure::text(&text)).as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn all() -> Vec<Message> {
        let fields = vec![("x-name".to_owned(), "caf\u{e9}\t\u{ff}".to_owned())];
        let mut all = vec![
            Message::Request(RequestHead {
                method: "PUT".to_owned(),
                url: "https://r.test/v2/?x".to_owned(),
                fields: fields.clone(),
                has_body: true,
            }),
            Message::More,
            Message::Part {
                bytes: vec![0; PART_BYTES_MAX],
                is_last: false,
            },
            Message::Part {
                bytes: Vec::new(),
                is_last: true,
            },
            Message::Head(ResponseHead {
                status: 404,
                fields,
                stated_bytes: Some(u64::MAX),
                is_whole: true,
                start: b"start".to_vec(),
            }),
        ];
        let text = Failure::text(&"\u{1}".repeat(1000));
        let failures = [
            Failure::TimedOut(Phase::Head),
            Failure::NoTls,
            Failure::Tls(text.clone()),
            Failure::Io(text),
            Failure::LargeHead { found: 2, limit: 1 },
        ];
        all.extend(failures.map(Message::Failure));
        all
    }

    #[test]
    fn each_message_is_read_back() {
        for message in all() {
            assert_eq!(Message::read(&message.encode()), Ok(message));
        }
    }

    #[test]
    fn the_largest_head_that_the_http_library_accepts_fits() {
        // 64 KiB of one header whose bytes take two characters in JSON.
        let value = HeaderValue::from_bytes(&[b'"'; 64 << 10]).expect("a value");
        let headers = HeaderMap::from_iter([(HeaderName::from_static("x"), value)]);
        let head = ResponseHead {
            status: 200,
            fields: to_fields(&headers),
            stated_bytes: None,
            is_whole: false,
            start: vec![0; PART_BYTES_MAX],
        };
        assert_eq!(to_headers(&head.fields), Ok(headers));
        let message = Message::Head(head);
        assert_eq!(Message::read(&message.encode()), Ok(message));
    }

    #[test]
    fn what_no_server_can_have_sent_is_malformed() {
        for (name, value) in [
            ("", "x"),
            ("a b", "x"),
            ("a\n", "x"),
            ("a", "x\ny"),
            ("a", "x\ry"),
            ("a", "\0"),
            ("a", "\u{100}"),
        ] {
            let field = (name.to_owned(), value.to_owned());
            assert_eq!(to_headers(&[field]), Err(Malformed), "{name:?}: {value:?}");
        }
        let many = vec![("a".to_owned(), String::new()); HEADERS_MAX + 1];
        assert_eq!(to_headers(&many), Err(Malformed));
        assert_eq!(to_headers(&many[1..]).expect("as many").len(), HEADERS_MAX);
        for status in [0, 99, 100, 101, 199, 1000, u16::MAX] {
            assert_eq!(to_status(status), Err(Malformed), "{status}");
        }
        assert_eq!(to_status(200), Ok(StatusCode::OK));
    }

    #[test]
    fn malformed_messages_are_refused() {
        let with_length = |kind: u8, length: u32| [&[kind][..], &length.to_le_bytes()].concat();
        let part = u32::try_from(PART_BYTES_MAX).expect("short");
        for bytes in [
            Vec::new(),
            with_length(0, 0),
            with_length(7, 0),
            with_length(MORE, 1),
            with_length(PART, 0),
            with_length(PART, part + 1),
            with_length(LAST_PART, u32::MAX),
            with_length(HEAD, u32::MAX),
            with_length(FAILURE, part),
            frame(HEAD, b""),
            frame(HEAD, b"\x03\0\0\0{}"),
            frame(HEAD, b"\x02\0\0\0{}"),
            frame(HEAD, b"\xff\xff\xff\xff{}"),
            frame(FAILURE, b"\"Unknown\""),
        ] {
            assert_eq!(Message::read(&bytes), Err(Malformed), "{bytes:?}");
        }
    }

    proptest! {
        #[test]
        fn no_message_panics(
            which in 0..all().len(),
            at in any::<prop::sample::Index>(),
            byte: u8,
            any: Vec<u8>,
        ) {
            let mut bytes = all()[which].encode();
            let at = at.index(bytes.len());
            bytes[at] = byte;
            let changed = Message::read(&bytes);
            if let Ok(Message::Head(head)) = changed {
                let _checked = (to_status(head.status), to_headers(&head.fields));
            }
            bytes.truncate(at);
            let _read = Message::read(&bytes);
            let _read = Message::read(&any);
        }
    }
}
