//! Commands whose streams this server has.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Extension;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::Response;
use hyper::body::Bytes;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout_at};

use super::Calls;
use super::answers::{Unary, unsupported};
use super::frames;
use super::records::{Record, lock};
use super::start::Config;
use crate::serve::body::{self, BodySender, channel};
use crate::serve::error::ApiError;
use crate::serve::exec::Piece;
use crate::serve::terminal::Input;
use crate::serve::types::TerminalSize;
use crate::serve::verbs::words;
use axum::http::StatusCode;

/// How long one client may hold up the output: the command is not waited for as long as that.
const SLOW: Duration = Duration::from_secs(15);

/// A command that runs.
#[derive(Debug)]
pub(super) struct Process {
    /// The process id in the sandbox, by which clients name it.
    pub(super) pid: u64,
    /// Its number for `runner sandbox kill`.
    pub(super) id: u64,
    pub(super) config: Config,
    pub(super) input: Arc<Input>,
    /// Who gets its output. `None`: it has ended.
    clients: Mutex<Option<Vec<BodySender>>>,
}

impl Process {
    pub(super) fn new(pid: u64, id: u64, config: Config, input: Arc<Input>) -> Self {
        Self {
            pid,
            id,
            config,
            input,
            clients: Mutex::new(Some(Vec::new())),
        }
    }

    /// A stream of what it writes from now on; `None`: it has ended.
    pub(super) async fn subscribe(&self) -> Option<Body> {
        let (client, body) = channel();
        let start = frames::event(&json!({"start": {"pid": self.pid}}));
        // The first of a channel is not waited for.
        client.send(start).await.ok()?;
        lock(&self.clients).as_mut()?.push(client);
        Some(body)
    }

    /// Passes on what the command writes until it ends. Clients know of the end after `forget`.
    pub(super) async fn pump(&self, mut pieces: mpsc::Receiver<Piece>, forget: impl FnOnce()) {
        let output = match self.input.is_terminal() {
            true => "pty",
            false => "stdout",
        };
        let (exit_code, error) = loop {
            let (name, bytes) = match pieces.recv().await {
                // It is known already.
                Some(Piece::Started(_id)) => continue,
                Some(Piece::Stdout(bytes)) => (output, bytes),
                Some(Piece::Stderr(bytes)) => ("stderr", bytes),
                Some(Piece::Ended(Ok(ended))) if ended.has_timed_out => {
                    break (None, Some(Unary::timed_out()));
                }
                Some(Piece::Ended(Ok(ended))) => {
                    break (Some(ended.exit_code), None);
                }
                Some(Piece::Ended(Err(error))) => break (None, Some(error.into())),
                None => {
                    let error = ApiError::failed("the end of the command is not known");
                    break (None, Some(error.into()));
                }
            };
            let data = crate::serve::events::base64(&bytes);
            self.send(frames::event(&json!({"data": {name: data}})))
                .await;
        };
        forget();
        if let Some(exit_code) = exit_code {
            self.send(frames::event(&end_event(exit_code))).await;
        }
        self.send(frames::end(error.as_ref())).await;
        *lock(&self.clients) = None;
    }

    /// Sends to all clients; those that take nothing are cut off.
    async fn send(&self, bytes: Bytes) {
        let clients = lock(&self.clients).as_mut().map(std::mem::take);
        let until = Instant::now() + SLOW;
        let mut left = Vec::new();
        for client in clients.unwrap_or_default() {
            match timeout_at(until, client.send(bytes.clone())).await {
                Ok(Ok(())) => left.push(client),
                Ok(Err(_gone)) => (),
                // So that it does not take what it has for everything.
                Err(_slow) => drop(tokio::spawn(async move {
                    client.fail(std::io::ErrorKind::TimedOut.into()).await;
                })),
            }
        }
        if let Some(clients) = lock(&self.clients).as_mut() {
            clients.append(&mut left);
        }
    }
}

/// As `envd` writes it.
fn end_event(exit_code: i32) -> Value {
    let status = format!("exit status {exit_code}");
    match exit_code {
        0 => json!({"end": {"exited": true, "exitCode": 0, "status": status}}),
        _ => json!({
            "end": {"exited": true, "exitCode": exit_code, "status": status, "error": status},
        }),
    }
}

/// Which command a call is about.
#[derive(Debug, Deserialize)]
pub(super) struct Selector {
    pub(super) pid: Option<u64>,
}

impl Record {
    pub(super) fn process(&self, selector: &Selector) -> Result<Arc<Process>, ApiError> {
        let Some(pid) = selector.pid else {
            return Err(unsupported(
                "a command is named by its `pid`, not by its `tag`",
            ));
        };
        let found = lock(&self.processes).get(&pid).cloned();
        found.ok_or_else(|| no_process(pid))
    }
}

pub(super) fn no_process(pid: u64) -> ApiError {
    let message = format!("no command of this server with the pid {pid} runs in the sandbox");
    ApiError::new(StatusCode::NOT_FOUND, "no_command", message)
}

