//! `/v1/sandboxes/{name}/commands`.

use std::ffi::OsString;
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use tokio::sync::mpsc;

use super::body::{BodySender, channel, json, read_json};
use super::error::ApiError;
use super::events::{Form, Splitter, Start, output};
use super::exec::{self, Piece, Wanted, check_variables};
use super::query::Query;
use super::server::{InSandbox, Server, Shared};
use super::terminal::Reads;
use super::types::{
    Command, CommandList, FinishedCommand, Logs, SignalCommand, StartCommand, StartedCommand,
    StreamEvent, TerminalSize,
};
use super::verbs::{Verbs, words};

const OUTPUT_BYTES: u32 = 1 << 20;
const OUTPUT_BYTES_MAX: u32 = 8 << 20;

/// What a sandbox keeps of a stream of a command in the background (docs/sandboxes.md).
const LOG_BYTES: usize = 128 << 10;

impl StartCommand {
    /// What the command reads.
    fn reads(&self) -> Reads {
        match (self.tty, &self.stdin) {
            (Some(size), _) => Reads::Terminal(size),
            (None, Some(_)) => Reads::Pipe,
            (None, None) => Reads::Nothing,
        }
    }

    fn check(&self) -> Result<(), ApiError> {
        let refused = |message: &str| Err(ApiError::bad_request("command", message));
        check_variables(&self.env)?;
        self.tty.map_or(Ok(()), TerminalSize::check)?;
        let has_nul = |text: &String| text.contains('\0');
        let is_attached = self.kill_on_disconnect || self.stdin.is_some() || self.tty.is_some();
        match () {
            () if self.argv.first().is_none_or(String::is_empty) => {
                refused("`argv` is empty: expected a program and its arguments")
            }
            () if self.argv.iter().chain(&self.cwd).any(has_nul) => {
                refused("a word or the directory has a NUL")
            }
            () if self.timeout_ms == Some(0) => refused("`timeout_ms` is 0, which leaves no time"),
            () if self.background && is_attached => refused(
                "`kill_on_disconnect`, `stdin` and `tty` are for a command that the client waits for",
            ),
            () if self.stdin.is_some() && self.tty.is_some() => refused(
                "a command with a `tty` has no `stdin`: POST …/commands/ID/stdin writes to it",
            ),
            () => Ok(()),
        }
    }

    /// Flags of `runner sandbox exec`.
    fn flags(&self) -> Vec<OsString> {
        let mut flags = Vec::new();
        flags.extend(self.background.then(|| "-d".into()));
        let directory = self.cwd.iter();
        flags.extend(directory.map(|directory| format!("--workdir={directory}").into()));
        let limit = self.timeout_ms.iter();
        flags.extend(limit.map(|limit| format!("--timeout={limit}ms").into()));
        flags
    }
}

pub(super) async fn start(
    State(server): State<Shared>,
    at: InSandbox,
    request: Request,
) -> Result<Response, ApiError> {
    let form = Form::of(request.headers());
    let wanted: StartCommand = read_json(request.into_body()).await?;
    wanted.check()?;
    let has_terminal = wanted.tty.is_some();
    let command = Wanted {
        verbs: server.verbs.clone(),
        sandbox: at.name.clone(),
        flags: wanted.flags(),
        reads: wanted.reads(),
        variables: wanted.env,
        argv: wanted.argv.into_iter().map(String::into_bytes).collect(),
        ends_with_client: wanted.kill_on_disconnect,
        tells_id: has_terminal,
    };
    if wanted.background {
        let printed = Verbs::run_command(command.command()?).await?;
        let id = std::str::from_utf8(&printed.stdout)
            .ok()
            .and_then(|id| id.trim_end().parse().ok());
        let id = id.ok_or_else(|| {
            ApiError::failed("`runner sandbox exec -d` did not print the id of the command")
        })?;
        return Ok(json(StatusCode::CREATED, &StartedCommand { id }));
    }
    let bytes_max = wanted
        .max_output_bytes
        .unwrap_or(OUTPUT_BYTES)
        .min(OUTPUT_BYTES_MAX) as usize;
    let (pieces, input) = exec::start(command)?;
    if let Some(text) = wanted.stdin {
        let input = Arc::clone(&input);
        tokio::spawn(async move {
            // A command may end before it has read everything.
            let _written = input.write_all(text.as_bytes()).await;
            let _closed = input.close().await;
        });
    }
    if form == Form::Document && !has_terminal {
        let done = collect(pieces, bytes_max).await?;
        return Ok(json(
            StatusCode::OK,
            &FinishedCommand {
                exit_code: done.ended.exit_code,
                timed_out: done.ended.has_timed_out,
                stdout: done.stdout.into_output(),
                stderr: done.stderr.into_output(),
            },
        ));
    }
    let (sender, body) = channel();
    let exit = |ended: exec::Ended| StreamEvent::Exit {
        exit_code: ended.exit_code,
        timed_out: ended.has_timed_out,
    };
    let on_start = move |id| server.terminals.add(&at.name, id, &input);
    tokio::spawn(stream(pieces, form, sender, on_start, exit));
    Ok(form.response(body))
}

/// A command that ended, and the start of its output.
#[derive(Debug)]
pub(super) struct Collected {
    pub(super) ended: exec::Ended,
    pub(super) stdout: Start,
    pub(super) stderr: Start,
}

