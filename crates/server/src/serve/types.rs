//! The documents of the API. The OpenAPI document is made from these types.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The names of sandboxes, as `spec::sandboxes::SandboxName` reads them.
pub(super) const NAME: &str = "^[a-zA-Z0-9][a-zA-Z0-9_.-]{0,47}$";

/// Why a call failed.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub(super) struct ErrorDocument {
    pub(super) error: ErrorBody,
}

/// An error.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub(super) struct ErrorBody {
    /// What failed, for programs: it stays the same between versions.
    pub(super) code: String,
    /// What failed, for people.
    pub(super) message: String,
    /// What to do.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) hint: Option<String>,
}

/// The server answers.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct Health {
    /// The version of the program.
    pub(super) version: &'static str,
}

/// The sandbox to create.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct CreateSandbox {
    /// Its name; by default one that is not in use. At most 44 characters over TCP.
    #[serde(default)]
    #[schemars(regex(pattern = NAME))]
    pub(super) name: Option<String>,
    /// The name of a template of the server. Needed over TCP.
    #[serde(default)]
    pub(super) template: Option<String>,
    /// Flags of `runner sandbox create`, one word each. On the unix socket only; they follow those of
    /// the template. Relative paths begin at the directory in which the server was started.
    #[serde(default)]
    pub(super) flags: Vec<String>,
    /// Labels: names and values, at most 64 and 16 KiB. Over TCP no name begins with `runner.`.
    #[serde(default)]
    #[schemars(extend("maxProperties" = 64))]
    pub(super) labels: BTreeMap<String, String>,
}

/// When the sandbox shall end. The times count from now, and stand still while it is paused.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct SetTimeout {
    /// It ends after this time. Over TCP its whole time is at most the `--timeout` of its template.
    #[serde(default)]
    #[schemars(range(min = 1))]
    pub(super) timeout_ms: Option<u64>,
    /// It ends if no command runs or comes for this time. On the unix socket only.
    #[serde(default)]
    #[schemars(range(min = 1))]
    pub(super) idle_timeout_ms: Option<u64>,
}

/// The sandboxes that the client may use.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub(super) struct SandboxList {
    pub(super) sandboxes: Vec<Sandbox>,
    /// Those whose supervisors did not answer in 5 s.
    pub(super) unresponsive: Vec<UnresponsiveSandbox>,
}

/// A sandbox whose supervisor does not answer.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub(super) struct UnresponsiveSandbox {
    pub(super) name: String,
    /// The id of its run.
    pub(super) run_id: String,
}

/// A sandbox.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub(super) struct Sandbox {
    pub(super) name: String,
    /// The id of its run, by which `runner inspect` finds its report.
    pub(super) run_id: String,
    /// When it was created, in seconds since 1970.
    pub(super) start_unix_s: i64,
    /// Whether its processes are stopped.
    pub(super) is_paused: bool,
    /// The labels that it was created with.
    pub(super) labels: BTreeMap<String, String>,
    /// How long it has lived, without pauses.
    pub(super) run_time_ms: u64,
    /// After this time it ends, except for pauses; `null`: it has no time limit.
    pub(super) ends_in_ms: Option<u64>,
    /// It ends if it is idle for this time; `null`: it does not.
    pub(super) idle_timeout_ms: Option<u64>,
    /// The commands that run.
    pub(super) commands: Vec<Command>,
    pub(super) ended: EndedCommands,
}

/// Commands that ended.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub(super) struct EndedCommands {
    /// The last 128, in the order of their ends.
    pub(super) latest: Vec<Command>,
    /// The number of those that ended earlier.
    pub(super) unlisted: u64,
}

/// A command of a sandbox.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub(super) struct Command {
    /// Its number in the sandbox, from 1.
    pub(super) id: u64,
    /// The process id of its first process in the sandbox.
    pub(super) pid: i32,
    /// The program and its arguments, escaped and cut after 1 KiB.
    pub(super) argv: Vec<String>,
    /// Whether it was started in the background: only then its output is kept.
    pub(super) is_detached: bool,
    pub(super) timeout_ms: Option<u64>,
    /// UTC, RFC 3339, to the millisecond.
    pub(super) started_at: String,
    /// As `started_at`; `null`: it runs.
    pub(super) ended_at: Option<String>,
    /// `exited`, `signaled` or `timed_out`, or `cancelled` by the end of the sandbox; `null`: it runs.
    pub(super) outcome: Option<String>,
    /// How its first process ended; `null`: it runs, or the sandbox ended first.
    pub(super) exit: Option<Exit>,
}

/// How a process ended.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub(super) struct Exit {
    /// Exit code; `null`: a signal ended it.
    pub(super) code: Option<i32>,
    /// Signal that ended it; `null`: it exited.
    pub(super) signal: Option<i32>,
    /// Whether the kernel reported a core dump.
    pub(super) core_dump: bool,
    /// Wait status (wait(2)).
    pub(super) raw_status: i32,
}

/// The commands of a sandbox.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct CommandList {
    /// The commands that run.
    pub(super) commands: Vec<Command>,
    pub(super) ended: EndedCommands,
}

