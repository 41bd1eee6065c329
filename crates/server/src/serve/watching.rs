//! `/v1/sandboxes/{name}/watch`: events of a directory, as `runner sandbox watch` prints them.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt as _;

use axum::extract::{Request, State};
use axum::http::{Method, StatusCode};
use axum::response::Response;
use tokio::sync::mpsc;

use super::body::{BodySender, channel};
use super::error::ApiError;
use super::events::Form;
use super::exec::{self, Piece};
use super::parameters::switch;
use super::query::Query;
use super::routes::{Content, PATH, Route, schema};
use super::server::{InSandbox, Server, Shared};
use super::types::WatchEvent;
use super::verbs::words;
use spec::sandboxes::SandboxName;

/// Longer than each line of `runner`.
const LINE_BYTES_MAX: usize = 64 << 10;

pub(super) fn routes() -> Vec<Route> {
    let recursive = switch("recursive", "`true`: with the directories below it.");
    vec![
        Route::new(
            Method::GET,
            "/v1/sandboxes/{name}/watch",
            "watchDirectory",
            "Events of a directory, until the client leaves.",
            watch,
        )
        .query(vec![PATH, recursive])
        .answers(StatusCode::OK, Content::Events(schema::<WatchEvent>)),
    ]
}

/// A directory that is watched, until this is dropped.
#[derive(Debug)]
pub(super) struct Watch {
    pieces: mpsc::Receiver<Piece>,
    read: Vec<u8>,
    /// How much of it was parsed.
    parsed: usize,
}

impl Watch {
    /// Returns when events come.
    ///
    /// # Errors
    /// There is no such sandbox or directory, or it cannot be watched.
    pub(super) async fn start(
        server: &Server,
        name: &SandboxName,
        path: Vec<u8>,
        is_recursive: bool,
    ) -> Result<Self, ApiError> {
        let mut command = words(["watch"]);
        command.extend(is_recursive.then(|| "-r".into()));
        command.extend(words(["--", name.as_str()]));
        command.push(OsString::from_vec(path));
        let mut watch = Self {
            pieces: exec::follow(server.verbs.command(command))?,
            read: Vec::new(),
            parsed: 0,
        };
        match watch.next().await? {
            WatchEvent::Started => Ok(watch),
            _ => Err(malformed()),
        }
    }

    /// The next event.
    ///
    /// # Errors
    /// The directory is watched no more.
    pub(super) async fn next(&mut self) -> Result<WatchEvent, ApiError> {
        loop {
            let rest = &self.read[self.parsed..];
            if let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
                self.parsed += end + 1;
                return serde_json::from_slice(&rest[..end]).map_err(|_error| malformed());
            }
            self.read.drain(..self.parsed);
            self.parsed = 0;
            match self.pieces.recv().await {
                Some(Piece::Stdout(bytes)) if self.read.len() < LINE_BYTES_MAX => {
                    self.read.extend_from_slice(&bytes);
                }
                Some(Piece::Stderr(_) | Piece::Started(_)) => (),
                Some(Piece::Ended(Err(error))) => return Err(error.or_not_found()),
                Some(Piece::Stdout(_) | Piece::Ended(Ok(_))) | None => return Err(malformed()),
            }
        }
    }
}

fn malformed() -> ApiError {
    ApiError::failed("`runner sandbox watch` did not print an event")
}

async fn watch(
    State(server): State<Shared>,
    at: InSandbox,
    request: Request,
) -> Result<Response, ApiError> {
    let query = Query::parse(request.uri().query(), &["path", "recursive"])?;
    let path = query.path("path")?;
    let is_recursive = query.is_set("recursive")?;
    let form = match Form::of(request.headers()) {
        Form::Document => Form::Lines,
        form => form,
    };
    let watch = Watch::start(&server, &at.name, path, is_recursive).await?;
    let (sender, body) = channel();
    tokio::spawn(stream(watch, form, sender));
    Ok(form.response(body))
}

async fn stream(mut watch: Watch, form: Form, client: BodySender) {
    let mut event = WatchEvent::Started;
    loop {
        let sent = client.send(form.encode(event.name(), &event)).await;
        if sent.is_err() || matches!(event, WatchEvent::Error(_)) {
            return;
        }
        event = tokio::select! {
            next = watch.next() => next.unwrap_or_else(|error| WatchEvent::Error(error.into_body())),
            () = client.closed() => return,
        };
    }
}
