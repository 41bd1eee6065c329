//! What the fetcher says that a server answered.

use sources::{FetcherAnswer, read_fetcher_answer};

/// Longest part of a body, and number of fields.
const PART_BYTES_MAX: usize = 64 << 10;
const FIELDS_MAX: usize = 256;

/// What is accepted is a head that an HTTP server may send, a part of a body, or a text that may be shown.
pub(crate) fn check(bytes: &[u8]) {
    accepts(bytes);
}

pub(crate) fn accepts(bytes: &[u8]) -> bool {
    match read_fetcher_answer(bytes) {
        Some(FetcherAnswer::Head { status, headers }) => {
            assert!((200..1000).contains(&status.as_u16()));
            assert!(headers.len() <= FIELDS_MAX);
            let mut head = b"HTTP/1.1 200 OK\r\n".to_vec();
            for (name, value) in &headers {
                head.extend_from_slice(name.as_str().as_bytes());
                head.extend_from_slice(b": ");
                head.extend_from_slice(value.as_bytes());
                head.extend_from_slice(b"\r\n");
            }
            head.extend_from_slice(b"\r\n");
            let mut fields = [httparse::EMPTY_HEADER; FIELDS_MAX];
            let mut response = httparse::Response::new(&mut fields);
            let parsed = response.parse(&head).expect("a head");
            assert_eq!(parsed, httparse::Status::Complete(head.len()));
            assert_eq!(response.headers.len(), headers.len());
        }
        Some(FetcherAnswer::Part(part)) => assert!(part.len() <= PART_BYTES_MAX),
        Some(FetcherAnswer::Failure(text)) => super::assert_plain(&text),
        None => return false,
    }
    true
}