/// Waits for the end of a command.
///
/// # Errors
/// It was not started.
pub(super) async fn collect(
    mut pieces: mpsc::Receiver<Piece>,
    bytes_max: usize,
) -> Result<Collected, ApiError> {
    let (mut stdout, mut stderr) = (Start::new(bytes_max), Start::new(bytes_max));
    while let Some(piece) = pieces.recv().await {
        match piece {
            Piece::Started(_id) => (),
            Piece::Stdout(bytes) => stdout.push(&bytes),
            Piece::Stderr(bytes) => stderr.push(&bytes),
            Piece::Ended(ended) => {
                return Ok(Collected {
                    ended: ended?,
                    stdout,
                    stderr,
                });
            }
        }
    }
    Err(ApiError::failed("the end of the command is not known"))
}

/// Sends pieces as events. Dropping the receiver tells the other end that the client has gone.
async fn stream(
    mut pieces: mpsc::Receiver<Piece>,
    form: Form,
    client: BodySender,
    on_start: impl Fn(u64),
    end: impl Fn(exec::Ended) -> StreamEvent,
) {
    let (mut stdout, mut stderr) = (Splitter::default(), Splitter::default());
    loop {
        let piece = tokio::select! {
            piece = pieces.recv() => piece,
            () = client.closed() => return,
        };
        let event = match piece {
            Some(Piece::Started(id)) => {
                on_start(id);
                Some(StreamEvent::Started { id })
            }
            Some(Piece::Stdout(bytes)) => stdout.push(&bytes).map(StreamEvent::Stdout),
            Some(Piece::Stderr(bytes)) => stderr.push(&bytes).map(StreamEvent::Stderr),
            Some(Piece::Ended(ended)) => {
                let rests = [
                    stdout.finish().map(StreamEvent::Stdout),
                    stderr.finish().map(StreamEvent::Stderr),
                ];
                let last = match ended {
                    Ok(ended) => end(ended),
                    Err(error) => StreamEvent::Error(error.into_body()),
                };
                for event in rests.into_iter().flatten().chain([last]) {
                    if client
                        .send(form.encode(event.name(), &event))
                        .await
                        .is_err()
                    {
                        return;
                    }
                }
                return;
            }
            None => {
                return client
                    .fail(std::io::Error::other("the end of the command is not known"))
                    .await;
            }
        };
        if let Some(event) = event
            && client
                .send(form.encode(event.name(), &event))
                .await
                .is_err()
        {
            return;
        }
    }
}

pub(super) async fn list(
    State(server): State<Shared>,
    at: InSandbox,
) -> Result<Response, ApiError> {
    let sandbox = server.sandbox(at.access, &at.name).await?;
    let list = CommandList {
        commands: sandbox.commands,
        ended: sandbox.ended,
    };
    Ok(json(StatusCode::OK, &list))
}

pub(super) async fn get(State(server): State<Shared>, at: InSandbox) -> Result<Response, ApiError> {
    Ok(json(StatusCode::OK, &command(&server, &at).await?))
}

async fn command(server: &Server, at: &InSandbox) -> Result<Command, ApiError> {
    let id = at.command()?;
    let sandbox = server.sandbox(at.access, &at.name).await?;
    let mut commands = sandbox.commands.into_iter().chain(sandbox.ended.latest);
    commands.find(|command| command.id == id).ok_or_else(|| {
        ApiError::new(
            StatusCode::NOT_FOUND,
            "no_command",
            format!("the sandbox lists no command {id}"),
        )
        .with_hint("it lists those that run, and the last 128 that ended")
    })
}

pub(super) async fn kill(
    State(server): State<Shared>,
    at: InSandbox,
    request: Request,
) -> Result<Response, ApiError> {
    let wanted: SignalCommand = read_json(request.into_body()).await?;
    let is_word = !wanted.signal.is_empty()
        && wanted
            .signal
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"+-".contains(&byte));
    if !is_word {
        return Err(ApiError::bad_request(
            "signal",
            "`signal` is the name or the number of a signal, such as TERM",
        ));
    }
    let signal = format!("--signal={}", wanted.signal);
    let id = at.command()?.to_string();
    server
        .verbs
        .run(words(["kill", &signal, "--", at.name.as_str(), &id]))
        .await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

pub(super) async fn logs(
    State(server): State<Shared>,
    at: InSandbox,
    request: Request,
) -> Result<Response, ApiError> {
    let follows = Query::parse(request.uri().query(), &["follow"])?.is_set("follow")?;
    let form = Form::of(request.headers());
    let id = at.command()?.to_string();
    // Refuses what it keeps no output of.
    let printed = server
        .verbs
        .run(words(["logs", "-q", "--", at.name.as_str(), &id]))
        .await?;
    if !follows {
        let part = |bytes: Vec<u8>| {
            let is_full = bytes.len() >= LOG_BYTES;
            output(bytes, is_full)
        };
        let logs = Logs {
            stdout: part(printed.stdout),
            stderr: part(printed.stderr),
        };
        return Ok(json(StatusCode::OK, &logs));
    }
    let form = if form == Form::Document {
        Form::Lines
    } else {
        form
    };
    let command = server
        .verbs
        .command(words(["logs", "-f", "--", at.name.as_str(), &id]));
    let pieces = exec::follow(command)?;
    let (sender, body) = channel();
    let end = |_ended| StreamEvent::End;
    tokio::spawn(stream(pieces, form, sender, |_id| (), end));
    Ok(form.response(body))
}
