//! `process.Process/Start` and `Connect`: commands and their streams.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::iter;
use std::sync::Arc;

use axum::Extension;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::HeaderMap;
use axum::response::Response;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;
use tokio::time::timeout;

use super::answers::{Unary, unsupported};
use super::frames;
use super::processes::{Process, Pty, Selector, no_process};
use super::records::{Record, lock};
use super::{Calls, Service, single_header};
use crate::serve::access::Access;
use crate::serve::body::{STALL, set_type};
use crate::serve::error::ApiError;
use crate::serve::exec::{self, Piece, Wanted, check_variables};
use crate::serve::server::finish_in_place;
use crate::serve::terminal::Reads;

/// Most pieces of output before the command has started: what `runner` says.
const EARLY_MAX: usize = 16;

/// The user of the SDKs; all commands of a sandbox have the same.
const USER: &str = "user";

/// A command as a client asks for it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Config {
    cmd: String,
    #[serde(default)]
    args: Vec<String>,
    #[serde(default)]
    envs: BTreeMap<String, String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cwd: Option<String>,
}

#[derive(Debug, Deserialize)]
struct Start {
    process: Config,
    pty: Option<Pty>,
    tag: Option<String>,
    stdin: Option<bool>,
}

/// Refuses another user than that of the sandbox.
pub(super) fn check_user(headers: &HeaderMap) -> Result<(), ApiError> {
    let Some(value) = single_header(headers, "authorization") else {
        return Ok(());
    };
    let encoded = value.strip_prefix(b"Basic ").unwrap_or_default();
    let user = STANDARD.decode(encoded).unwrap_or_default();
    check_username(user.strip_suffix(b":").unwrap_or_default())
}

/// As [`check_user`].
pub(super) fn check_username(name: &[u8]) -> Result<(), ApiError> {
    match name == USER.as_bytes() {
        true => Ok(()),
        false => Err(unsupported(
            "a sandbox has one user: expected no name of a user, or `user`",
        )),
    }
}

impl Config {
    fn check(&self) -> Result<(), ApiError> {
        check_variables(&self.envs)?;
        let mut words = iter::once(&self.cmd).chain(&self.args).chain(&self.cwd);
        if self.cmd.is_empty() || words.any(|word| word.contains('\0')) {
            let message = "`cmd` is empty, or a word or the directory has a NUL";
            return Err(ApiError::bad_request("command", message));
        }
        Ok(())
    }

    /// Flags of `runner sandbox exec`.
    fn flags(&self, timeout_ms: Option<u64>) -> Vec<OsString> {
        let cwd = self.cwd.iter().filter(|cwd| !cwd.is_empty());
        let mut flags = Vec::new();
        flags.extend(cwd.map(|directory| format!("--workdir={directory}").into()));
        flags.extend(timeout_ms.map(|limit| format!("--timeout={limit}ms").into()));
        flags
    }
}

fn timeout_ms(headers: &HeaderMap) -> Result<Option<u64>, ApiError> {
    let Some(value) = single_header(headers, "connect-timeout-ms") else {
        return Ok(None);
    };
    let is_number = value.iter().all(u8::is_ascii_digit) && value.len() <= 10;
    let number = std::str::from_utf8(value).ok().filter(|_| is_number);
    match number.and_then(|number| number.parse().ok()) {
        Some(number @ 1..) => Ok(Some(number)),
        _ => Err(ApiError::bad_request(
            "timeout",
            "the header Connect-Timeout-Ms is not a number of milliseconds from 1 on",
        )),
    }
}

pub(super) async fn start(
    State(calls): State<Calls>,
    Extension(record): Extension<Arc<Record>>,
    request: Request,
) -> Response {
    stream(begin(&calls, &record, request).await)
}

