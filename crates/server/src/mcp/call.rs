//! One execution of `runner` for a call of a tool: its output bounded, its end awaited, and stopped if
//! the client cancels the call.

use std::convert::Infallible;
use std::ffi::OsString;
use std::io;
use std::pin::pin;
use std::process::Stdio;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rmcp::RoleServer;
use rmcp::model::ProgressNotificationParam;
use rmcp::service::RequestContext;
use rustix::process::{Pid, Signal, kill_process};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::{Child, ChildStdin, Command};
use tokio::time::{MissedTickBehavior, interval_at, sleep, timeout};

use super::text::{Part, Stream};
use companion::Program;

/// Most bytes of the words of one execution: execve(2) takes 128 KiB in one word, and more in all.
pub(super) const WORDS_BYTES_MAX: usize = 120 << 10;

/// Time between two messages about the progress of a call.
const PROGRESS_EVERY: Duration = Duration::from_secs(1);

/// How long `runner` may take to end after each of two signals, before it is killed. The first one asks
/// the command to end, the second kills it.
const PATIENCE: Duration = Duration::from_secs(2);

/// How long output is read that processes may still write which the command has left in the background.
const DRAIN: Duration = Duration::from_millis(100);

const READ_BYTES: usize = 16 << 10;

/// What is executed, and for whom.
#[derive(Debug)]
pub(super) struct Call<'call> {
    pub(super) words: Vec<OsString>,
    /// Its standard input.
    pub(super) input: Vec<u8>,
    /// What is kept of standard output.
    pub(super) part: Part,
    /// Keep the last lines of standard error only, this many.
    pub(super) tail_of_errors: Option<usize>,
    /// After this time it is stopped as by a cancellation.
    pub(super) stop_after: Option<Duration>,
    /// What is told of a call that takes longer; `None`: nothing.
    pub(super) progress: Option<&'call str>,
}

impl Call<'_> {
    pub(super) fn new(words: Vec<OsString>) -> Self {
        Self {
            words,
            input: Vec::new(),
            part: Part::Ends,
            tail_of_errors: None,
            stop_after: None,
            progress: None,
        }
    }
}

/// How an execution ended.
#[derive(Debug)]
pub(super) struct Ended {
    /// As of a shell: 128 + n if signal n ended `runner` itself.
    pub(super) code: i32,
    pub(super) stdout: Stream,
    pub(super) stderr: Stream,
    pub(super) duration: Duration,
    /// Whether it was stopped by [`Call::stop_after`].
    pub(super) is_stopped: bool,
}

/// Why there is no end to tell of.
#[derive(Debug, thiserror::Error)]
pub(super) enum CallError {
    #[error("the call was cancelled")]
    Cancelled,
    #[error("an argument contains a NUL character, which no program can be passed")]
    Nul,
    #[error(
        "the arguments have {found} bytes, more than the {WORDS_BYTES_MAX} that a program can be \
         passed; write a file with `write_file`, and use that"
    )]
    TooLong { found: usize },
    #[error("cannot execute `runner`: {0}")]
    Execute(#[from] io::Error),
}

/// Executes `runner WORDS…` and waits for its end.
///
/// # Errors
/// [`CallError`].
pub(super) async fn execute(
    program: &Program,
    call: Call<'_>,
    context: &RequestContext<RoleServer>,
) -> Result<Ended, CallError> {
    check_words(&call.words)?;
    let started = Instant::now();
    let mut child = Command::new(program.path())
        .args(&call.words)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        // If the server ends early: what the sandbox does then does not depend on it.
        .kill_on_drop(true)
        .spawn()?;
    let part_of_errors = call.tail_of_errors.map_or(Part::Ends, Part::LastLines);
    let (mut stdout, mut stderr) = (Stream::new(call.part), Stream::new(part_of_errors));
    let read = AtomicU64::new(0);
    let pipes = (child.stdin.take(), child.stdout.take(), child.stderr.take());
    let stop;
    {
        let mut streams = pin!(async {
            tokio::join!(
                feed(pipes.0, &call.input),
                drain(pipes.1, &mut stdout, &read),
                drain(pipes.2, &mut stderr, &read),
            )
        });
        let mut ended = pin!(supervise(&mut child, &call, &read, started, context));
        let mut are_closed = false;
        stop = loop {
            tokio::select! {
                ended = &mut ended => break ended?,
                _ = &mut streams, if !are_closed => are_closed = true,
            }
        };
        if !are_closed {
            // A process that the command has left behind may keep them open for ever.
            drop(timeout(DRAIN, streams).await);
        }
    }
    match stop {
        Stop::Cancelled => Err(CallError::Cancelled),
        Stop::Ended { code, is_stopped } => Ok(Ended {
            code,
            stdout,
            stderr,
            duration: started.elapsed(),
            is_stopped,
        }),
    }
}