pub(super) async fn list(
    State(calls): State<Calls>,
    Extension(record): Extension<Arc<Record>>,
) -> Result<Response, Unary> {
    let lost = calls.lost_commands(&record).await?;
    let lost = lost.iter().map(|command| {
        let (name, words) = command.argv.split_first().unzip();
        let config = json!({"cmd": name, "args": words.unwrap_or_default(), "envs": {}});
        json!({"pid": command.pid, "config": config})
    });
    let processes = lock(&record.processes);
    let known = processes
        .values()
        .map(|process| json!({"pid": process.pid, "config": process.config}));
    let processes: Vec<Value> = lost.chain(known).collect();
    Ok(body::json(
        StatusCode::OK,
        &json!({ "processes": processes }),
    ))
}

#[derive(Debug, Deserialize)]
struct SendInput {
    process: Selector,
    input: InputBytes,
}

#[derive(Debug, Deserialize)]
struct InputBytes {
    /// Base64, as the other: for a command without a terminal.
    stdin: Option<String>,
    /// For one with a terminal.
    pty: Option<String>,
}

pub(super) async fn send_input(
    Extension(record): Extension<Arc<Record>>,
    request: Request,
) -> Result<Response, Unary> {
    let wanted: SendInput = body::read_json(request.into_body()).await?;
    let process = record.process(&wanted.process)?;
    let malformed = |message: &str| ApiError::bad_request("stdin", message);
    let text = match (wanted.input.stdin, wanted.input.pty) {
        (Some(text), None) if !process.input.is_terminal() => text,
        (None, Some(text)) if process.input.is_terminal() => text,
        _ => {
            let message =
                "expected `pty` for a command with a terminal, or else `stdin`, and not both";
            return Err(malformed(message).into());
        }
    };
    let bytes = spec::base64::decode(text.as_bytes())
        .ok_or_else(|| malformed("the input is not Base64"))?;
    process.input.write(&bytes).await?;
    Ok(body::json(StatusCode::OK, &json!({})))
}

#[derive(Debug, Deserialize)]
struct Update {
    process: Selector,
    pty: Option<Pty>,
}

/// A terminal; a size of 0 is left out.
#[derive(Debug, Deserialize)]
pub(super) struct Pty {
    size: Option<PtySize>,
}

#[derive(Debug, Deserialize)]
struct PtySize {
    #[serde(default)]
    rows: u32,
    #[serde(default)]
    cols: u32,
}

impl Pty {
    /// # Errors
    /// 400.
    pub(super) fn size(&self) -> Result<TerminalSize, ApiError> {
        let malformed = || {
            ApiError::bad_request(
                "pty",
                "`pty` has no `size` with `rows` and `cols` up to 65535",
            )
        };
        let size = self.size.as_ref().ok_or_else(malformed)?;
        let number = |value: u32| u16::try_from(value).map_err(|_large| malformed());
        let size = TerminalSize {
            rows: number(size.rows)?,
            columns: number(size.cols)?,
        };
        size.check()?;
        Ok(size)
    }
}

pub(super) async fn update(
    Extension(record): Extension<Arc<Record>>,
    request: Request,
) -> Result<Response, Unary> {
    let wanted: Update = body::read_json(request.into_body()).await?;
    let process = record.process(&wanted.process)?;
    if let Some(pty) = wanted.pty {
        process.input.resize(pty.size()?)?;
    }
    Ok(body::json(StatusCode::OK, &json!({})))
}

#[derive(Debug, Deserialize)]
struct OfProcess {
    process: Selector,
}

pub(super) async fn close_stdin(
    Extension(record): Extension<Arc<Record>>,
    request: Request,
) -> Result<Response, Unary> {
    let wanted: OfProcess = body::read_json(request.into_body()).await?;
    let process = record.process(&wanted.process)?;
    process.input.close().await?;
    Ok(body::json(StatusCode::OK, &json!({})))
}

#[derive(Debug, Deserialize)]
struct SendSignal {
    process: Selector,
    signal: String,
}

pub(super) async fn send_signal(
    State(calls): State<Calls>,
    Extension(record): Extension<Arc<Record>>,
    request: Request,
) -> Result<Response, Unary> {
    let wanted: SendSignal = body::read_json(request.into_body()).await?;
    let signal = match &*wanted.signal {
        "SIGNAL_SIGKILL" => "--signal=KILL",
        "SIGNAL_SIGTERM" => "--signal=TERM",
        _ => {
            let message = "`signal` is SIGNAL_SIGKILL or SIGNAL_SIGTERM";
            return Err(ApiError::bad_request("signal", message).into());
        }
    };
    let id = match (record.process(&wanted.process), wanted.process.pid) {
        (Ok(process), _) => process.id,
        (Err(_none), Some(pid)) => calls.lost_command(&record, pid).await?.id,
        (Err(error), None) => return Err(error.into()),
    };
    let id = id.to_string();
    let command = words(["kill", signal, "--", record.name.as_str(), &id]);
    calls.server.verbs.run(command).await?;
    Ok(body::json(StatusCode::OK, &json!({})))
}
