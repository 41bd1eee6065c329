//! HTTP responses: the head, and a body that is read up to a limit.

use std::io::{ErrorKind, Read};
use std::time::Instant;

use ureq::Body;
use ureq::http::{HeaderMap, StatusCode};

use crate::http::client::{Client, TransferError};

const PIECE_BYTES: usize = 8 << 10;

/// The head of a response and its unread body.
#[derive(Debug)]
pub(crate) struct Response {
    pub status: StatusCode,
    pub headers: HeaderMap,
    body: Body,
}

impl Response {
    pub(super) fn new(response: ureq::http::Response<Body>) -> Self {
        let (head, body) = response.into_parts();
        Self {
            status: head.status,
            headers: head.headers,
            body,
        }
    }

    /// Returns `Content-Length`, if present.
    #[must_use]
    pub(crate) fn stated_bytes(&self) -> Option<u64> {
        self.body.content_length()
    }

    /// Returns a reader of the body, without a size limit. Pass its errors to
    /// [`Client::read_error`].
    #[must_use]
    pub(crate) fn reader(self) -> impl Read + use<> {
        self.body.into_with_config().limit(u64::MAX).reader()
    }

    pub(crate) fn bytes(self, client: &Client, bytes_max: u64) -> Result<Vec<u8>, TransferError> {
        if self.stated_bytes().is_some_and(|stated| stated > bytes_max) {
            return Err(TransferError::TooLarge { bytes_max });
        }
        let timeout = client.timeouts().document;
        let started = Instant::now();
        let mut reader = self.reader().take(bytes_max.saturating_add(1));
        let mut bytes = Vec::new();
        let mut piece = [0; PIECE_BYTES];
        loop {
            match reader.read(&mut piece) {
                Ok(0) => break,
                Ok(count) => bytes.extend_from_slice(&piece[..count]),
                Err(error) if error.kind() == ErrorKind::Interrupted => (),
                Err(error) => return Err(client.read_error(error)),
            }
            // The time-outs of the connection restart with each byte.
            if started.elapsed() > timeout {
                let cause = format!("the body took longer than {timeout:?}");
                return Err(TransferError::Temporary(cause));
            }
        }
        if bytes.len() as u64 > bytes_max {
            return Err(TransferError::TooLarge { bytes_max });
        }
        Ok(bytes)
    }
}
