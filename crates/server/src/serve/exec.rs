//! Commands whose output a client waits for: `runner sandbox exec`, attached.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use hyper::body::Bytes;
use rustix::process::Signal;
use tokio::io::{AsyncRead, AsyncReadExt as _};
use tokio::process::{Child, Command};
use tokio::sync::mpsc;

use super::body::STALL;
use super::error::ApiError;
use super::id_file::IdFile;
use super::server::place;
use super::terminal::{Input, Reads};
use super::types::Command as CommandRecord;
use super::verbs::{Verbs, not_executed, refusal, signal};
use spec::sandboxes::{SandboxName, shown_words};
use spec::utc::text_of_milliseconds;

/// How long a command has after its stop signal when its client has gone.
const GRACE: Duration = Duration::from_secs(2);

/// The end of standard error that may be a message of `runner`.
const MESSAGE_BYTES_MAX: usize = 64 << 10;

/// What comes of a command, in order; [`Piece::Ended`] last.
#[derive(Debug)]
pub(super) enum Piece {
    /// Its id, if [`Wanted::id_file`] asks for it.
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
    pub(super) argv: Vec<Vec<u8>>,
    /// Whether it ends if nobody takes its pieces any more.
    pub(super) ends_with_client: bool,
    /// What the words of the command name.
    pub(super) id_file: Option<IdFile>,
}

/// Starts `command`, which executes what is wanted; its words have `-i` if it reads something. A receiver
/// that is dropped ends nothing: the output is read on and dropped, so that the command does not get SIGPIPE.
///
/// # Errors
/// It cannot be executed.
pub(super) fn start(
    mut wanted: Wanted,
    mut command: Command,
    reads: Reads,
) -> Result<(mpsc::Receiver<Piece>, Arc<Input>), ApiError> {
    let started_at = now();
    let (child, input) = reads.spawn(&mut command)?;
    let (sender, receiver) = mpsc::channel(4);
    let place = place();
    let id_file = wanted.id_file.take();
    let input = Arc::new(input);
    let held = Arc::clone(&input);
    tokio::spawn(async move {
        let mut client = Client(Some(sender));
        let ended = match pump(child, wanted.ends_with_client, id_file, &mut client).await {
            Ok(Done { code, message }) => explain(&wanted, code, &started_at, &message).await,
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
    mut id_file: Option<IdFile>,
    client: &mut Client,
) -> Result<Done, ApiError> {
    let mut stdout = Source::new(child.stdout.take());
    let mut stderr = Source::new(child.stderr.take());
    let mut message = Vec::new();
    let mut signals = Signals::default();
    while stdout.is_open() || stderr.is_open() {
        let had_client = client.0.is_some();
        tokio::select! {
            id = id_of(&mut id_file) => {
                id_file = None;
                client.send(Piece::Started(id)).await;
            }
            piece = stdout.next() => if let Some(piece) = piece {
                // Written before the command wrote anything, and maybe not seen yet.
                if let Some(id) = id_file.as_mut().and_then(IdFile::written) {
                    id_file = None;
                    client.send(Piece::Started(id)).await;
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
    if let Some(id) = id_file.as_mut().and_then(IdFile::written) {
        client.send(Piece::Started(id)).await;
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
async fn id_of(file: &mut Option<IdFile>) -> u64 {
    match file {
        Some(file) => file.id().await,
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

/// Tells the exit codes of `runner` from those of the command by the list of the sandbox, which has
/// each command that was started: what the command writes decides nothing.
async fn explain(
    wanted: &Wanted,
    code: i32,
    started_at: &str,
    message: &[u8],
) -> Result<Ended, ApiError> {
    let ended = |has_timed_out| {
        Ok(Ended {
            exit_code: code,
            has_timed_out,
        })
    };
    if !(124..=127).contains(&code) {
        return ended(false);
    }
    let listed = wanted.verbs.list().await;
    let sandboxes = listed.map(|list| list.sandboxes).unwrap_or_default();
    let sandbox = sandboxes
        .into_iter()
        .find(|sandbox| sandbox.name == wanted.sandbox.as_str());
    let words = shown_words(&wanted.argv);
    let is_it = |record: &&CommandRecord| {
        let has_code = record
            .exit
            .as_ref()
            .is_some_and(|exit| exit.code == Some(code));
        let has_timed_out = code == 124 && record.outcome.as_deref() == Some("timed_out");
        record.argv == words && &*record.started_at >= started_at && (has_code || has_timed_out)
    };
    let record = sandbox
        .as_ref()
        .and_then(|sandbox| sandbox.ended.latest.iter().rev().find(is_it));
    match (record, code) {
        (Some(record), _) => ended(record.outcome.as_deref() == Some("timed_out")),
        // `runner` has no such code for what was not started, so it is that of the command, or of its
        // time; the sandbox has ended since.
        (None, 124) => ended(false),
        (None, _) => Err(refusal(message)),
    }
}

/// As records of commands write times, a second earlier: the clock may be set meanwhile.
fn now() -> String {
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    let ms = u64::try_from(since.as_millis()).unwrap_or(u64::MAX);
    text_of_milliseconds(ms.saturating_sub(1_000))
}
