//! HTTP responses: the head, and a body that is read up to a limit.

use std::rc::Rc;
use std::time::Instant;

use ureq::http::{HeaderMap, StatusCode};

use crate::http::client::{Client, Connection, TransferError};
use crate::http::message::{Malformed, ResponseHead, to_headers, to_status};

const PIECE_BYTES: usize = 8 << 10;

/// The head of a response and its unread body, which the next request of the client discards.
#[derive(Debug)]
pub(crate) struct Response {
    pub status: StatusCode,
    pub headers: HeaderMap,
    stated_bytes: Option<u64>,
    connection: Rc<Connection>,
    /// Number of the request.
    number: u64,
    until: Option<Instant>,
    part: Vec<u8>,
    /// Bytes of the part that were read.
    used: usize,
    is_ended: bool,
}

impl Response {
    /// # Errors
    /// [`Malformed`]: no server can have sent this head.
    pub(super) fn new(
        head: ResponseHead,
        connection: Rc<Connection>,
        number: u64,
        until: Option<Instant>,
    ) -> Result<Self, Malformed> {
        Ok(Self {
            status: to_status(head.status)?,
            headers: to_headers(&head.fields)?,
            stated_bytes: head.stated_bytes,
            connection,
            number,
            until,
            part: head.start,
            used: 0,
            is_ended: head.is_whole,
        })
    }

    /// Returns `Content-Length`, if present.
    #[must_use]
    pub(crate) fn stated_bytes(&self) -> Option<u64> {
        self.stated_bytes
    }

    /// Reads some bytes of the body, without a limit of its size; 0 at its end.
    pub(crate) fn read(&mut self, buffer: &mut [u8]) -> Result<usize, TransferError> {
        while self.used == self.part.len() && !self.is_ended {
            let (part, is_last) = self.connection.next_part(self.number, self.until)?;
            (self.part, self.used, self.is_ended) = (part, 0, is_last);
        }
        let rest = self.part.get(self.used..).unwrap_or_default();
        let count = rest.len().min(buffer.len());
        buffer[..count].copy_from_slice(&rest[..count]);
        self.used += count;
        Ok(count)
    }

    pub(crate) fn bytes(
        mut self,
        client: &Client,
        bytes_max: u64,
    ) -> Result<Vec<u8>, TransferError> {
        if self.stated_bytes().is_some_and(|stated| stated > bytes_max) {
            return Err(TransferError::TooLarge { bytes_max });
        }
        let timeout = client.timeouts().document;
        let started = Instant::now();
        let mut bytes = Vec::new();
        // Not on the stack, of which each later process has a copy.
        let mut piece = vec![0; PIECE_BYTES];
        while bytes.len() as u64 <= bytes_max {
            match self.read(&mut piece)? {
                0 => return Ok(bytes),
                count => bytes.extend_from_slice(&piece[..count]),
            }
            // The time-outs of the connection restart with each byte.
            if started.elapsed() > timeout {
                let cause = format!("the body took longer than {timeout:?}");
                return Err(TransferError::Temporary(cause));
            }
        }
        Err(TransferError::TooLarge { bytes_max })
    }
}
