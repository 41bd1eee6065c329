//! Commands whose output a client waits for: `runner sandbox exec`, attached.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::ffi::OsStringExt as _;
use std::sync::Arc;
use std::time::Duration;

use hyper::body::Bytes;
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::Signal;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::unix::pipe;
use tokio::process::{Child, Command};
use tokio::sync::mpsc;

use super::body::STALL;
use super::error::ApiError;
use super::id_pipe::{IdPipe, no_pipe, pipe_from_child};
use super::server::place;
use super::terminal::{DEFAULT_TERM, Input, Reads};
use super::verbs::{Verbs, has_timed_out, not_executed, read_start, refusal, signal, words};
use spec::path::escape;
use spec::sandboxes::SandboxName;
use sys::stdio::inherit;

/// How long a command has after its stop signal when its client has gone.
const GRACE: Duration = Duration::from_secs(2);

/// The end of standard error that may be a message of `runner`.
const MESSAGE_BYTES_MAX: usize = 64 << 10;

/// How a command ended, as a document: an error has the name of the program, four bytes for one.
const RESULT_BYTES_MAX: usize = 1 << 20;

/// With its `=` and NUL, what execve(2) takes.
const VARIABLE_BYTES_MAX: usize = (128 << 10) - 2;

/// Of a name in a message.
const SHOWN_BYTES_MAX: usize = 64;

/// What comes of a command, in order; [`Piece::Ended`] last.
#[derive(Debug)]
pub(super) enum Piece {
    /// Its id, if [`Wanted::tells_id`] asks for it.
    Started(u64),
    Stdout(Bytes),
    Stderr(Bytes),
    Ended(Result<Ended, ApiError>),
}

/// How a command ended.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ended {
    pub(super) exit_code: i32,
    pub(super) has_timed_out: bool,
}

/// A command as a client asked for it.
#[derive(Debug)]
pub(super) struct Wanted {
    pub(super) verbs: Verbs,
    pub(super) sandbox: SandboxName,
    /// Further flags of `runner sandbox exec`.
    pub(super) flags: Vec<OsString>,
    pub(super) variables: BTreeMap<String, String>,
    pub(super) argv: Vec<Vec<u8>>,
    pub(super) reads: Reads,
    /// Whether it ends if nobody takes its pieces any more.
    pub(super) ends_with_client: bool,
    pub(super) tells_id: bool,
}

impl Wanted {
    /// `runner sandbox exec`, not started.
    ///
    /// # Errors
    /// The process has no descriptors left.
    pub(super) fn command(&self) -> Result<Command, ApiError> {
        let mut line = words(["exec"]);
        line.extend(self.reads.flag().map(OsString::from));
        // Otherwise it would be that of the server.
        if let (Reads::Terminal(_), false) = (self.reads, self.variables.contains_key("TERM")) {
            line.push(DEFAULT_TERM.into());
        }
        line.extend(self.flags.iter().cloned());
        // Other users of the host can read the words, so the values are not among them.
        let variables = match self.variables.is_empty() {
            true => None,
            false => {
                let text = env_file_text(&self.variables);
                Some(pipe_of(text.into_bytes()).map_err(|error| no_pipe(&error))?)
            }
        };
        line.extend(
            variables
                .iter()
                .map(|pipe| format!("--env-file=/proc/self/fd/{}", pipe.as_raw_fd()).into()),
        );
        line.extend(words(["--", self.sandbox.as_str()]));
        line.extend(self.argv.iter().cloned().map(OsString::from_vec));
        let mut command = self.verbs.command(line);
        if let Some(pipe) = variables {
            inherit(command.as_std_mut(), pipe);
        }
        Ok(command)
    }
}

/// # Errors
/// One is not a variable, or too long for execve(2).
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

/// The form of `env -0`, in which a value is any text without a NUL, for `--env-file` and `--label-file`.
pub(super) fn env_file_text<'pair>(
    pairs: impl IntoIterator<Item = (&'pair String, &'pair String)>,
) -> String {
    let entries = pairs.into_iter();
    entries
        .map(|(name, value)| format!("{name}={value}\0"))
        .collect()
}

