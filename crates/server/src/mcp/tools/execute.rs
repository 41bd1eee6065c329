//! `execute_command`: `runner sandbox exec`.

use std::ffi::OsString;
use std::time::Duration;

use rmcp::model::CallToolResult;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Context;
use crate::mcp::answer::{Answer, Refusal};
use crate::mcp::call::{Call, Ended};
use crate::mcp::handler::{InSandbox, Server};
use crate::mcp::text::{Part, Shown};

/// Seconds after which a command is ended, if the call says nothing, and at most. Every command has an
/// end: one that runs for ever would keep the sandbox of a server that was killed.
pub(super) const FOREGROUND_S: Limits = Limits {
    default: 120,
    max: 3600,
};
const BACKGROUND_S: Limits = Limits {
    default: 3600,
    max: 86400,
};

/// Exit code of `runner sandbox exec` at the end of the time of a command, or of the command itself.
const TIMED_OUT: i32 = 124;

#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    default: u64,
    max: u64,
}

impl Limits {
    pub(super) fn choose(self, asked: Option<u64>) -> Result<u64, Refusal> {
        let seconds = asked.unwrap_or(self.default);
        match seconds {
            1.. if seconds <= self.max => Ok(seconds),
            _ => Err(Refusal(format!(
                "`timeout` is {seconds}; expected 1 to {} seconds",
                self.max
            ))),
        }
    }
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::mcp) struct Arguments {
    /// Text for `sh -c` in the sandbox, or an array of a program and its arguments
    command: Words,
    /// The working directory in the sandbox [default: the one that the sandbox was created in]
    cwd: Option<String>,
    /// Seconds after which the command is ended: 1 to 3600 [default: 120], in the background 1 to 86400
    /// [default: 3600]
    timeout: Option<u64>,
    /// Return the last lines of each output stream only, this many
    tail: Option<usize>,
    /// Return when the command has started; `get_process_output` returns its output
    background: Option<bool>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(untagged)]
enum Words {
    Text(String),
    Words(Vec<String>),
}

#[derive(Debug, Serialize, JsonSchema)]
pub(in crate::mcp) struct Document {
    /// The exit code, 128 + n if signal n ended the command, 124 after `timeout`, 125 if it could not be
    /// started; null: it runs in the background
    exit_code: Option<i32>,
    /// Whether `timeout` ended the command
    timed_out: bool,
    /// The id of a command in the background
    id: Option<u64>,
    /// Standard output; U+FFFD stands for bytes that are not UTF-8
    stdout: String,
    /// Standard error
    stderr: String,
    /// Bytes of both streams that are left out
    left_out_bytes: u64,
    /// Seconds that the command ran
    duration_s: f64,
}

/// What is told of two streams.
pub(super) struct Streams {
    pub(super) stdout: Shown,
    pub(super) stderr: Shown,
}

impl Streams {
    pub(super) fn of(ended: Ended) -> Self {
        Self {
            stdout: ended.stdout.show(),
            stderr: ended.stderr.show(),
        }
    }

    pub(super) fn notes(&self) -> Vec<String> {
        let mut notes = self.stdout.notes("standard output");
        notes.extend(self.stderr.notes("standard error"));
        notes
    }

    pub(super) const fn left_out(&self) -> u64 {
        self.stdout.left_out + self.stderr.left_out
    }

    /// For the summary: which of the blocks that follow is which.
    pub(super) fn sizes(&self) -> String {
        let size = |shown: &Shown, name: &str| match shown.text.len() {
            0 => format!("no {name}"),
            _ => name.to_owned(),
        };
        format!(
            "{}, {}",
            size(&self.stdout, "standard output"),
            size(&self.stderr, "standard error")
        )
    }
}

pub(super) async fn call(
    server: &Server,
    arguments: Arguments,
    context: &Context,
) -> Result<CallToolResult, Refusal> {
    let words = match arguments.command {
        Words::Text(text) => vec!["sh".to_owned(), "-c".to_owned(), text],
        Words::Words(words) if words.is_empty() => {
            return Err(Refusal(
                "`command` is empty; expected a program and its arguments".to_owned(),
            ));
        }
        Words::Words(words) => words,
    };
    let is_background = arguments.background.unwrap_or_default();
    let limits = match is_background {
        true => BACKGROUND_S,
        false => FOREGROUND_S,
    };
    let seconds = limits.choose(arguments.timeout)?;
    let mut flags: Vec<OsString> = vec![format!("--timeout={seconds}s").into()];
    if let Some(directory) = &arguments.cwd {
        flags.push(format!("--workdir={directory}").into());
    }
    flags.push(if is_background { "--detach" } else { "-q" }.into());
    let mut call = Call::new(server.sandbox().exec_words(&flags, &words));
    call.part = arguments.tail.map_or(Part::Ends, Part::LastLines);
    call.tail_of_errors = arguments.tail;
    call.progress = Some("the command runs");
    let done = server.execute_in_sandbox(call, context).await?;
    match is_background && done.ended.code == 0 {
        true => started(done.ended),
        false => ended(done, Duration::from_secs(seconds)),
    }
}

fn started(ended: Ended) -> Result<CallToolResult, Refusal> {
    let printed = ended.stdout.show().text;
    let id = printed.trim_end().parse();
    let id: u64 = id.map_err(|_error| {
        Refusal(format!(
            "`runner sandbox exec -d` printed `{printed}`; expected the id of the command"
        ))
    })?;
    let answer = Answer {
        summary: format!("started in the background as {id}"),
        texts: Vec::new(),
        notes: Vec::new(),
        document: Document {
            exit_code: None,
            timed_out: false,
            id: Some(id),
            stdout: String::new(),
            stderr: String::new(),
            left_out_bytes: 0,
            duration_s: 0.0,
        },
        is_error: false,
    };
    answer.into_result()
}

fn ended(done: InSandbox, timeout: Duration) -> Result<CallToolResult, Refusal> {
    let InSandbox { ended, gone } = done;
    let (exit_code, duration) = (ended.code, ended.duration);
    // A command may exit with 124 itself.
    let timed_out = exit_code == TIMED_OUT && duration >= timeout;
    let streams = Streams::of(ended);
    let mut notes = streams.notes();
    notes.extend(gone.map(str::to_owned));
    let timed = match timed_out {
        true => format!(" (ended by its timeout of {} s)", timeout.as_secs()),
        false => String::new(),
    };
    let answer = Answer {
        summary: format!("exit code {exit_code}{timed}; {}", streams.sizes()),
        texts: vec![streams.stdout.text.clone(), streams.stderr.text.clone()],
        notes,
        document: Document {
            exit_code: Some(exit_code),
            timed_out,
            id: None,
            left_out_bytes: streams.left_out(),
            stdout: streams.stdout.text,
            stderr: streams.stderr.text,
            duration_s: duration.as_secs_f64(),
        },
        is_error: exit_code != 0,
    };
    answer.into_result()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_beyond_the_limits_are_refused() {
        assert_eq!(FOREGROUND_S.choose(None).expect("default"), 120);
        assert_eq!(BACKGROUND_S.choose(Some(86400)).expect("most"), 86400);
        for wrong in [0, 3601, u64::MAX] {
            let refusal = FOREGROUND_S.choose(Some(wrong)).expect_err("refused");
            assert!(refusal.0.contains("expected 1 to 3600"), "{}", refusal.0);
        }
    }
}