async fn begin(calls: &Calls, record: &Arc<Record>, request: Request) -> Result<Body, ApiError> {
    let (parts, body) = request.into_parts();
    let wanted: Start = frames::read(&parts.headers, body).await?;
    check_user(&parts.headers)?;
    let timeout_ms = timeout_ms(&parts.headers)?;
    if wanted.tag.is_some_and(|tag| !tag.is_empty()) {
        return Err(unsupported("tags of commands are not supported"));
    }
    let reads = match (&wanted.pty, wanted.stdin) {
        (Some(pty), _) => Reads::Terminal(pty.size()?),
        (None, Some(false)) => Reads::Nothing,
        // Without the field it has one.
        (None, Some(true) | None) => Reads::Pipe,
    };
    let config = wanted.process;
    config.check()?;
    let argv = iter::once(&config.cmd).chain(&config.args);
    let wanted_command = Wanted {
        verbs: calls.server.verbs.clone(),
        sandbox: record.name.clone(),
        flags: config.flags(timeout_ms),
        variables: config.envs.clone(),
        argv: argv.map(|word| word.clone().into_bytes()).collect(),
        reads,
        ends_with_client: false,
        tells_id: true,
    };
    let launch = Launch {
        calls: Arc::clone(calls),
        record: Arc::clone(record),
        config,
    };
    // A command that has started must be known, also if its client has gone meanwhile.
    finish_in_place(launch.start(wanted_command)).await
}

/// A command to be started.
struct Launch {
    calls: Calls,
    record: Arc<Record>,
    config: Config,
}

impl Launch {
    /// Starts it, and returns the stream of its events.
    async fn start(self, wanted: Wanted) -> Result<Body, ApiError> {
        let Self {
            calls,
            record,
            config,
        } = self;
        let (mut pieces, input) = exec::start(wanted)?;
        let mut early = Vec::new();
        let id = loop {
            match timeout(STALL, pieces.recv()).await {
                Ok(Some(Piece::Started(id))) => break id,
                Ok(Some(Piece::Ended(Err(error)))) => return Err(error),
                Ok(Some(piece)) if early.len() < EARLY_MAX => early.push(piece),
                Ok(_) | Err(_) => {
                    let message = "the command was not started in 30 s, and may run";
                    return Err(ApiError::failed(message));
                }
            }
        };
        let pid = calls.pid(&record, id).await?;
        let process = Arc::new(Process::new(pid, id, config, input));
        let body = process.subscribe().await.ok_or_else(|| no_process(pid))?;
        lock(&record.processes).insert(pid, Arc::clone(&process));
        tokio::spawn(keep(Arc::clone(&record), process, early, pieces));
        Ok(body)
    }
}

/// Keeps a command until it ends; it goes on if no client is there.
async fn keep(
    record: Arc<Record>,
    process: Arc<Process>,
    early: Vec<Piece>,
    mut pieces: mpsc::Receiver<Piece>,
) {
    let (sender, receiver) = mpsc::channel(1);
    let pass_on = async {
        for piece in early {
            let _sent = sender.send(piece).await;
        }
        while let Some(piece) = pieces.recv().await {
            let _sent = sender.send(piece).await;
        }
        drop(sender);
    };
    let forget = || drop(lock(&record.processes).remove(&process.pid));
    tokio::join!(pass_on, process.pump(receiver, forget));
}

impl Service {
    /// The process id of a command in the sandbox, which has started.
    async fn pid(&self, record: &Record, id: u64) -> Result<u64, ApiError> {
        let sandbox = self.server.sandbox(Access::Owner, &record.name).await?;
        let mut commands = sandbox.commands.into_iter().chain(sandbox.ended.latest);
        let found = commands.find(|command| command.id == id);
        let pid = found.and_then(|command| u64::try_from(command.pid).ok());
        pid.ok_or_else(|| ApiError::failed(format!("the sandbox does not list its command {id}")))
    }
}

#[derive(Debug, Deserialize)]
struct Connect {
    process: Selector,
}

pub(super) async fn connect(
    State(calls): State<Calls>,
    Extension(record): Extension<Arc<Record>>,
    request: Request,
) -> Response {
    let attach = async {
        let (parts, body) = request.into_parts();
        let wanted: Connect = frames::read(&parts.headers, body).await?;
        let process = match (record.process(&wanted.process), wanted.process.pid) {
            (Err(_none), Some(pid)) => return Err(calls.no_stream(&record, pid).await),
            (process, _) => process?,
        };
        let body = process.subscribe().await;
        body.ok_or_else(|| no_process(process.pid))
    };
    stream(attach.await)
}

/// A stream has the status 200, and its error at its end.
pub(super) fn stream(body: Result<Body, ApiError>) -> Response {
    let body = body.unwrap_or_else(|error| Body::from(frames::end(Some(&Unary::from(error)))));
    let mut response = Response::new(body);
    set_type(&mut response, "application/connect+json");
    response
}