/// A pipe from which `bytes` are read.
fn pipe_of(bytes: Vec<u8>) -> std::io::Result<OwnedFd> {
    let (reader, writer) = pipe_with(PipeFlags::CLOEXEC)?;
    let mut writer = pipe::Sender::from_owned_fd(writer)?;
    tokio::spawn(async move {
        // `runner` may end before it has read everything.
        let _written = writer.write_all(&bytes).await;
    });
    Ok(reader)
}

/// Starts what is wanted, and returns the server's end of what it reads. A receiver that is dropped ends
/// nothing: the output is read on and dropped, so that the command does not get SIGPIPE.
///
/// # Errors
/// It cannot be executed.
pub(super) fn start(mut wanted: Wanted) -> Result<(mpsc::Receiver<Piece>, Arc<Input>), ApiError> {
    // The exit code alone does not tell how a command ended, and what it writes decides nothing.
    let (result, result_end) = pipe_from_child()?;
    let flag = format!("--json=fd:{}", result_end.as_raw_fd());
    wanted.flags.push(flag.into());
    let (id, id_end) = match wanted.tells_id {
        true => IdPipe::make(&mut wanted.flags).map(|(id, end)| (Some(id), Some(end)))?,
        false => (None, None),
    };
    let mut command = wanted.command()?;
    for end in [Some(result_end), id_end].into_iter().flatten() {
        inherit(command.as_std_mut(), end);
    }
    let (child, input) = wanted.reads.spawn(&mut command)?;
    // And with it the other end: the document ends with the child.
    drop(command);
    let result = tokio::spawn(read_start(Some(result), RESULT_BYTES_MAX));
    let (sender, receiver) = mpsc::channel(4);
    let place = place();
    let input = Arc::new(input);
    let held = Arc::clone(&input);
    tokio::spawn(async move {
        let mut client = Client(Some(sender));
        let ended = match pump(child, wanted.ends_with_client, id, &mut client).await {
            Ok(Done { code, message }) => {
                let document = result.await.unwrap_or_default();
                has_timed_out(&document, &message).map(|has_timed_out| Ended {
                    exit_code: code,
                    has_timed_out,
                })
            }
            Err(error) => Err(error),
        };
        client.send(Piece::Ended(ended)).await;
        drop((place, held));
    });
    Ok((receiver, input))
}

/// Starts `command`, which follows a log until its end, or until the receiver is dropped.
///
/// # Errors
/// It cannot be executed.
pub(super) fn follow(mut command: Command) -> Result<mpsc::Receiver<Piece>, ApiError> {
    let child = command.spawn().map_err(|error| not_executed(&error))?;
    let (sender, receiver) = mpsc::channel(4);
    tokio::spawn(async move {
        let mut client = Client(Some(sender));
        let ended = match pump(child, true, None, &mut client).await {
            Ok(Done { code: 0, .. }) => Ok(Ended {
                exit_code: 0,
                has_timed_out: false,
            }),
            Ok(Done { message, .. }) => Err(refusal(&message)),
            Err(error) => Err(error),
        };
        client.send(Piece::Ended(ended)).await;
    });
    Ok(receiver)
}

/// Who gets the pieces, until it has gone.
struct Client(Option<mpsc::Sender<Piece>>);

impl Client {
    async fn send(&mut self, piece: Piece) {
        if let Some(sender) = &self.0
            && sender.send_timeout(piece, STALL).await.is_err()
        {
            self.0 = None;
        }
    }

    /// Never, if it has gone already.
    async fn gone(&self) {
        match &self.0 {
            Some(sender) => sender.closed().await,
            None => std::future::pending().await,
        }
    }
}

/// How `runner` ended.
struct Done {
    code: i32,
    /// The end of its standard error.
    message: Vec<u8>,
}

