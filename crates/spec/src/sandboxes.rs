//! Sandboxes that stay: their names, and the documents that pass through their control sockets.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::labels::Labels;
use crate::outcome::Outcome;
use crate::path::escape;
use crate::report::{ErrorReport, Exit, Usage};

/// With a run id and the path of a descriptor it must fit into the address of a socket (unix(7)).
const NAME_BYTES_MAX: usize = 48;

/// Most bytes of a document on a control socket; above the limit of execve(2) for the words of a
/// command.
pub const DOCUMENT_BYTES_MAX: usize = 16 << 20;

/// Most commands that are listed after their end.
const ENDED_COMMANDS_MAX: usize = 128;

/// Most bytes of the words of a command in a list.
const SHOWN_BYTES_MAX: usize = 1024;

/// The name of a sandbox, which is that of its control socket.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(transparent)]
pub struct SandboxName(String);

/// It is not a name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{found}` is not the name of a sandbox: expected 1 to 48 characters of a-z, A-Z, 0-9, `_`, `.` and \
     `-`, the first a letter or a digit"
)]
pub struct NotAName {
    /// Escaped.
    pub found: String,
}

impl SandboxName {
    /// Reads a name, with docker's characters.
    ///
    /// # Errors
    /// [`NotAName`].
    pub fn parse(text: &str) -> Result<Self, NotAName> {
        let is_first = |byte: &u8| byte.is_ascii_alphanumeric();
        let is_other = |byte: &u8| is_first(byte) || b"_.-".contains(byte);
        let bytes = text.as_bytes();
        let is_name = bytes.first().is_some_and(is_first)
            && bytes.iter().all(is_other)
            && bytes.len() <= NAME_BYTES_MAX;
        match is_name {
            true => Ok(Self(text.to_owned())),
            false => Err(NotAName {
                found: escape(bytes),
            }),
        }
    }

    /// The name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl std::fmt::Display for SandboxName {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(&self.0)
    }
}

/// What `runner sandbox exec` asks for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CommandRequest {
    /// Not written if it is the default: older supervisors do not know it.
    #[serde(default, skip_serializing_if = "Action::is_execute")]
    pub action: Action,
    /// The program and its arguments, or the words of the action.
    pub argv: Vec<Vec<u8>>,
    /// Variables that replace those of the sandbox.
    pub environment: Vec<(Vec<u8>, Vec<u8>)>,
    /// `None`: that of the sandbox.
    pub working_directory: Option<Vec<u8>>,
    pub terminal: Option<TerminalSize>,
    /// After this time it is stopped.
    #[serde(default)]
    pub timeout_ms: Option<u64>,
    /// Nobody waits for it.
    #[serde(default)]
    pub is_detached: bool,
    /// Not written if there are none, as `action`.
    #[serde(default, skip_serializing_if = "CommandLimits::is_none")]
    pub limits: CommandLimits,
}

/// Limits of one command of a sandbox, beside its time. Those of the sandbox hold, too.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct CommandLimits {
    pub memory_bytes: Option<u64>,
    /// Processes and threads at once.
    pub processes: Option<u64>,
    /// Thousandths of a processor.
    pub cpu_millis: Option<u64>,
    pub cpu_time_ms: Option<u64>,
}

impl CommandLimits {
    /// Whether there is no limit.
    #[must_use]
    pub fn is_none(&self) -> bool {
        *self == Self::default()
    }
}

/// What holds for each command of a sandbox that states no less.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CommandDefaults {
    pub timeout_ms: Option<u64>,
    pub cpu_time_ms: Option<u64>,
}

impl CommandDefaults {
    /// Lowers the limits of a command to these.
    pub fn apply(&self, wanted: &mut CommandRequest) {
        let lower = |own: Option<u64>, default: Option<u64>| own.into_iter().chain(default).min();
        wanted.timeout_ms = lower(wanted.timeout_ms, self.timeout_ms);
        wanted.limits.cpu_time_ms = lower(wanted.limits.cpu_time_ms, self.cpu_time_ms);
    }
}