/// The command to start.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct StartCommand {
    /// The program and its arguments. No shell reads them.
    #[schemars(length(min = 1))]
    pub(super) argv: Vec<String>,
    /// Variables beside those of the sandbox. Other users of the host can see them while the command runs
    /// in the foreground: for secrets the sandbox has `--secret`.
    #[serde(default)]
    pub(super) env: BTreeMap<String, String>,
    /// The working directory in the sandbox; by default that of the sandbox.
    #[serde(default)]
    pub(super) cwd: Option<String>,
    /// The command is ended after this time.
    #[serde(default)]
    #[schemars(range(min = 1))]
    pub(super) timeout_ms: Option<u64>,
    /// Its standard input; by default it reads nothing. Not in the background.
    #[serde(default)]
    pub(super) stdin: Option<String>,
    /// A terminal for the command, whose output is a stream of events that begins with `started`. Its input
    /// comes by calls. Not in the background.
    #[serde(default)]
    pub(super) tty: Option<TerminalSize>,
    /// Answer when the command has started; the sandbox keeps the end of its output.
    #[serde(default)]
    pub(super) background: bool,
    /// End the command if the client closes the connection. By default it goes on, and its output is
    /// dropped.
    #[serde(default)]
    pub(super) kill_on_disconnect: bool,
    /// The most bytes of each stream in an answer that is one document, up to 8 MiB; 1 MiB by default.
    #[serde(default)]
    pub(super) max_output_bytes: Option<u32>,
}

/// The size of a terminal, in characters.
#[derive(Debug, Clone, Copy, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct TerminalSize {
    #[serde(default = "rows")]
    #[schemars(range(min = 1))]
    pub(super) rows: u16,
    #[serde(default = "columns")]
    #[schemars(range(min = 1))]
    pub(super) columns: u16,
}

fn rows() -> u16 {
    24
}

fn columns() -> u16 {
    80
}

/// A command that ended.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct FinishedCommand {
    /// The exit code; 128 + n: signal n ended it, 137 also if the sandbox ended first; 124 also if its time
    /// was over.
    pub(super) exit_code: i32,
    /// Whether its `timeout_ms` was over.
    pub(super) timed_out: bool,
    pub(super) stdout: Output,
    pub(super) stderr: Output,
}

/// What a command wrote to a stream.
#[derive(Debug, Default, Serialize, JsonSchema)]
pub(super) struct Output {
    /// The bytes, if they are UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) text: Option<String>,
    /// The bytes, if they are not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) base64: Option<String>,
    /// Whether there is more that is not in this document.
    pub(super) truncated: bool,
}

/// A command that runs in the background.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct StartedCommand {
    /// Its number in the sandbox.
    pub(super) id: u64,
}

/// The signal to send.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct SignalCommand {
    /// Its name or number. `KILL`, the default, ends everything that the command has started.
    #[serde(default = "kill")]
    #[schemars(regex(pattern = "^[a-zA-Z0-9+-]+$"))]
    pub(super) signal: String,
}

fn kill() -> String {
    "KILL".to_owned()
}

/// What a background command wrote: the last 128 KiB of each stream.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct Logs {
    /// `truncated`: it has 128 KiB, so earlier bytes may be missing.
    pub(super) stdout: Output,
    pub(super) stderr: Output,
}

/// One event of a stream: a line of NDJSON, or the data of an event of the same name.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(super) enum StreamEvent {
    /// A command with a terminal runs. The first event.
    Started {
        /// Its number in the sandbox.
        id: u64,
    },
    /// Bytes of standard output, or of the terminal.
    Stdout(Chunk),
    /// Bytes of standard error.
    Stderr(Chunk),
    /// The command ended. The last event.
    Exit {
        /// As in the answer without a stream.
        exit_code: i32,
        timed_out: bool,
    },
    /// The output is complete: the last event of logs.
    End,
    /// The command was not started, or its end is not known. The last event.
    Error(ErrorBody),
}

/// A piece of output.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct Chunk {
    /// The bytes, if they are UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) text: Option<String>,
    /// The bytes, if they are not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) base64: Option<String>,
}

/// An event of a directory that is watched.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(super) enum WatchEvent {
    /// Events come from now on. The first event.
    Started,
    /// Something was made there, or moved to there.
    Create(WatchedPath),
    /// A file was written to.
    Write(WatchedPath),
    Remove(WatchedPath),
    /// It was moved, and has another path now.
    Rename(WatchedPath),
    /// Its permission bits, times, owner or number of links have changed.
    Chmod(WatchedPath),
    /// Events were lost, since there were too many.
    Overflow,
    /// The directory is watched no more. The last event.
    Error(ErrorBody),
}

/// A path from the directory that is watched.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub(super) struct WatchedPath {
    /// If it is UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) path: Option<String>,
    /// If it is not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) path_base64: Option<String>,
}

/// A directory.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct FileList {
    pub(super) entries: Vec<FileEntry>,
}

/// A file, a directory or something else with a name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub(super) struct FileEntry {
    /// The last part of its path, if it is UTF-8.
    pub(super) name: Option<String>,
    /// The last part of its path, if it is not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) name_base64: Option<String>,
    /// `file`, `directory`, `link` or `other`.
    pub(super) kind: FileKind,
    /// Permission bits, in octal.
    pub(super) mode: String,
    pub(super) size_bytes: u64,
    /// In seconds since 1970.
    pub(super) modified_unix_s: i64,
    /// Where a symbolic link leads, if it is UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) target: Option<String>,
}

/// The kind of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(super) enum FileKind {
    File,
    Directory,
    Link,
    Other,
}