/// Passes on what `child` writes until it ends.
async fn pump(
    mut child: Child,
    ends_with_client: bool,
    mut id: Option<IdPipe>,
    client: &mut Client,
) -> Result<Done, ApiError> {
    let mut stdout = Source::new(child.stdout.take());
    let mut stderr = Source::new(child.stderr.take());
    let mut message = Vec::new();
    let mut signals = Signals::default();
    while stdout.is_open() || stderr.is_open() {
        let had_client = client.0.is_some();
        tokio::select! {
            started = id_of(&mut id) => {
                id = None;
                client.send(Piece::Started(started)).await;
            }
            piece = stdout.next() => if let Some(piece) = piece {
                // Written before the command wrote anything, and maybe not seen yet.
                if let Some(started) = id.as_mut().and_then(IdPipe::written) {
                    id = None;
                    client.send(Piece::Started(started)).await;
                }
                client.send(Piece::Stdout(piece)).await;
            },
            piece = stderr.next() => if let Some(piece) = piece {
                message.extend_from_slice(&piece);
                message.drain(..message.len().saturating_sub(MESSAGE_BYTES_MAX));
                client.send(Piece::Stderr(piece)).await;
            },
            () = client.gone() => client.0 = None,
            () = signals.due() => signals.send(child.id()),
        }
        if had_client && client.0.is_none() && ends_with_client {
            signals.begin();
        }
    }
    if let Some(started) = id.as_mut().and_then(IdPipe::written) {
        client.send(Piece::Started(started)).await;
    }
    let pid = child.id();
    let ended = tokio::select! {
        ended = child.wait() => ended,
        ended = async { signals.send_all(pid).await; std::future::pending().await } => ended,
    };
    let status = ended.map_err(|error| ApiError::failed(format!("`runner` was lost: {error}")))?;
    match status.code() {
        Some(code) => Ok(Done { code, message }),
        None => Err(ApiError::failed(format!("`runner` was killed: {status}"))),
    }
}

/// Never, if it is known already.
async fn id_of(pipe: &mut Option<IdPipe>) -> u64 {
    match pipe {
        Some(pipe) => pipe.id().await,
        None => std::future::pending().await,
    }
}

/// `runner sandbox exec` passes the first signal on, and sends SIGKILL for the second.
#[derive(Debug, Default)]
struct Signals {
    next: Option<tokio::time::Instant>,
    left: u8,
}

impl Signals {
    fn begin(&mut self) {
        *self = Self {
            next: Some(tokio::time::Instant::now()),
            left: 2,
        };
    }

    async fn due(&self) {
        match self.next {
            Some(at) => tokio::time::sleep_until(at).await,
            None => std::future::pending().await,
        }
    }

    fn send(&mut self, pid: Option<u32>) {
        signal(pid, Signal::TERM);
        self.left = self.left.saturating_sub(1);
        self.next = (self.left > 0).then(|| tokio::time::Instant::now() + GRACE);
    }

    /// Sends those that are left.
    async fn send_all(&mut self, pid: Option<u32>) {
        while self.next.is_some() {
            self.due().await;
            self.send(pid);
        }
    }
}

/// A pipe until its end.
struct Source<Pipe>(Option<(Pipe, Vec<u8>)>);

impl<Pipe: AsyncRead + Unpin> Source<Pipe> {
    fn new(pipe: Option<Pipe>) -> Self {
        Self(pipe.map(|pipe| (pipe, vec![0; 32 << 10])))
    }

    fn is_open(&self) -> bool {
        self.0.is_some()
    }

    /// What can be read; `None` at the end, and never again.
    async fn next(&mut self) -> Option<Bytes> {
        let Some((pipe, buffer)) = &mut self.0 else {
            return std::future::pending().await;
        };
        if let Ok(count @ 1..) = pipe.read(buffer).await {
            return Some(Bytes::copy_from_slice(&buffer[..count]));
        }
        self.0 = None;
        None
    }
}
