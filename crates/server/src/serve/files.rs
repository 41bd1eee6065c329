//! `/v1/sandboxes/{name}/files`: files that are read and written by `runner sandbox cp`.

use std::ffi::OsString;
use std::fs::Permissions;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use hyper::body::Bytes;
use rustix::fs::OFlags;
use tempfile::TempDir;
use tokio::fs::{File, OpenOptions};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::body::{BodySender, Pieces, channel, set_type};
use super::error::ApiError;
use super::query::Query;
use super::server::{InSandbox, Server, Shared};
use super::verbs::words;
use spec::sandboxes::SandboxName;

/// How often the size of a copy is looked at.
const LOOK: Duration = Duration::from_millis(50);

/// A copy of one file has two: the file, and a directory of `cp` for it.
const ENTRIES_MAX: usize = 64;

const NAME_BYTES_MAX: usize = 255;

pub(super) async fn read(
    State(server): State<Shared>,
    at: InSandbox,
    request: Request,
) -> Result<Response, ApiError> {
    let path = Query::parse(request.uri().query(), &["path"])?.path("path")?;
    send_file(&server, &at.name, path).await
}

/// The content of a file of a sandbox.
///
/// # Errors
/// There is no such file, it is too large, or it is none.
pub(super) async fn send_file(
    server: &Server,
    name: &SandboxName,
    path: Vec<u8>,
) -> Result<Response, ApiError> {
    let directory = server.workspace.make().map_err(host_failed)?;
    let copy = directory.path().join("content");
    let mut source = name.as_str().as_bytes().to_vec();
    source.push(b':');
    source.extend(path);
    let mut command = words(["cp", "-L", "--"]);
    command.extend([OsString::from_vec(source), copy.clone().into_os_string()]);
    copy_out(server, command, directory.path()).await?;
    answer(server, &copy, directory, "application/octet-stream").await
}

/// The files that belong to a sandbox alone, as a tar.
pub(super) async fn snapshot(
    State(server): State<Shared>,
    at: InSandbox,
) -> Result<Response, ApiError> {
    let directory = server.workspace.make().map_err(host_failed)?;
    let tar = directory.path().join("snapshot.tar");
    let mut command = words(["snapshot", "--", at.name.as_str()]);
    command.push(tar.clone().into_os_string());
    copy_out(&server, command, directory.path()).await?;
    answer(&server, &tar, directory, "application/x-tar").await
}

/// Sends a file in `directory`, which is removed then.
async fn answer(
    server: &Server,
    path: &Path,
    directory: TempDir,
    content_type: &'static str,
) -> Result<Response, ApiError> {
    // What was copied may be a link, a directory or a pipe: only a file is opened and read.
    let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed();
    let opened = OpenOptions::new()
        .read(true)
        .custom_flags(flags)
        .open(path)
        .await;
    let not_a_file = || {
        ApiError::new(
            StatusCode::CONFLICT,
            "file_kind",
            "the path is not that of a file",
        )
    };
    let file = opened.map_err(|_error| not_a_file())?;
    let metadata = file.metadata().await.map_err(host_failed)?;
    if !metadata.is_file() {
        return Err(not_a_file());
    }
    if metadata.len() > server.max_file {
        return Err(too_large(server));
    }
    let (sender, body) = channel();
    let mut response = Response::new(body);
    set_type(&mut response, content_type);
    response
        .headers_mut()
        .insert(header::CONTENT_LENGTH, metadata.len().into());
    tokio::spawn(async move {
        send(file, metadata.len(), sender).await;
        drop(directory);
    });
    Ok(response)
}

/// Runs `cp` or `snapshot`, and ends it when the copy is larger than a file may be.
async fn copy_out(
    server: &Server,
    command: Vec<OsString>,
    directory: &Path,
) -> Result<(), ApiError> {
    let copying = server.verbs.run_watched(command, async {
        loop {
            tokio::time::sleep(LOOK).await;
            let (directory, bytes_max) = (directory.to_owned(), server.max_file);
            let looked =
                tokio::task::spawn_blocking(move || is_too_large(&directory, bytes_max)).await;
            if looked.unwrap_or(true) {
                return;
            }
        }
    });
    match copying.await {
        Ok(Some(_printed)) => Ok(()),
        Ok(None) => Err(too_large(server)),
        Err(error) => Err(error.or_not_found()),
    }
}

fn too_large(server: &Server) -> ApiError {
    ApiError::too_large(format!(
        "the path has more than one file of at most {} bytes",
        server.max_file
    ))
    .with_hint("`runner sandbox cp NAME:PATH -` copies directories and larger files")
}