/// What `runner sandbox update` asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UpdateRequest {
    /// The sandbox ends after this time from now on; [`crate::limits::UNLIMITED`]: never. `None`: unchanged.
    pub timeout_ms: Option<u64>,
    /// It ends if it is idle for this time from now on. `None`: unchanged.
    pub idle_timeout_ms: Option<u64>,
}

/// What became of an [`UpdateRequest`]. If it is refused, nothing has changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum UpdateAnswer {
    Updated,
    /// The sandbox would live longer than the configuration allows.
    AboveMaximum(LifetimeMaximum),
    /// It would be paused before it has been idle for this time.
    PausedBefore {
        pause_after_idle_ms: u64,
    },
}

/// How long a sandbox may live.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LifetimeMaximum {
    /// From its start, without pauses.
    pub time_ms: u64,
    /// What is left of it.
    pub left_ms: u64,
    /// `FILE:LINE` of the configuration.
    pub place: String,
}

/// What a command does.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Action {
    /// It executes a program.
    #[default]
    Execute,
    /// It writes files of the sandbox to its standard output, as a tar.
    SendFiles,
    /// It writes the files of a tar, its standard input, into the sandbox.
    ReceiveFiles,
    /// It writes the events of a directory to its standard output.
    WatchFiles,
}

impl Action {
    #[expect(
        clippy::trivially_copy_pass_by_ref,
        reason = "serde passes a reference"
    )]
    fn is_execute(&self) -> bool {
        *self == Self::Execute
    }
}

/// The size of a terminal, in characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TerminalSize {
    pub rows: u16,
    pub columns: u16,
}

/// What happens to a sandbox in which no command runs or comes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct IdleTimes {
    /// After this time it ends.
    pub end: Option<Duration>,
    /// After this time it is paused until the next command.
    pub pause: Option<Duration>,
}

/// A sandbox, as its supervisor describes it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct SandboxState {
    /// The name.
    pub name: SandboxName,
    /// The id of its run: lower-case ULID.
    pub run_id: String,
    /// When it was created, in seconds since 1970.
    pub start_unix_s: i64,
    /// Whether its processes are stopped.
    pub is_paused: bool,
    /// The labels of `create`.
    #[serde(default)]
    pub labels: Labels,
    /// How long it has lived, without pauses.
    #[serde(default)]
    pub run_time_ms: u64,
    /// After this time it ends, except for pauses; `null`: it has no time limit.
    #[serde(default)]
    pub ends_in_ms: Option<u64>,
    /// Its --idle-timeout; `null`: none.
    #[serde(default)]
    pub idle_timeout_ms: Option<u64>,
    /// The commands that run, by their ids.
    pub commands: Vec<CommandRecord>,
    /// The commands that ended.
    pub ended: EndedCommands,
}

/// Commands that ended.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct EndedCommands {
    /// The last 128, in the order of their ends.
    pub latest: Vec<CommandRecord>,
    /// The number of those that ended earlier.
    pub unlisted: u64,
}

impl EndedCommands {
    /// Adds a command. Beyond `ENDED_COMMANDS_MAX` the earliest one is only counted.
    pub fn add(&mut self, record: CommandRecord) {
        if self.latest.len() == ENDED_COMMANDS_MAX {
            self.latest.remove(0);
            self.unlisted += 1;
        }
        self.latest.push(record);
    }
}

