//! An answer: its head, and a body that is read piece by piece and no further than allowed.

use std::io::Read;

use ureq::Body;
use ureq::http::{HeaderMap, Response, StatusCode};

use crate::http::client::{Client, Mishap};

/// The head of an answer, and its body not read yet.
#[derive(Debug)]
pub struct Answer {
    /// Of the answer.
    pub status: StatusCode,
    /// Of the answer.
    pub headers: HeaderMap,
    body: Body,
}

/// Why a body was not read.
#[derive(Debug)]
pub enum BodyProblem {
    /// It has more bytes than it may.
    TooLarge,
    /// It broke off.
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
        let mut bytes = Vec::new();
        self.reader()
            .take(bytes_max.saturating_add(1))
            .read_to_end(&mut bytes)
            .map_err(|error| BodyProblem::Broken(client.mishap_of_read(error)))?;
        match u64::try_from(bytes.len()).is_ok_and(|found| found <= bytes_max) {
            true => Ok(bytes),
            false => Err(BodyProblem::TooLarge),
        }
    }
}
