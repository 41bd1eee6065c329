//! `process.Process/Start` and `Connect`: commands and their streams.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::sync::Arc;
use std::time::Duration;

use axum::Extension;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::HeaderMap;
use axum::response::Response;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};
use tokio::process::Command;
use tokio::sync::mpsc;
use tokio::time::timeout;

use super::answers::{Unary, unsupported};
use super::frames;
use super::processes::{Process, Selector, no_process};
use super::records::{Record, lock};
use super::{Calls, Service, one};
use crate::serve::access::Access;
use crate::serve::body::{STALL, set_type};
use crate::serve::error::ApiError;
use crate::serve::exec::{Piece, Wanted, now, start_with_pipe};
use crate::serve::server::finish_in_place;
use crate::serve::types::Command as CommandRecord;
use crate::serve::verbs::words;
use spec::path::escape;
use spec::sandboxes::shown_words;

/// How often the sandbox is asked whether the command has started.
const LOOK: Duration = Duration::from_millis(5);

/// Most pieces of output that are kept until it is known which command it is; more wait.
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
    pty: Option<serde_json::Value>,
    tag: Option<String>,
    stdin: Option<bool>,
}

/// With its `=` and NUL, what execve(2) takes.
const VARIABLE_BYTES_MAX: usize = (128 << 10) - 2;

/// Of a name in a message.
const SHOWN_BYTES_MAX: usize = 64;

/// # Errors
/// A name is none, or a value cannot be passed on.
pub(super) fn check_variables(variables: &BTreeMap<String, String>) -> Result<(), ApiError> {
    let is_other = |one: char| one == '=' || one == '\0' || one.is_ascii_whitespace();
    for (name, value) in variables {
        let is_long = name.len() + value.len() > VARIABLE_BYTES_MAX;
        if name.is_empty() || name.contains(is_other) || value.contains('\0') || is_long {
            let name = escape(&name.as_bytes()[..name.len().min(SHOWN_BYTES_MAX)]);
            let message = format!(
                "`{name}` is not the name of a variable, or its value has a NUL or more than 128 KB"
            );
            return Err(ApiError::bad_request("variable", message));
        }
    }
    Ok(())
}

/// Refuses another user than that of the sandbox.
pub(super) fn check_user(headers: &HeaderMap) -> Result<(), ApiError> {
    let Some(value) = one(headers, "authorization") else {
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
    /// The words of `runner sandbox exec`, and those of the command.
    fn words(
        &self,
        record: &Record,
        timeout_ms: Option<u64>,
        has_stdin: bool,
    ) -> Result<(Vec<OsString>, Vec<Vec<u8>>), ApiError> {
        check_variables(&self.envs)?;
        let mut argv = vec![self.cmd.clone().into_bytes()];
        argv.extend(self.args.iter().map(|word| word.clone().into_bytes()));
        let cwd = self.cwd.iter().filter(|cwd| !cwd.is_empty());
        let mut command = words(["exec"]);
        command.extend(has_stdin.then(|| "-i".into()));
        for (name, value) in &self.envs {
            command.push(format!("--env={name}={value}").into());
        }
        command.extend(cwd.map(|directory| format!("--workdir={directory}").into()));
        command.extend(timeout_ms.map(|limit| format!("--timeout={limit}ms").into()));
        command.extend(words(["--", record.name.as_str(), &self.cmd]));
        command.extend(self.args.iter().map(OsString::from));
        if self.cmd.is_empty()
            || command
                .iter()
                .any(|word| word.as_encoded_bytes().contains(&0))
        {
            let message = "`cmd` is empty, or a word or the directory has a NUL";
            return Err(ApiError::bad_request("command", message));
        }
        Ok((command, argv))
    }
}

fn timeout_ms(headers: &HeaderMap) -> Result<Option<u64>, ApiError> {
    let Some(value) = one(headers, "connect-timeout-ms") else {
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
    if wanted.pty.is_some() || wanted.tag.is_some_and(|tag| !tag.is_empty()) {
        return Err(unsupported(
            "terminals and tags of commands are not supported",
        ));
    }
    // Without the field it has one.
    let has_stdin = wanted.stdin.unwrap_or(true);
    let (command, argv) = wanted.process.words(record, timeout_ms, has_stdin)?;
    let wanted_command = Wanted {
        verbs: calls.server.verbs.clone(),
        sandbox: record.name.clone(),
        argv,
        stdin: None,
        ends_with_client: false,
    };
    let command = calls.server.verbs.command(command);
    let launch = Launch {
        calls: Arc::clone(calls),
        record: Arc::clone(record),
        config: wanted.process,
        has_stdin,
    };
    // A command that has started must be known, also if its client has gone meanwhile.
    finish_in_place(launch.start(wanted_command, command)).await
}

/// A command to be started.
struct Launch {
    calls: Calls,
    record: Arc<Record>,
    config: Config,
    has_stdin: bool,
}

impl Launch {
    /// Starts it, and returns the stream of its events.
    async fn start(self, wanted: Wanted, command: Command) -> Result<Body, ApiError> {
        let Self {
            calls,
            record,
            config,
            has_stdin,
        } = self;
        let turn = record.starting.lock().await;
        let (argv, started_at) = (wanted.argv.clone(), now());
        let (mut pieces, stdin) = start_with_pipe(wanted, command, has_stdin)?;
        let mut early = Vec::new();
        let finding = timeout(STALL, calls.find(&record, &argv, &started_at));
        tokio::pin!(finding);
        let found = loop {
            tokio::select! {
                found = &mut finding => break found,
                piece = pieces.recv(), if early.len() < EARLY_MAX => match piece {
                    Some(Piece::Ended(Err(error))) => return Err(error),
                    Some(piece) => early.push(piece),
                    // It has ended, and is listed as that.
                    None => break finding.await,
                },
            }
        };
        let found = found.unwrap_or_else(|_late| {
            Err(ApiError::failed(
                "the sandbox did not list the command in 30 s, which may run",
            ))
        })?;
        record.claim(found.id);
        drop(turn);
        let pid = u64::try_from(found.pid).unwrap_or(0);
        let process = Arc::new(Process::new(pid, found.id, config, stdin));
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
    /// Waits until the command is in the list of the sandbox.
    async fn find(
        &self,
        record: &Record,
        argv: &[Vec<u8>],
        started_at: &str,
    ) -> Result<CommandRecord, ApiError> {
        let words = shown_words(argv);
        let claimed = record.claimed();
        let is_it = |command: &CommandRecord| {
            command.id > claimed
                && !command.is_detached
                && command.argv == words
                && &*command.started_at >= started_at
        };
        loop {
            let sandbox = self.server.sandbox(Access::Owner, &record.name).await?;
            let commands = sandbox.commands.into_iter().chain(sandbox.ended.latest);
            if let Some(found) = commands.filter(is_it).max_by_key(|command| command.id) {
                return Ok(found);
            }
            tokio::time::sleep(LOOK).await;
        }
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
fn stream(body: Result<Body, ApiError>) -> Response {
    let body = body.unwrap_or_else(|error| Body::from(frames::end(Some(&Unary::from(error)))));
    let mut response = Response::new(body);
    set_type(&mut response, "application/connect+json");
    response
}
