//! Uploads as forms (RFC 7578), read strictly: the SDKs send parts named `file`, whose file names are paths.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;

use axum::body::Body;
use serde_json::Value;
use tokio::fs::OpenOptions;
use tokio::io::AsyncWriteExt as _;

use super::records::Record;
use super::{Calls, files};
use crate::serve::body::Pieces;
use crate::serve::error::ApiError;
use crate::serve::files::{Upload, host_failed};

/// Most bytes of the head of a part, and most parts of a form.
const HEAD_BYTES_MAX: usize = 16 << 10;
const PARTS_MAX: usize = 64;

fn malformed(problem: &str) -> ApiError {
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
struct Form {
    pieces: Pieces,
    buffer: Vec<u8>,
    /// `CR LF -- BOUNDARY`.
    delimiter: Vec<u8>,
}

impl Form {
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
    async fn content(&mut self) -> Result<Option<Vec<u8>>, ApiError> {
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

/// The file name in the head of a part.
fn file_name(head: &[u8]) -> Result<String, ApiError> {
    let head = std::str::from_utf8(head).map_err(|_error| malformed("a head is not UTF-8"))?;
    let disposition = head.split("\r\n").find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("content-disposition")
            .then(|| value.trim())
    });
    let named = disposition
        .and_then(|value| value.strip_prefix("form-data; name=\"file\"; filename=\""))
        .and_then(|value| value.strip_suffix('"'))
        .filter(|name| !name.contains('"'));
    let Some(name) = named else {
        return Err(malformed("a part is not a `file` with a file name"));
    };
    // What a form cannot have as it is (HTML, multipart/form-data encoding algorithm).
    Ok(name
        .replace("%22", "\"")
        .replace("%0D", "\r")
        .replace("%0A", "\n"))
}

/// Writes the files of a form. `path` counts instead of the name of the only one.
///
/// # Errors
/// The form is malformed or too large, or a file cannot be written: those before it are then.
pub(super) async fn receive(
    calls: &Calls,
    record: &Record,
    body: Body,
    boundary: &[u8],
    path: Option<String>,
) -> Result<Vec<Value>, ApiError> {
    let mut form = Form {
        pieces: Pieces::new(body, calls.server.max_file)?,
        // As if a line had ended before.
        buffer: b"\r\n".to_vec(),
        delimiter: [b"\r\n--", boundary].concat(),
    };
    if !form.until(&form.delimiter.clone()).await?.is_empty() {
        return Err(malformed("it does not begin with its boundary"));
    }
    let mut uploads = Vec::new();
    while form.until_line().await? {
        let name = file_name(&form.until(b"\r\n\r\n").await?)?;
        if uploads.len() == PARTS_MAX || (path.is_some() && !uploads.is_empty()) {
            return Err(malformed(
                "it has more files than expected: 64, or 1 with a `path`",
            ));
        }
        let name = path.as_deref().unwrap_or(&name);
        let path = calls.path(record, name.as_bytes()).await?;
        let upload = Upload::new(&calls.server, &path).await?;
        write(&mut form, &upload).await?;
        uploads.push((upload, path));
    }
    let mut written = Vec::new();
    for (upload, path) in &uploads {
        written.push(calls.put(record, upload, path).await?);
    }
    match written.is_empty() {
        true => Err(malformed("it has no file")),
        false => Ok(written),
    }
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

async fn write(form: &mut Form, upload: &Upload) -> Result<(), ApiError> {
    let mut options = OpenOptions::new();
    let opened = options
        .write(true)
        .create_new(true)
        .open(&upload.file)
        .await;
    let mut file = opened.map_err(host_failed)?;
    while let Some(bytes) = form.content().await? {
        file.write_all(&bytes).await.map_err(host_failed)?;
    }
    let permissions = Permissions::from_mode(files::MODE);
    file.set_permissions(permissions)
        .await
        .map_err(host_failed)?;
    file.flush().await.map_err(host_failed)
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

    #[test]
    fn only_files_with_a_name_are_parts() {
        let head = |text: &str| file_name(text.as_bytes()).ok();
        let part = "content-disposition: form-data; name=\"file\"; filename=\"/a%22b\"\r\nX: y";
        assert_eq!(head(part).as_deref(), Some("/a\"b"));
        for text in [
            "",
            "Content-Disposition: form-data; name=\"file\"",
            "Content-Disposition: form-data; name=\"x\"; filename=\"/a\"",
            "Content-Disposition: form-data; name=\"file\"; filename=\"/a\"; filename=\"/b\"",
        ] {
            assert_eq!(head(text), None, "{text}");
        }
    }
}
