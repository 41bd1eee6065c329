//! The events of a run, from the file that `runner exec` writes, whoever started it.

use std::fs::File;
use std::io::{self, ErrorKind, Read as _};

use axum::body::Body;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse as _, Response};
use hyper::body::Bytes;
use serde::Deserialize;
use tokio::time::sleep;

use super::known::{Known, RunDirectory};
use super::start::LOOK;
use super::types::RunEvent;
use crate::serve::body::{BodySender, channel};
use crate::serve::error::ApiError;
use crate::serve::events::Form;
use crate::serve::query::Query;
use crate::serve::types::ErrorBody;

const PIECE_BYTES: usize = 64 << 10;

/// What an event says of itself.
#[derive(Debug, Deserialize)]
struct Numbered {
    seq: u64,
    event: String,
}

/// The number of the last event that a client has; `None`: it has none.
///
/// # Errors
/// 400.
pub(super) fn last_seen(headers: &HeaderMap, query: &Query) -> Result<Option<u64>, ApiError> {
    // A browser that connects again sends the header, and the same query as before.
    let header = headers.get("last-event-id").map(|value| value.to_str());
    let text = match header {
        Some(value) => Some(value.unwrap_or("?").to_owned()),
        None => query.text("after")?,
    };
    let Some(text) = text.filter(|text| !text.is_empty()) else {
        return Ok(None);
    };
    let is_number = text.bytes().all(|byte| byte.is_ascii_digit());
    let number = text.parse().ok().filter(|_| is_number);
    number.map(Some).ok_or_else(|| {
        ApiError::bad_request(
            "after",
            "`after` and the header Last-Event-ID are the number of an event",
        )
    })
}

/// The events after that with the number `after`, until the run has ended.
///
/// # Errors
/// Its file cannot be read.
pub(super) fn answer(
    known: Known,
    after: Option<u64>,
    headers: &HeaderMap,
) -> Result<Response, ApiError> {
    let form = match Form::of(headers) {
        Form::Document => Form::ServerSent,
        form => form,
    };
    let failed = |error: io::Error| ApiError::failed(format!("the events cannot be read: {error}"));
    let mut reader = Reader::new(known.directory.clone(), after);
    if !known.is_live {
        reader.read().map_err(failed)?;
        reader.finish(&known);
        // Server-sent events: the client shall not connect again.
        if reader.found.is_empty() {
            return Ok(StatusCode::NO_CONTENT.into_response());
        }
    }
    let (sender, body) = channel();
    tokio::spawn(send(reader, known, form, sender));
    Ok(form.response(Body::new(body)))
}

/// Sends events until the last one, or until the client has gone.
async fn send(mut reader: Reader, mut known: Known, form: Form, client: BodySender) {
    loop {
        if reader.has_end {
            wait_for_report(&known.directory, &client).await;
        }
        for (event, line) in std::mem::take(&mut reader.found) {
            let encoded = encode(form, &event, &line);
            if client.send(encoded).await.is_err() {
                return;
            }
        }
        if reader.has_end {
            return;
        }
        // Before it is read: nothing is written after its end.
        let read = known.directory.is_live().and_then(|is_live| {
            known.is_live = is_live;
            reader.read()
        });
        if let Err(error) = read {
            return client.fail(error).await;
        }
        if !known.is_live {
            reader.finish(&known);
        }
        if reader.found.is_empty() && !reader.has_end {
            tokio::select! {
                () = client.closed() => return,
                () = sleep(LOOK) => (),
            }
        }
    }
}

/// `runner exec` writes the last event before its report: who has that event shall find the result.
async fn wait_for_report(directory: &RunDirectory, client: &BodySender) {
    while !directory.report().exists() && directory.is_live().unwrap_or_default() {
        tokio::select! {
            () = client.closed() => return,
            () = sleep(LOOK) => (),
        }
    }
}

fn encode(form: Form, event: &Numbered, line: &str) -> Bytes {
    Bytes::from(match form {
        Form::ServerSent => {
            format!(
                "id: {}\nevent: {}\ndata: {line}\n\n",
                event.seq, event.event
            )
        }
        Form::Lines | Form::Document => format!("{line}\n"),
    })
}

/// Reads the file of events while it is written.
#[derive(Debug)]
struct Reader {
    directory: RunDirectory,
    /// `None`: it is not there yet.
    file: Option<File>,
    /// The beginning of a line.
    rest: Vec<u8>,
    after: Option<u64>,
    /// The number behind that of the last line.
    next_seq: u64,
    /// What was read and not sent.
    found: Vec<(Numbered, String)>,
    has_end: bool,
}

impl Reader {
    fn new(directory: RunDirectory, after: Option<u64>) -> Self {
        Self {
            directory,
            file: None,
            rest: Vec::new(),
            after,
            next_seq: 0,
            found: Vec::new(),
            has_end: false,
        }
    }

    /// Reads the lines that are whole, up to a limit that keeps what waits for the client small.
    fn read(&mut self) -> io::Result<()> {
        if self.file.is_none() {
            self.file = match File::open(self.directory.events()) {
                Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
                opened => Some(opened?),
            };
        }
        let Some(file) = &mut self.file else {
            return Ok(());
        };
        let mut piece = vec![0; PIECE_BYTES];
        loop {
            let count = file.read(&mut piece)?;
            if count == 0 {
                return Ok(());
            }
            self.rest.extend_from_slice(&piece[..count]);
            while let Some(end) = self.rest.iter().position(|byte| *byte == b'\n') {
                let rest = self.rest.split_off(end + 1);
                let mut line = std::mem::replace(&mut self.rest, rest);
                line.pop();
                let line = String::from_utf8(line).map_err(io::Error::other)?;
                let event: Numbered = serde_json::from_str(&line)?;
                self.next_seq = event.seq + 1;
                self.has_end = event.event == "ended";
                if self.after.is_none_or(|after| event.seq > after) {
                    self.found.push((event, line));
                }
            }
        }
    }

    /// Adds the last event of a run that has none.
    fn finish(&mut self, known: &Known) {
        if self.has_end {
            return;
        }
        self.has_end = true;
        if self.after.is_some_and(|after| self.next_seq <= after) {
            return;
        }
        let (_state, error) = known.state();
        let error = error.map(|error| ErrorBody {
            code: serde_json::to_value(error.code)
                .ok()
                .and_then(|code| code.as_str().map(str::to_owned))
                .unwrap_or_default(),
            message: error.message,
            hint: error.hint,
        });
        let event = RunEvent {
            seq: self.next_seq,
            event: "error",
            error,
        };
        // Strings and numbers: this cannot fail.
        let line = serde_json::to_string(&event).unwrap_or_default();
        let event = Numbered {
            seq: self.next_seq,
            event: "error".to_owned(),
        };
        self.found.push((event, line));
    }
}
