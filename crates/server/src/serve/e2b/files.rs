//! `/files` and `filesystem.Filesystem`: files of a sandbox.

use std::sync::Arc;

use axum::Extension;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::Response;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::answers::{Problem, Unary, unsupported};
use super::multipart;
use super::records::Record;
use super::start::{check_user, check_username};
use super::{Calls, Service};
use crate::serve::body;
use crate::serve::error::ApiError;
use crate::serve::file_programs::{find, malformed, run};
use crate::serve::files::{Upload, receive, send_file};
use crate::serve::form;
use crate::serve::query::{Query, check_path};
use crate::serve::types::{FileEntry, FileKind};

/// Permission bits of a new file.
pub(super) const MODE: u32 = 0o644;

/// The query of `/files`: a path, and the user that a sandbox has.
fn read_query(request: &Request) -> Result<Query, ApiError> {
    let query = Query::parse(request.uri().query(), &["path", "username"])?;
    if let Some(name) = query.text("username")? {
        check_username(name.as_bytes())?;
    }
    Ok(query)
}

impl Service {
    /// The absolute path that a client means: others begin at the working directory of the sandbox.
    pub(super) async fn path(&self, record: &Record, path: &[u8]) -> Result<Vec<u8>, ApiError> {
        if path.is_empty() || path.starts_with(b"/") {
            return check_path("path", path);
        }
        let printed = run(&self.server, &record.name, "pwd", &[], Vec::new(), &[]).await?;
        let directory = printed.strip_suffix(b"\n").unwrap_or(&printed);
        // The sandbox prints it; it names nothing outside of the sandbox.
        check_path("the working directory", directory).map_err(|_error| malformed("pwd"))?;
        check_path("path", &[directory, b"/", path].concat())
    }

    /// Copies a file into the sandbox, and makes its directory.
    pub(super) async fn put(
        &self,
        record: &Record,
        upload: &Upload,
        path: &[u8],
    ) -> Result<Value, ApiError> {
        let mut copied = upload.copy(&self.server, &record.name).await;
        // `cp` makes the last directory alone.
        let missing = [StatusCode::NOT_FOUND, StatusCode::UNPROCESSABLE_ENTITY];
        if copied
            .as_ref()
            .is_err_and(|error| missing.contains(&error.status))
        {
            let parent = vec![upload.parent.clone()];
            run(&self.server, &record.name, "mkdir", &["-p"], parent, &[]).await?;
            copied = upload.copy(&self.server, &record.name).await;
        }
        copied?;
        let path = String::from_utf8_lossy(path);
        let name = path.rsplit('/').next().unwrap_or_default();
        Ok(json!({"name": name, "type": "file", "path": path}))
    }

    async fn entry(&self, record: &Record, path: Vec<u8>) -> Result<Value, ApiError> {
        let parent = path[..path.iter().rposition(|byte| *byte == b'/').unwrap_or(0)].to_vec();
        let found = find(&self.server, &record.name, path, &["-maxdepth", "0"]).await?;
        match &found[..] {
            [entry] => described(entry, &parent),
            _ => Err(malformed("find")),
        }
    }
}

pub(super) async fn read(
    State(calls): State<Calls>,
    Extension(record): Extension<Arc<Record>>,
    request: Request,
) -> Result<Response, Problem> {
    check_user(request.headers())?;
    let path = read_query(&request)?.text("path")?.unwrap_or_default();
    let path = calls.path(&record, path.as_bytes()).await?;
    Ok(send_file(&calls.server, &record.name, path).await?)
}

