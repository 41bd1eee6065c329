//! The verbs of `runner sandbox`, executed.

use std::ffi::OsString;
use std::process::Stdio;
use std::time::Duration;

use axum::http::StatusCode;
use rustix::process::{Pid, Signal, kill_process};
use tokio::io::{AsyncRead, AsyncReadExt as _};
use tokio::process::Command;
use tokio::sync::oneshot;
use tokio::time::sleep;

use super::error::ApiError;
use super::flags::Flags;
use super::server::place;
use super::types::{Sandbox, SandboxList};
use companion::Program;
use spec::outcome::Outcome;
use spec::request::Totals;
use spec::sandboxes::{CommandResult, SandboxName};

/// Most bytes of a document of `runner`: thousands of commands.
const DOCUMENT_BYTES_MAX: usize = 64 << 20;
/// Also what a log has of standard error.
const MESSAGES_BYTES_MAX: usize = 256 << 10;

/// A verb that takes longer hangs. `create` may have to fetch an image.
const VERB_TIME: Duration = Duration::from_secs(600);

/// When a client may ask again for a place that there is not.
const RETRY_AFTER_S: u32 = 10;

/// `runner`, which does everything.
#[derive(Debug, Clone)]
pub(super) struct Verbs {
    program: Program,
    /// By these `runner` counts, so that no two servers give the last place away.
    totals: Totals,
}

impl Verbs {
    pub(super) fn beside_this_one(flags: &Flags) -> Result<Self, String> {
        let program = Program::beside_this_one()
            .map_err(|error| format!("the program `runner` cannot be executed: {error}"))?;
        let totals = Totals {
            sandboxes: Some(flags.max_sandboxes),
            memory_bytes: flags.max_memory,
            cpu_millis: flags.max_cpus,
        };
        Ok(Self { program, totals })
    }

    /// Whether the memory and the processors of all sandboxes and runs have a limit.
    pub(super) const fn has_totals(&self) -> bool {
        self.totals.memory_bytes.is_some() || self.totals.cpu_millis.is_some()
    }

    pub(super) const fn program(&self) -> &Program {
        &self.program
    }