fn check_words(words: &[OsString]) -> Result<(), CallError> {
    let found = words.iter().map(|word| word.len() + 1).sum();
    if found > WORDS_BYTES_MAX {
        return Err(CallError::TooLong { found });
    }
    let has_nul = |word: &OsString| word.as_encoded_bytes().contains(&0);
    if words.iter().any(has_nul) {
        return Err(CallError::Nul);
    }
    Ok(())
}

async fn feed(pipe: Option<ChildStdin>, input: &[u8]) {
    if let Some(mut pipe) = pipe {
        // A command need not read its input; that it failed is told by its exit code.
        drop(pipe.write_all(input).await);
    }
}

async fn drain<Pipe: AsyncRead + Unpin>(pipe: Option<Pipe>, kept: &mut Stream, read: &AtomicU64) {
    let Some(mut pipe) = pipe else { return };
    let mut buffer = vec![0; READ_BYTES];
    while let Ok(count @ 1..) = pipe.read(&mut buffer).await {
        kept.push(&buffer[..count]);
        read.fetch_add(count as u64, Ordering::Relaxed);
    }
}

enum Stop {
    Ended { code: i32, is_stopped: bool },
    Cancelled,
}

/// Waits for the end of `child`, tells the client of its progress, and stops it if need be.
async fn supervise(
    child: &mut Child,
    call: &Call<'_>,
    read: &AtomicU64,
    started: Instant,
    context: &RequestContext<RoleServer>,
) -> Result<Stop, io::Error> {
    // Beside the rest: a client that does not read holds up neither its cancellation nor the end.
    let mut progress = pin!(report_progress(call, read, started, context));
    let mut deadline = pin!(sleep(call.stop_after.unwrap_or(Duration::MAX)));
    let is_stopped = tokio::select! {
        status = child.wait() => {
            return Ok(Stop::Ended { code: code_of(status?), is_stopped: false });
        }
        () = context.ct.cancelled() => false,
        () = &mut deadline, if call.stop_after.is_some() => true,
        never = &mut progress => match never {},
    };
    let code = stop(child).await?;
    Ok(match is_stopped {
        true => Stop::Ended { code, is_stopped },
        false => Stop::Cancelled,
    })
}

/// The client gets nothing of the output before the end: what the body writes is no message of ours.
async fn report_progress(
    call: &Call<'_>,
    read: &AtomicU64,
    started: Instant,
    context: &RequestContext<RoleServer>,
) -> Infallible {
    let (Some(what), Some(token)) = (call.progress, context.meta.get_progress_token()) else {
        return std::future::pending().await;
    };
    let mut ticks = interval_at(tokio::time::Instant::now() + PROGRESS_EVERY, PROGRESS_EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
    loop {
        ticks.tick().await;
        let seconds = started.elapsed().as_secs();
        let bytes = read.load(Ordering::Relaxed);
        let elapsed = started.elapsed().as_secs_f64();
        let mut progress = ProgressNotificationParam::new(token.clone(), elapsed);
        progress.message = Some(format!("{what} for {seconds} s, {bytes} bytes of output"));
        // A client that is gone ends the server, and thereby this call.
        drop(context.peer.notify_progress(progress).await);
    }
}

/// Ends the command: `runner` passes the first signal on and sends SIGKILL for the second.
async fn stop(child: &mut Child) -> Result<i32, io::Error> {
    for _ in 0..2 {
        send(child, Signal::TERM);
        if let Ok(status) = timeout(PATIENCE, child.wait()).await {
            return Ok(code_of(status?));
        }
    }
    send(child, Signal::KILL);
    Ok(code_of(child.wait().await?))
}

pub(super) fn send(child: &Child, signal: Signal) {
    let pid = child.id().and_then(|pid| i32::try_from(pid).ok());
    if let Some(pid) = pid.and_then(Pid::from_raw) {
        // It has not been waited for, so the pid is its own; that it has ended is no error.
        let _sent = kill_process(pid, signal);
    }
}

fn code_of(status: std::process::ExitStatus) -> i32 {
    use std::os::unix::process::ExitStatusExt as _;
    let signal = || 128 + status.signal().unwrap_or_default();
    status.code().unwrap_or_else(signal)
}