pub(super) async fn write(
    State(calls): State<Calls>,
    Extension(record): Extension<Arc<Record>>,
    request: Request,
) -> Result<Response, Problem> {
    check_user(request.headers())?;
    check_encoding(request.headers())?;
    let path = read_query(&request)?.text("path")?;
    let (parts, body) = request.into_parts();
    let content_type = parts.headers.get(header::CONTENT_TYPE);
    let content_type = content_type
        .and_then(|value| value.to_str().ok())
        .unwrap_or_default();
    if let Some(boundary) = form::boundary(content_type)? {
        let written = multipart::receive(&calls, &record, body, &boundary, path).await?;
        return Ok(body::json(StatusCode::OK, &written));
    }
    if content_type != "application/octet-stream" {
        let message = "expected the content type application/octet-stream or multipart/form-data";
        return Err(ApiError::bad_request("content_type", message).into());
    }
    let path = path.unwrap_or_default();
    let path = calls.path(&record, path.as_bytes()).await?;
    let upload = Upload::new(&calls.server, &path).await?;
    receive(body, &upload.file, MODE, calls.server.max_file).await?;
    let written = calls.put(&record, &upload, &path).await?;
    Ok(body::json(StatusCode::OK, &[written]))
}

fn check_encoding(headers: &HeaderMap) -> Result<(), ApiError> {
    let encoding = headers.get(header::CONTENT_ENCODING);
    let has_metadata = headers
        .keys()
        .any(|name| name.as_str().starts_with("x-metadata-"));
    if encoding.is_some_and(|value| value != "identity") || has_metadata {
        return Err(unsupported(
            "compressed files and metadata of files are not supported",
        ));
    }
    Ok(())
}

/// An entry as `envd` describes it. `find` does not tell the owner.
fn described(entry: &FileEntry, parent: &[u8]) -> Result<Value, ApiError> {
    let parent = std::str::from_utf8(parent).ok();
    let (Some(name), Some(parent)) = (&entry.name, parent) else {
        return Err(unsupported(
            "a name is not UTF-8, which the protocol cannot tell",
        ));
    };
    let kind = match entry.kind {
        FileKind::File => "FILE_TYPE_FILE",
        FileKind::Directory => "FILE_TYPE_DIRECTORY",
        FileKind::Link => "FILE_TYPE_SYMLINK",
        FileKind::Other => "FILE_TYPE_UNSPECIFIED",
    };
    let seconds = u64::try_from(entry.modified_unix_s).unwrap_or(0);
    let name = if name == "/" { "" } else { name };
    let mode = u32::from_str_radix(&entry.mode, 8).unwrap_or(0);
    Ok(json!({
        "name": name,
        "type": kind,
        "path": format!("{parent}/{name}"),
        "size": entry.size_bytes.to_string(),
        "mode": mode,
        "permissions": permissions(entry.kind, mode),
        "modifiedTime": spec::utc::text_of_milliseconds(seconds.saturating_mul(1_000)),
        "symlinkTarget": entry.target,
    }))
}

/// `drwxr-xr-x`.
fn permissions(kind: FileKind, mode: u32) -> String {
    let first = match kind {
        FileKind::Directory => 'd',
        FileKind::Link => 'L',
        FileKind::File | FileKind::Other => '-',
    };
    let bits = "rwxrwxrwx".chars().enumerate();
    let bits = bits.map(|(index, letter)| {
        if mode & (0o400 >> index) == 0 {
            '-'
        } else {
            letter
        }
    });
    std::iter::once(first).chain(bits).collect()
}

#[derive(Debug, Deserialize)]
struct OfPath {
    path: String,
}

#[derive(Debug, Deserialize)]
struct OfDirectory {
    path: String,
    #[serde(default)]
    depth: u32,
}

#[derive(Debug, Deserialize)]
struct Move {
    source: String,
    destination: String,
}

/// What a call asks for.
///
/// # Errors
/// It is for another user, or no document of this form.
async fn wanted<Document: DeserializeOwned>(request: Request) -> Result<Document, Unary> {
    check_user(request.headers())?;
    Ok(body::read_json(request.into_body()).await?)
}