    /// `runner sandbox WORDS…`, not started.
    pub(super) fn command(&self, words: impl IntoIterator<Item = impl Into<OsString>>) -> Command {
        let mut command = self.runner();
        command
            .arg("sandbox")
            .args(words.into_iter().map(Into::into))
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    /// `runner`, without words.
    pub(super) fn runner(&self) -> Command {
        self.program.command(&self.totals).into()
    }

    /// Runs a verb to its end, also if the client goes meanwhile.
    ///
    /// # Errors
    /// What it says, with the status that fits its code.
    pub(super) async fn run(&self, words: Vec<OsString>) -> Result<Printed, ApiError> {
        Self::run_command(self.command(words)).await
    }

    /// As [`Self::run`], with the verb as a command.
    ///
    /// # Errors
    /// As [`Self::run`].
    pub(super) async fn run_command(command: Command) -> Result<Printed, ApiError> {
        let (never, end) = oneshot::channel();
        let place = place();
        let task = async move {
            let done = finish(command, end).await;
            drop((never, place));
            done
        };
        // A task, since dropping the future of a call must not kill what it has begun.
        match tokio::spawn(task).await {
            Ok(done) => done,
            Err(error) => Err(ApiError::failed(format!(
                "the call was not finished: {error}"
            ))),
        }
    }

    /// Runs a verb, and ends it if `watch` returns first, or with the call. `None`: it was ended.
    ///
    /// # Errors
    /// As [`Self::run`].
    pub(super) async fn run_watched(
        &self,
        words: Vec<OsString>,
        watch: impl Future<Output = ()>,
    ) -> Result<Option<Printed>, ApiError> {
        let (ended, end) = oneshot::channel();
        let (command, place) = (self.command(words), place());
        let task = tokio::spawn(async move {
            let done = finish(command, end).await;
            drop(place);
            done
        });
        let lost = |error| ApiError::failed(format!("the call was not finished: {error}"));
        tokio::pin!(task);
        tokio::select! {
            done = &mut task => return done.map_err(lost)?.map(Some),
            () = watch => drop(ended),
        }
        // It removes what it has made first.
        let _ended = task.await.map_err(lost)?;
        Ok(None)
    }

    /// All sandboxes of this user.
    ///
    /// # Errors
    /// As [`Self::run`].
    pub(super) async fn list(&self) -> Result<SandboxList, ApiError> {
        self.list_by(words(["ls", "--json"])).await
    }

    /// One sandbox of this user.
    ///
    /// # Errors
    /// As [`Self::run`]; its supervisor does not answer.
    pub(super) async fn get(&self, name: &SandboxName) -> Result<Sandbox, ApiError> {
        let list = self.list_by(words(["ls", "--json", "--", name.as_str()]));
        let mut list = list.await?;
        if !list.unresponsive.is_empty() {
            return Err(ApiError::new(
                StatusCode::GATEWAY_TIMEOUT,
                "sandbox_unresponsive",
                "the supervisor of the sandbox does not answer",
            ));
        }
        let found = list.sandboxes.pop();
        found.ok_or_else(|| ApiError::failed("`runner sandbox ls` did not print the sandbox"))
    }

    async fn list_by(&self, words: Vec<OsString>) -> Result<SandboxList, ApiError> {
        let printed = self.run(words).await?;
        serde_json::from_slice(&printed.stdout).map_err(|error| {
            let message = format!("`runner sandbox ls --json` cannot be read: {error}");
            ApiError::failed(message)
        })
    }
}

/// What a verb printed.
#[derive(Debug)]
pub(super) struct Printed {
    pub(super) stdout: Vec<u8>,
    pub(super) stderr: Vec<u8>,
}

pub(super) fn words<const N: usize>(words: [&str; N]) -> Vec<OsString> {
    words.map(OsString::from).to_vec()
}

/// Waits until the process ends. SIGTERM ends it when the other end of `end` is dropped, or when it hangs.
async fn finish(mut command: Command, end: oneshot::Receiver<()>) -> Result<Printed, ApiError> {
    let mut child = command.spawn().map_err(|error| not_executed(&error))?;
    let pid = child.id();
    let stdout = read_start(child.stdout.take(), DOCUMENT_BYTES_MAX);
    let stderr = read_start(child.stderr.take(), MESSAGES_BYTES_MAX);
    let ended = async { tokio::join!(stdout, stderr, child.wait()) };
    tokio::pin!(ended);
    let (stdout, stderr, status) = tokio::select! {
        done = &mut ended => done,
        _dropped = end => {
            signal(pid, Signal::TERM);
            ended.await
        }
        () = sleep(VERB_TIME) => {
            signal(pid, Signal::TERM);
            return Err(ApiError::failed(format!("`runner` did not end in {} s", VERB_TIME.as_secs())));
        }
    };
    let status = status.map_err(|error| ApiError::failed(format!("`runner` was lost: {error}")))?;
    match status.code() {
        Some(0) if stdout.len() < DOCUMENT_BYTES_MAX => Ok(Printed { stdout, stderr }),
        Some(0) => Err(ApiError::failed("`runner` printed more than can be read")),
        Some(_) => Err(refusal(&stderr)),
        None => Err(ApiError::failed(format!("`runner` was killed: {status}"))),
    }
}

/// `runner` itself could not be executed: words that are too long, or the host has no processes left.
pub(super) fn not_executed(error: &std::io::Error) -> ApiError {
    match error.kind() {
        std::io::ErrorKind::ArgumentListTooLong => ApiError::too_large(
            "the words and variables of the command are longer than execve(2) takes",
        ),
        std::io::ErrorKind::InvalidInput => ApiError::bad_request("word", "a word has a NUL"),
        _ => ApiError::failed(format!("`runner` cannot be executed: {error}")),
    }
}

/// Sends a signal to a child that has not been waited for.
pub(super) fn signal(pid: Option<u32>, signal: Signal) {
    let pid = pid
        .and_then(|pid| i32::try_from(pid).ok())
        .and_then(Pid::from_raw);
    if let Some(pid) = pid {
        // It has ended meanwhile.
        let _sent = kill_process(pid, signal);
    }
}

/// Reads to the end, and returns at most the first `bytes_max` bytes.
pub(super) async fn read_start(
    source: Option<impl AsyncRead + Unpin>,
    bytes_max: usize,
) -> Vec<u8> {
    let mut kept = Vec::new();
    let Some(mut source) = source else {
        return kept;
    };
    let mut buffer = vec![0; 16 << 10];
    while let Ok(count @ 1..) = source.read(&mut buffer).await {
        kept.extend_from_slice(&buffer[..count.min(bytes_max - kept.len())]);
    }
    kept
}

/// What `runner` says on standard error: `runner: WHAT: MESSAGE (CODE)`, and a hint.
pub(super) fn refusal(stderr: &[u8]) -> ApiError {
    let text = String::from_utf8_lossy(stderr);
    let said = text
        .lines()
        .filter_map(|line| line.strip_prefix("runner: "));
    let of_error = |line: &&str| {
        ["refused: ", "failed: ", "not started: "]
            .iter()
            .any(|what| line.starts_with(what))
    };
    let mut said = said.skip_while(|line| !of_error(line));
    let line = said.next().unwrap_or_default();
    let message = line.split_once(": ").map_or("", |(_what, rest)| rest);
    let coded = message
        .strip_suffix(')')
        .and_then(|message| message.rsplit_once(" ("));
    let Some((message, code)) = coded else {
        return ApiError::failed(format!(
            "`runner` failed without a message of its form: {}",
            text.trim()
        ));
    };
    let hints = said.filter_map(|line| line.strip_prefix("hint: "));
    error_of(code, message, hints.last())
}

fn error_of(code: &str, message: &str, hint: Option<&str>) -> ApiError {
    let error = ApiError::new(status_of(code), code, message);
    let error = match error.status {
        StatusCode::TOO_MANY_REQUESTS => error.retry_after_s(RETRY_AFTER_S),
        _ => error,
    };
    match hint {
        // It may name a sandbox that the client must not know.
        Some(_similar) if code == "no_sandbox" => error,
        Some(hint) => error.with_hint(hint),
        None => error,
    }
}

/// What `runner sandbox exec --json` writes: whether the time of the command was over.
///
/// # Errors
/// The command was not started. Without the document, which wrong usage has not, `stderr` says why.
pub(super) fn has_timed_out(document: &[u8], stderr: &[u8]) -> Result<bool, ApiError> {
    let Ok(result) = serde_json::from_slice::<CommandResult>(document) else {
        return Err(refusal(stderr));
    };
    match result.error {
        Some(error) => Err(error_of(&error.code, &error.message, error.hint.as_deref())),
        None => Ok(result.outcome == Some(Outcome::TimedOut)),
    }
}

fn status_of(code: &str) -> StatusCode {
    match code {
        "no_sandbox" | "no_log" | "no_command" => StatusCode::NOT_FOUND,
        "sandbox_exists" | "sandbox_busy" | "sandbox_paused" | "sandbox_ending"
        | "sandbox_no_freezer" | "sandbox_version" => StatusCode::CONFLICT,
        "no_listener" => StatusCode::BAD_GATEWAY,
        "sandbox_connections" => StatusCode::SERVICE_UNAVAILABLE,
        "sandbox_name" | "usage" | "env_invalid" => StatusCode::BAD_REQUEST,
        "host_failed" | "sandbox_unusable" | "runtime_directory_unusable" => {
            StatusCode::INTERNAL_SERVER_ERROR
        }
        "too_many_sandboxes" | "too_much_memory" | "too_many_cpus" => StatusCode::TOO_MANY_REQUESTS,
        _ => StatusCode::UNPROCESSABLE_ENTITY,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_runner_says_becomes_a_status_a_code_a_message_and_a_hint() {
        for (stderr, status, code, message, hint) in [
            (
                "runner: warning: weaker (limit_weaker)\nrunner: refused: there is no sandbox a (no_sandbox)\nrunner: hint: did you mean b?\n",
                404,
                "no_sandbox",
                "there is no sandbox a",
                None,
            ),
            (
                "runner: not started: `x (y)` was (z) (program_not_found)\n",
                422,
                "program_not_found",
                "`x (y)` was (z)",
                None,
            ),
            (
                "Segmentation fault\n",
                500,
                "host_failed",
                "`runner` failed without a message of its form: Segmentation fault",
                None,
            ),
            (
                "",
                500,
                "host_failed",
                "`runner` failed without a message of its form: ",
                None,
            ),
        ] {
            let error = refusal(stderr.as_bytes());
            let found = error.status.as_u16();
            let body = error.into_body();
            assert_eq!(
                (found, &*body.code, &*body.message, body.hint.as_deref()),
                (status, code, message, hint)
            );
        }
    }
}