/// A command of a sandbox that stays.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct CommandRecord {
    /// Its number in the sandbox, from 1.
    pub id: u64,
    /// The process id of its first process in the sandbox.
    pub pid: i32,
    /// The program and its arguments, escaped; `…` stands for what is left out beyond 1 KiB.
    pub argv: Vec<String>,
    /// Whether it was started with --detach.
    pub is_detached: bool,
    /// Its time: --timeout, or `timeout_ms` of the sandbox's manifest if that is less; `null`: no limit.
    pub timeout_ms: Option<u64>,
    /// UTC, RFC 3339, to the millisecond.
    pub started_at: String,
    /// As `started_at`; `null`: it runs.
    pub ended_at: Option<String>,
    /// `exited`, `signaled`, `timed_out`, `cpu_exhausted` or `out_of_memory`, or `cancelled` by the end of the
    /// sandbox; `null`: it runs.
    pub outcome: Option<Outcome>,
    /// How its first process ended; `null`: it runs, or the sandbox ended first.
    pub exit: Option<Exit>,
    /// What its processes used until its first one ended; `null`: it has no cgroup of its own, or runs.
    #[serde(default)]
    pub usage: Option<Usage>,
    /// Number of processes and threads that --pids refused; `null`: not counted.
    #[serde(default)]
    pub refused_forks: Option<u64>,
}

/// What `runner sandbox exec --json` writes: how the command ended, which its exit code alone does not tell.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(extend("$id" = "urn:runner:schema:command")))]
pub struct CommandResult {
    /// Its number in the sandbox; `null`: it was not started.
    pub id: Option<u64>,
    /// `exited`, `signaled`, `timed_out`, `cpu_exhausted` or `out_of_memory`; `cancelled`: the sandbox ended
    /// first; `failed`: the program could not be started; `refused`: nothing was tried; `null`: it runs,
    /// started with --detach.
    pub outcome: Option<Outcome>,
    /// How its first process ended.
    pub exit: Option<Exit>,
    /// What its processes used until its first one ended; `null`: this host does not measure it.
    pub usage: Option<Usage>,
    /// Number of processes and threads that --pids refused; `null`: not counted.
    pub refused_forks: Option<u64>,
    /// Why it was not started.
    pub error: Option<ErrorReport>,
}

/// The words of a command for a list: escaped, and not more than a kilobyte.
#[must_use]
pub fn shown_words(argv: &[Vec<u8>]) -> Vec<String> {
    let mut left = SHOWN_BYTES_MAX;
    let mut shown = Vec::new();
    for word in argv {
        // Escaping makes no word shorter.
        let mut text = escape(&word[..word.len().min(left)]);
        let is_cut = left == 0 || word.len() > left || text.len() > left;
        if is_cut {
            let mut ends = (0..=text.len().min(left)).rev();
            let end = ends.find(|end| text.is_char_boundary(*end));
            text.truncate(end.unwrap_or(0));
            text.push('…');
        }
        left = left.saturating_sub(text.len().max(1));
        shown.push(text);
        if is_cut {
            break;
        }
    }
    shown
}

/// What `runner sandbox logs` asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LogRequest {
    /// `None`: the last command that was started with --detach.
    pub command: Option<u64>,
    /// How much of standard output and standard error is known.
    pub from: [u64; 2],
    /// Wait until there is more, or the command has ended.
    pub follows: bool,
}

/// What a command wrote.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogAnswer {
    pub command: u64,
    /// Whether its first process has ended.
    pub has_ended: bool,
    /// Standard output and standard error.
    pub streams: [LogPart; 2],
}

/// A part of a stream.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogPart {
    /// Where it ends, in bytes from the start of the stream.
    pub end: u64,
    /// Bytes before it that were asked for and are not kept.
    pub missed: u64,
    pub base64: String,
}

/// The files that belong to a sandbox alone.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PrivateFiles {
    /// Whether the processes of the sandbox stand still.
    pub is_frozen: bool,
    pub places: Vec<PrivatePlace>,
}

/// A private directory of a sandbox.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PrivatePlace {
    /// Its absolute path in the sandbox.
    pub path: Vec<u8>,
    /// The directories of the host that it was made of by overlayfs, top first; `None`: it was empty.
    pub lowers: Option<Vec<Vec<u8>>>,
}

/// What `runner sandbox ls --json` prints.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(extend("$id" = "urn:runner:schema:sandboxes")))]
pub struct SandboxListing {
    /// The sandboxes of this user, by name.
    pub sandboxes: Vec<SandboxState>,
    /// Those whose supervisors did not answer in 5 s, by name.
    #[serde(default)]
    pub unresponsive: Vec<UnresponsiveSandbox>,
}