pub(super) async fn stat(
    State(calls): State<Calls>,
    Extension(record): Extension<Arc<Record>>,
    request: Request,
) -> Result<Response, Unary> {
    let wanted: OfPath = wanted(request).await?;
    let path = calls.path(&record, wanted.path.as_bytes()).await?;
    let entry = calls.entry(&record, path).await?;
    Ok(body::json(StatusCode::OK, &json!({ "entry": entry })))
}

pub(super) async fn list(
    State(calls): State<Calls>,
    Extension(record): Extension<Arc<Record>>,
    request: Request,
) -> Result<Response, Unary> {
    let wanted: OfDirectory = wanted(request).await?;
    if wanted.depth > 1 {
        return Err(unsupported("a list has one directory: expected a `depth` of 1").into());
    }
    let mut path = calls.path(&record, wanted.path.as_bytes()).await?;
    let parent = if path == b"/" {
        Vec::new()
    } else {
        path.clone()
    };
    // A link to a directory is followed, and what is no directory is refused.
    path.push(b'/');
    let depth = ["-mindepth", "1", "-maxdepth", "1"];
    let found = find(&calls.server, &record.name, path, &depth).await?;
    let entries = found.iter().map(|entry| described(entry, &parent));
    let entries = entries.collect::<Result<Vec<Value>, ApiError>>()?;
    Ok(body::json(StatusCode::OK, &json!({ "entries": entries })))
}

pub(super) async fn make_directory(
    State(calls): State<Calls>,
    Extension(record): Extension<Arc<Record>>,
    request: Request,
) -> Result<Response, Unary> {
    let wanted: OfPath = wanted(request).await?;
    let path = calls.path(&record, wanted.path.as_bytes()).await?;
    let make = async |flags: &'static [&'static str]| {
        run(
            &calls.server,
            &record.name,
            "mkdir",
            flags,
            vec![path.clone()],
            &[],
        )
        .await
    };
    match make(&[]).await {
        Ok(_printed) => (),
        Err(error) if error.status == StatusCode::NOT_FOUND => drop(make(&["-p"]).await?),
        Err(error) if error.status == StatusCode::CONFLICT => {
            let message = "the path is there already";
            return Err(ApiError::new(StatusCode::CONFLICT, "exists", message).into());
        }
        Err(error) => return Err(error.into()),
    }
    let entry = calls.entry(&record, path.clone()).await?;
    Ok(body::json(StatusCode::OK, &json!({ "entry": entry })))
}

pub(super) async fn rename(
    State(calls): State<Calls>,
    Extension(record): Extension<Arc<Record>>,
    request: Request,
) -> Result<Response, Unary> {
    let wanted: Move = wanted(request).await?;
    let from = calls.path(&record, wanted.source.as_bytes()).await?;
    let to = calls.path(&record, wanted.destination.as_bytes()).await?;
    let paths = vec![from, to.clone()];
    run(&calls.server, &record.name, "mv", &["-f", "-T"], paths, &[]).await?;
    let entry = calls.entry(&record, to).await?;
    Ok(body::json(StatusCode::OK, &json!({ "entry": entry })))
}

/// What is not there is removed already, as with E2B.
pub(super) async fn remove(
    State(calls): State<Calls>,
    Extension(record): Extension<Arc<Record>>,
    request: Request,
) -> Result<Response, Unary> {
    let wanted: OfPath = wanted(request).await?;
    let path = calls.path(&record, wanted.path.as_bytes()).await?;
    if path == b"/" {
        return Err(
            ApiError::bad_request("path", "the root of a sandbox cannot be removed").into(),
        );
    }
    let flags = ["-r", "-f", "--one-file-system"];
    run(&calls.server, &record.name, "rm", &flags, vec![path], &[]).await?;
    Ok(body::json(StatusCode::OK, &json!({})))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn permissions_are_written_as_ls_writes_them() {
        assert_eq!(permissions(FileKind::Directory, 0o755), "drwxr-xr-x");
        assert_eq!(permissions(FileKind::File, 0o640), "-rw-r-----");
    }
}