pub(super) fn host_failed(error: std::io::Error) -> ApiError {
    ApiError::failed(format!("the copy of the file cannot be used: {error}"))
}

/// Whether the files below `directory` are too many or too large together. Follows no link.
fn is_too_large(directory: &Path, bytes_max: u64) -> bool {
    let (mut entries, mut bytes) = (0, 0);
    let mut pending = vec![directory.to_owned()];
    while let Some(directory) = pending.pop() {
        // `cp` moves and removes while this looks.
        for entry in std::fs::read_dir(directory).into_iter().flatten().flatten() {
            let Ok(metadata) = entry.metadata() else {
                continue;
            };
            entries += 1;
            bytes += if metadata.is_dir() { 0 } else { metadata.len() };
            if metadata.is_dir() {
                pending.push(entry.path());
            }
            if entries > ENTRIES_MAX || bytes > bytes_max {
                return true;
            }
        }
    }
    false
}

/// Sends the content of a file, and cuts the connection where it cannot be read.
pub(super) async fn send(mut file: File, length: u64, client: BodySender) {
    let mut left = length;
    let mut buffer = vec![0; 64 << 10];
    while left > 0 {
        let part = buffer
            .len()
            .min(usize::try_from(left).unwrap_or(usize::MAX));
        match file.read(&mut buffer[..part]).await {
            Ok(0) => return client.fail(std::io::ErrorKind::UnexpectedEof.into()).await,
            Err(error) => return client.fail(error).await,
            Ok(count) => {
                left -= count as u64;
                if client
                    .send(Bytes::copy_from_slice(&buffer[..count]))
                    .await
                    .is_err()
                {
                    return;
                }
            }
        }
    }
}

pub(super) async fn write(
    State(server): State<Shared>,
    at: InSandbox,
    request: Request,
) -> Result<Response, ApiError> {
    let query = Query::parse(request.uri().query(), &["path", "mode"])?;
    let path = query.path("path")?;
    let mode = query.mode()?.unwrap_or(0o644);
    let upload = Upload::new(&server, &path).await?;
    receive(request.into_body(), &upload.file, mode, server.max_file).await?;
    upload.copy(&server, &at.name).await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

/// A file on its way into a sandbox.
#[derive(Debug)]
pub(super) struct Upload {
    /// Where its content has to be written, on the host.
    pub(super) file: PathBuf,
    /// The directory in the sandbox.
    pub(super) parent: Vec<u8>,
    directory: TempDir,
}

impl Upload {
    /// # Errors
    /// The path does not name a file.
    pub(super) async fn new(server: &Server, path: &[u8]) -> Result<Self, ApiError> {
        let slash = path.iter().rposition(|byte| *byte == b'/').unwrap_or(0);
        let (parent, name) = (&path[..slash.max(1)], &path[slash + 1..]);
        // The only part of the path that names a file of the host, in a directory of its own.
        if name.is_empty() || name == b"." || name.len() > NAME_BYTES_MAX {
            return Err(ApiError::bad_request(
                "path",
                "the path does not end with the name of a file",
            ));
        }
        let directory = server.workspace.make().map_err(host_failed)?;
        let tree = directory.path().join("tree");
        tokio::fs::create_dir(&tree).await.map_err(host_failed)?;
        Ok(Self {
            file: tree.join(std::ffi::OsStr::from_bytes(name)),
            parent: parent.to_vec(),
            directory,
        })
    }

    /// # Errors
    /// What `runner sandbox cp` says.
    pub(super) async fn copy(&self, server: &Server, name: &SandboxName) -> Result<(), ApiError> {
        // What is in the directory, and not the file: a directory that has the name of the file stays.
        let mut destination = name.as_str().as_bytes().to_vec();
        destination.push(b':');
        destination.extend(&self.parent);
        let mut command = words(["cp", "--"]);
        command.extend([
            self.directory.path().join("tree/.").into_os_string(),
            OsString::from_vec(destination),
        ]);
        let copied = server.verbs.run(command).await;
        copied.map(drop).map_err(ApiError::or_not_found)
    }
}

/// Writes the body of a request to a new file.
///
/// # Errors
/// The body is too large or does not arrive, or the host has no space.
pub(super) async fn receive(
    body: Body,
    path: &Path,
    mode: u32,
    bytes_max: u64,
) -> Result<(), ApiError> {
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .open(path)
        .await
        .map_err(host_failed)?;
    let mut pieces = Pieces::new(body, bytes_max)?;
    while let Some(piece) = pieces.next().await? {
        file.write_all(&piece).await.map_err(host_failed)?;
    }
    file.set_permissions(Permissions::from_mode(mode))
        .await
        .map_err(host_failed)?;
    file.flush().await.map_err(host_failed)
}
