//! An answer: its head, and a body that is read piece by piece and no further than allowed.

use std::io::{ErrorKind, Read};
use std::time::Instant;

use ureq::Body;
use ureq::http::{HeaderMap, Response, StatusCode};

use crate::http::client::{Client, Mishap};

/// Most bytes that are read at once.
const PIECE_BYTES: usize = 8 << 10;

/// The head of an answer, and its body not read yet.
#[derive(Debug)]
pub struct Answer {
    pub status: StatusCode,
    pub headers: HeaderMap,
    body: Body,
}

/// Why a body was not read.
#[derive(Debug)]
pub enum BodyProblem {
    /// It has more bytes than it may.
    TooLarge,
    Broken(Mishap),
}

impl Answer {
    pub(super) fn new(response: Response<Body>) -> Self {
        let (head, body) = response.into_parts();
        Self {
            status: head.status,
            headers: head.headers,
            body,
        }
    }

    /// How many bytes the body has, where the service says it.
    #[must_use]
    pub fn stated_bytes(&self) -> Option<u64> {
        self.body.content_length()
    }

    /// The body, however long it is. What its errors mean is for [`Client::mishap_of_read`] to say.
    #[must_use]
    pub fn reader(self) -> impl Read + use<> {
        self.body.into_with_config().limit(u64::MAX).reader()
    }

    /// All of the body.
    ///
    /// # Errors
    /// [`BodyProblem`].
    pub fn bytes(self, client: &Client, bytes_max: u64) -> Result<Vec<u8>, BodyProblem> {
        if self.stated_bytes().is_some_and(|stated| bytes_max < stated) {
            return Err(BodyProblem::TooLarge);
        }
        let patience = client.patience().document;
        let started = Instant::now();
        let mut reader = self.reader().take(bytes_max.saturating_add(1));
        let mut bytes = Vec::new();
        let mut piece = [0; PIECE_BYTES];
        loop {
            match reader.read(&mut piece) {
                Ok(0) => break,
                Ok(count) => bytes.extend_from_slice(&piece[..count]),
                Err(error) if error.kind() == ErrorKind::Interrupted => (),
                Err(error) => return Err(BodyProblem::Broken(client.mishap_of_read(error))),
            }
            // The connection's own limits start anew with each byte.
            if patience < started.elapsed() {
                let cause = format!("the body took longer than {patience:?}");
                return Err(BodyProblem::Broken(Mishap::Passing(cause)));
            }
        }
        match u64::try_from(bytes.len()).is_ok_and(|found| found <= bytes_max) {
            true => Ok(bytes),
            false => Err(BodyProblem::TooLarge),
        }
    }
}
