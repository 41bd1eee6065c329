//! Uploads as forms: the SDKs send parts named `file`, whose file names are paths.

use axum::body::Body;
use serde_json::Value;

use super::records::Record;
use super::{Calls, files};
use crate::serve::error::ApiError;
use crate::serve::files::Upload;
use crate::serve::form::{Form, disposition, malformed};

/// Most parts of a form.
const PARTS_MAX: usize = 64;

/// The file name in the head of a part.
fn file_name(head: &str) -> Result<String, ApiError> {
    let named = disposition(head)
        .and_then(|value| value.strip_prefix("name=\"file\"; filename=\""))
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
    let mut form = Form::open(body, boundary, calls.server.max_file).await?;
    let mut uploads = Vec::new();
    while let Some(head) = form.next_part().await? {
        let name = file_name(&head)?;
        if uploads.len() == PARTS_MAX || (path.is_some() && !uploads.is_empty()) {
            return Err(malformed(
                "it has more files than expected: 64, or 1 with a `path`",
            ));
        }
        let name = path.as_deref().unwrap_or(&name);
        let path = calls.path(record, name.as_bytes()).await?;
        let upload = Upload::new(&calls.server, &path).await?;
        form.write(&upload.file, files::MODE).await?;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_files_with_a_name_are_parts() {
        let head = |text: &str| file_name(text).ok();
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
