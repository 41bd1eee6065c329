//! Messages of Connect streams: a byte of flags, a length of four bytes, and a JSON document.

use axum::body::Body;
use axum::http::{HeaderMap, header};
use hyper::body::Bytes;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::time::{Duration, timeout};

use super::answers::Unary;
use crate::serve::body::{self, Pieces};
use crate::serve::error::ApiError;

const HEAD: usize = 5;
const MESSAGE_BYTES_MAX: usize = 1 << 20;
/// The last message of a stream.
const END: u8 = 2;

/// All of a request has to arrive in this time.
const TIME: Duration = Duration::from_secs(10);

/// Reads the only message of the request of a stream.
///
/// # Errors
/// It is not exactly one message, or it is not of this type.
pub(super) async fn read<Message: DeserializeOwned>(
    headers: &HeaderMap,
    body: Body,
) -> Result<Message, ApiError> {
    let content_type = headers
        .get(header::CONTENT_TYPE)
        .map(|value| value.as_bytes());
    if content_type != Some(b"application/connect+json") {
        return Err(malformed(
            "expected the content type application/connect+json",
        ));
    }
    let mut pieces = Pieces::new(body, (HEAD + MESSAGE_BYTES_MAX) as u64)?;
    let read = async {
        let mut bytes = Vec::new();
        while let Some(piece) = pieces.next().await? {
            bytes.extend_from_slice(&piece);
        }
        Ok(bytes)
    };
    let late = || Err(malformed("it did not arrive in time"));
    let bytes = timeout(TIME, read).await.unwrap_or_else(|_late| late())?;
    parse(&bytes)
}

fn malformed(problem: &str) -> ApiError {
    ApiError::bad_request(
        "frame",
        format!("the request is not one Connect message: {problem}"),
    )
}

fn parse<Message: DeserializeOwned>(bytes: &[u8]) -> Result<Message, ApiError> {
    let Some((&[flags, a, b, c, d], message)) = bytes.split_first_chunk::<HEAD>() else {
        return Err(malformed("it is shorter than its head of 5 bytes"));
    };
    if flags != 0 {
        return Err(malformed(
            "its flags are not 0: messages are not compressed",
        ));
    }
    if u32::from_be_bytes([a, b, c, d]) as usize != message.len() {
        return Err(malformed("its length is not that of what follows"));
    }
    body::parse(message).map_err(|problem| malformed(&problem))
}

fn frame(flags: u8, message: &impl Serialize) -> Bytes {
    // Strings and numbers: this cannot fail. A piece of output is far shorter than 4 GiB.
    let text = serde_json::to_vec(message).unwrap_or_default();
    let mut bytes = vec![flags];
    bytes.extend(u32::try_from(text.len()).unwrap_or(u32::MAX).to_be_bytes());
    bytes.extend(text);
    Bytes::from(bytes)
}

/// A message that is not the last.
pub(super) fn message(message: &Value) -> Bytes {
    frame(0, message)
}

/// An event of a process.
pub(super) fn event(event: &Value) -> Bytes {
    message(&json!({ "event": event }))
}

/// The end of a stream.
pub(super) fn end(error: Option<&Unary>) -> Bytes {
    match error {
        Some(error) => frame(END, &json!({ "error": error })),
        None => frame(END, &json!({})),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_exactly_one_message_that_is_not_compressed() {
        let read = |bytes: &[u8]| parse::<Value>(bytes).ok();
        assert_eq!(read(b"\0\0\0\0\x07{\"a\":1}"), Some(json!({"a": 1})));
        for bytes in [
            &b""[..],
            b"\0\0\0\0",
            b"\0\0\0\0\x08{\"a\":1}",
            b"\0\0\0\0\x06{\"a\":1}",
            b"\x01\0\0\0\x07{\"a\":1}",
            b"\0\xff\xff\xff\xff{}",
            b"\0\0\0\0\x02[]",
            b"\0\0\0\0\x02{}\0\0\0\0\x02{}",
        ] {
            assert_eq!(read(bytes), None, "{bytes:?}");
        }
    }

    #[test]
    fn the_end_of_a_stream_has_its_flag() {
        assert_eq!(&end(None)[..], b"\x02\0\0\0\x02{}");
    }
}
