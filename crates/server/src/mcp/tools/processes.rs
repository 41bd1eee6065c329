//! `get_process_output` and `kill_process`: `runner sandbox logs` and `kill`.

use rmcp::model::CallToolResult;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use spec::outcome::Outcome;
use spec::sandboxes::{CommandRecord, SandboxState};

use super::Context;
use super::execute::Streams;
use crate::mcp::answer::{Answer, Refusal};
use crate::mcp::call::{Call, Ended};
use crate::mcp::handler::Server;
use crate::mcp::text::Part;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::mcp) struct OutputArguments {
    /// What `execute_command` returned as `id`
    id: u64,
    /// Return the last lines of each output stream only, this many
    tail: Option<usize>,
}

#[derive(Debug, Serialize, JsonSchema)]
pub(in crate::mcp) struct OutputDocument {
    /// The id of the command
    id: u64,
    /// Whether the command runs
    running: bool,
    /// The exit code, 128 + n if signal n ended the command; null: it runs, or ended too long ago
    exit_code: Option<i32>,
    /// Whether its timeout ended the command
    timed_out: bool,
    /// Standard output; U+FFFD stands for bytes that are not UTF-8
    stdout: String,
    /// Standard error, after a line for each stream of which the sandbox does not keep the start
    stderr: String,
    /// Bytes of both streams that are left out
    left_out_bytes: u64,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::mcp) struct KillArguments {
    /// What `execute_command` returned as `id`
    id: u64,
    /// A signal by its name or number [default: KILL, which ends all processes of the command]
    signal: Option<String>,
}

#[derive(Debug, Serialize, JsonSchema)]
pub(in crate::mcp) struct KillDocument {
    /// The id of the command
    id: u64,
    /// The signal
    signal: String,
}

pub(super) async fn output(
    server: &Server,
    arguments: OutputArguments,
    context: &Context,
) -> Result<CallToolResult, Refusal> {
    let OutputArguments { id, tail } = arguments;
    // Before the output: that of a command that has ended is complete.
    let state = server.sandbox().state().await?;
    let mut call = Call::new(vec![
        "sandbox".into(),
        "logs".into(),
        server.sandbox().name.as_str().into(),
        id.to_string().into(),
    ]);
    call.part = tail.map_or(Part::Ends, Part::LastLines);
    call.tail_of_errors = tail;
    let done = server.execute_in_sandbox(call, context).await?;
    if done.ended.code != 0 {
        return Err(refusal(done.ended, done.gone));
    }
    let record = state.as_ref().and_then(|state| record(state, id));
    let running = record.is_some_and(|record| record.ended_at.is_none());
    let timed_out = record.is_some_and(|record| record.outcome == Some(Outcome::TimedOut));
    let exit_code = record.and_then(exit_code);
    let streams = Streams::of(done.ended);
    let how = match (running, exit_code) {
        (true, _) => "runs".to_owned(),
        (false, Some(code)) if timed_out => format!("was ended by its timeout, exit code {code}"),
        (false, Some(code)) => format!("has ended, exit code {code}"),
        (false, None) => "has ended".to_owned(),
    };
    let answer = Answer {
        summary: format!("{id} {how}; {}", streams.sizes()),
        texts: vec![streams.stdout.text.clone(), streams.stderr.text.clone()],
        notes: streams.notes(),
        document: OutputDocument {
            id,
            running,
            exit_code,
            timed_out,
            left_out_bytes: streams.left_out(),
            stdout: streams.stdout.text,
            stderr: streams.stderr.text,
        },
        // The call did what it was asked, however the command ended.
        is_error: false,
    };
    answer.into_result()
}

fn record(state: &SandboxState, id: u64) -> Option<&CommandRecord> {
    let mut records = state.commands.iter().chain(&state.ended.latest);
    records.find(|record| record.id == id)
}

fn exit_code(record: &CommandRecord) -> Option<i32> {
    let exit = record.exit.as_ref()?;
    exit.code.or_else(|| Some(128 + exit.signal?))
}

pub(super) async fn kill(
    server: &Server,
    arguments: KillArguments,
    context: &Context,
) -> Result<CallToolResult, Refusal> {
    let KillArguments { id, signal } = arguments;
    let signal = signal.unwrap_or_else(|| "KILL".to_owned());
    let call = Call::new(vec![
        "sandbox".into(),
        "kill".into(),
        format!("--signal={signal}").into(),
        server.sandbox().name.as_str().into(),
        id.to_string().into(),
    ]);
    let done = server.execute_in_sandbox(call, context).await?;
    if done.ended.code != 0 {
        return Err(refusal(done.ended, done.gone));
    }
    let answer = Answer {
        summary: format!("sent {signal} to {id}"),
        texts: Vec::new(),
        notes: Vec::new(),
        document: KillDocument { id, signal },
        is_error: false,
    };
    answer.into_result()
}

/// What `runner` says, or that the sandbox is gone.
pub(super) fn refusal(ended: Ended, gone: Option<&str>) -> Refusal {
    let said = || ended.stderr.show().text.trim_end().to_owned();
    Refusal(gone.map_or_else(said, str::to_owned))
}