/// A sandbox whose supervisor does not answer: the host has stopped it, or is overloaded.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct UnresponsiveSandbox {
    /// The name.
    pub name: SandboxName,
    /// The id of its run: lower-case ULID.
    pub run_id: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_words_of_a_list_are_escaped_and_short() {
        let bytes = |words: &[&str]| -> Vec<Vec<u8>> {
            words.iter().map(|word| word.as_bytes().to_vec()).collect()
        };
        assert_eq!(shown_words(&bytes(&["sh", "a\u{1b}b"])), ["sh", r"a\x1bb"]);
        let long = shown_words(&[b"ls".to_vec(), vec![0xff; 1 << 20], b"never".to_vec()]);
        assert_eq!(long.len(), 2);
        assert!(long[1].ends_with('…') && long[1].len() <= SHOWN_BYTES_MAX + '…'.len_utf8());
        let many = shown_words(&vec![b"word".to_vec(); 1 << 16]);
        assert!(many.concat().len() <= SHOWN_BYTES_MAX + '…'.len_utf8());
        assert_eq!(many.last().map(String::as_str), Some("…"));
        let empty = shown_words(&vec![Vec::new(); 1 << 16]);
        assert!(empty.len() <= SHOWN_BYTES_MAX + 1, "{}", empty.len());
    }

    #[test]
    fn the_lower_limit_of_a_command_and_its_sandbox_counts_and_no_limit_is_not_written() {
        let mut wanted = CommandRequest {
            action: Action::Execute,
            argv: Vec::new(),
            environment: Vec::new(),
            working_directory: None,
            terminal: None,
            timeout_ms: Some(5),
            is_detached: false,
            limits: CommandLimits::default(),
        };
        let text = serde_json::to_string(&wanted).expect("written");
        assert!(!text.contains("limits"), "{text}");
        let mut defaults = CommandDefaults::default();
        defaults.apply(&mut wanted);
        assert_eq!(
            (wanted.timeout_ms, wanted.limits.is_none()),
            (Some(5), true)
        );
        defaults = CommandDefaults {
            timeout_ms: Some(7),
            cpu_time_ms: Some(3),
        };
        defaults.apply(&mut wanted);
        assert_eq!(wanted.timeout_ms, Some(5));
        assert_eq!(wanted.limits.cpu_time_ms, Some(3));
        wanted.timeout_ms = Some(9);
        defaults.apply(&mut wanted);
        assert_eq!(wanted.timeout_ms, Some(7));
    }

    #[test]
    fn only_the_last_ended_commands_are_listed() {
        let mut ended = EndedCommands::default();
        let count = u64::try_from(ENDED_COMMANDS_MAX).expect("small") + 5;
        for id in 1..=count {
            ended.add(CommandRecord {
                id,
                pid: 2,
                argv: Vec::new(),
                is_detached: false,
                timeout_ms: None,
                started_at: String::new(),
                ended_at: None,
                outcome: None,
                exit: None,
                usage: None,
                refused_forks: None,
            });
        }
        let ids: Vec<u64> = ended.latest.iter().map(|record| record.id).collect();
        assert_eq!((ended.unlisted, ids), (5, (6..=count).collect()));
    }

    #[test]
    fn a_name_has_no_path_and_no_control_character() {
        let long = "a".repeat(NAME_BYTES_MAX);
        for name in ["a", "0", "Build-1", "a.b_c", &long] {
            assert_eq!(SandboxName::parse(name).expect(name).as_str(), name);
        }
        let longer = format!("{long}a");
        for name in [
            "", ".", "..", "-a", "_a", "a/b", "../a", "a b", "a\n", "ä", "a\0", &longer,
        ] {
            let error = SandboxName::parse(name).expect_err(name);
            assert_eq!(error.found, escape(name.as_bytes()));
        }
    }
}
