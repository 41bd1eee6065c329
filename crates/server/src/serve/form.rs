//! Forms (RFC 7578), read strictly and piece by piece.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use axum::body::Body;
use tokio::fs::OpenOptions;
use tokio::io::AsyncWriteExt as _;

use super::body::Pieces;
use super::error::ApiError;
use super::files::host_failed;

/// Most bytes of the head of a part.
const HEAD_BYTES_MAX: usize = 16 << 10;

pub(super) fn malformed(problem: &str) -> ApiError {
    ApiError::bad_request("form", format!("the form cannot be read: {problem}"))
}

/// The boundary that a content type has; `None` if it is not that of a form.
///
/// # Errors
/// A form without a boundary.
pub(super) fn boundary(content_type: &str) -> Result<Option<Vec<u8>>, ApiError> {
    let Some(parameters) = content_type.strip_prefix("multipart/form-data") else {
        return Ok(None);
    };
    let mut parameters = parameters.split(';').map(str::trim);
    let boundary = parameters.find_map(|parameter| parameter.strip_prefix("boundary="));
    let boundary = boundary.map(|boundary| boundary.trim_matches('"').as_bytes());
    match boundary {
        Some(boundary) if (1..=70).contains(&boundary.len()) => Ok(Some(boundary.to_vec())),
        _ => Err(malformed(
            "its content type has no boundary of 1 to 70 characters",
        )),
    }
}

/// The bytes of a form, of which some are in memory.
#[derive(Debug)]
pub(super) struct Form {
    pieces: Pieces,
    buffer: Vec<u8>,
    /// `CR LF -- BOUNDARY`.
    delimiter: Vec<u8>,
}

impl Form {
    /// # Errors
    /// It has more than `bytes_max` bytes, or does not begin with its boundary.
    pub(super) async fn open(
        body: Body,
        boundary: &[u8],
        bytes_max: u64,
    ) -> Result<Self, ApiError> {
        let mut form = Self {
            pieces: Pieces::new(body, bytes_max)?,
            // As if a line had ended before.
            buffer: b"\r\n".to_vec(),
            delimiter: [b"\r\n--", boundary].concat(),
        };
        match form.until(&form.delimiter.clone()).await?.is_empty() {
            true => Ok(form),
            false => Err(malformed("it does not begin with its boundary")),
        }
    }

    /// The head of the next part; `None` at the end. What is left of the part before must have been read.
    ///
    /// # Errors
    /// The form is malformed or too large, or the client has gone.
    pub(super) async fn next_part(&mut self) -> Result<Option<String>, ApiError> {
        if !self.until_line().await? {
            return Ok(None);
        }
        let head = self.until(b"\r\n\r\n").await?;
        let head = String::from_utf8(head).map_err(|_error| malformed("a head is not UTF-8"))?;
        Ok(Some(head))
    }

    /// Writes the content of the part to a new file.
    ///
    /// # Errors
    /// As [`Self::content`], or the host has no space.
    pub(super) async fn write(&mut self, path: &Path, mode: u32) -> Result<(), ApiError> {
        let opened = OpenOptions::new()
            .write(true)
            .create_new(true)
            .open(path)
            .await;
        let mut file = opened.map_err(host_failed)?;
        while let Some(bytes) = self.content().await? {
            file.write_all(&bytes).await.map_err(host_failed)?;
        }
        file.set_permissions(Permissions::from_mode(mode))
            .await
            .map_err(host_failed)?;
        file.flush().await.map_err(host_failed)
    }

    async fn more(&mut self) -> Result<(), ApiError> {
        match self.pieces.next().await? {
            Some(piece) => self.buffer.extend_from_slice(&piece),
            None => return Err(malformed("it ends within a part")),
        }
        Ok(())
    }

    /// Up to `end`, which is dropped.
    async fn until(&mut self, end: &[u8]) -> Result<Vec<u8>, ApiError> {
        loop {
            if let Some(at) = position(&self.buffer, end) {
                let rest = self.buffer.split_off(at + end.len());
                let mut head = std::mem::replace(&mut self.buffer, rest);
                head.truncate(at);
                return Ok(head);
            }
            if self.buffer.len() > HEAD_BYTES_MAX {
                return Err(malformed("the head of a part is too long"));
            }
            self.more().await?;
        }
    }

    /// The next bytes of a part; `None` at its end.
    ///
    /// # Errors
    /// The form is malformed or too large, or the client has gone.
    pub(super) async fn content(&mut self) -> Result<Option<Vec<u8>>, ApiError> {
        loop {
            if let Some(at) = position(&self.buffer, &self.delimiter) {
                if at > 0 {
                    let rest = self.buffer.split_off(at);
                    return Ok(Some(std::mem::replace(&mut self.buffer, rest)));
                }
                self.buffer.drain(..self.delimiter.len());
                return Ok(None);
            }
            // The delimiter may begin at the end of what is there.
            let safe = (self.buffer.len() + 1).saturating_sub(self.delimiter.len());
            if safe > 0 {
                let rest = self.buffer.split_off(safe);
                return Ok(Some(std::mem::replace(&mut self.buffer, rest)));
            }
            self.more().await?;
        }
    }
}

fn position(bytes: &[u8], wanted: &[u8]) -> Option<usize> {
    bytes
        .windows(wanted.len())
        .position(|window| window == wanted)
}

impl Form {
    /// After a boundary: whether a part follows.
    async fn until_line(&mut self) -> Result<bool, ApiError> {
        while self.buffer.len() < 2 {
            self.more().await?;
        }
        match &self.buffer[..2] {
            b"\r\n" => {
                self.buffer.drain(..2);
                Ok(true)
            }
            b"--" => {
                self.buffer.clear();
                // A line may follow, and is counted.
                while self.pieces.next().await?.is_some() {}
                Ok(false)
            }
            _ => Err(malformed("a boundary is not followed by a line")),
        }
    }
}

/// What the head of a part says of it behind `form-data; `.
pub(super) fn disposition(head: &str) -> Option<&str> {
    let value = head.split("\r\n").find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("content-disposition")
            .then(|| value.trim())
    });
    value?.strip_prefix("form-data; ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn contents_are_found_whatever_pieces_they_come_in() {
        let text = b"a\r\n--b\r\n--xyz--".to_vec();
        for size in 1..text.len() {
            let chunks: Vec<_> = text.chunks(size).map(<[u8]>::to_vec).collect();
            let (sender, body) = crate::serve::body::channel();
            tokio::spawn(async move {
                for chunk in chunks {
                    sender.send(chunk.into()).await.expect("taken");
                }
            });
            let mut form = Form {
                pieces: Pieces::new(body, 100).expect("small"),
                buffer: Vec::new(),
                delimiter: b"\r\n--xyz".to_vec(),
            };
            let mut content = Vec::new();
            while let Some(bytes) = form.content().await.expect("whole") {
                content.extend(bytes);
            }
            assert_eq!(content, b"a\r\n--b", "{size}");
            assert!(!form.until_line().await.expect("the end"));
        }
    }
}
