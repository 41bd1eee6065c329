//! `run_bundle`: `runner exec` with the flags of the server, of a bundle below the directory that
//! `--bundles` names.

use std::io;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use rmcp::model::CallToolResult;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio::process::Command;

use super::Context;
use super::denials::read_answer;
use super::execute::{FOREGROUND_S, Streams};
use crate::mcp::answer::{Answer, Refusal};
use crate::mcp::call::Call;
use crate::mcp::flags::Flags;
use crate::mcp::handler::Server;
use companion::Program;

/// The variable of `--timeout`, which a flag would outweigh.
const TIMEOUT_VARIABLE: &str = "RUNNER_OPT_TIMEOUT";

/// The bundles that may be run.
#[derive(Debug)]
pub(crate) struct Bundles {
    /// Without links.
    directory: PathBuf,
}

#[derive(Debug, thiserror::Error)]
pub(in crate::mcp) enum BundleError {
    #[error("--bundles {}: {source}", path.display())]
    Open { path: PathBuf, source: io::Error },
    #[error("--bundles {}: expected a directory", path.display())]
    NotADirectory { path: PathBuf },
    #[error(
        "{}: commands in the sandbox could write it, and thereby choose what the bundle is; \
         make it visible with --ro, or keep it elsewhere", path.display()
    )]
    Writable { path: PathBuf },
    #[error("{}: cannot ask `runner why` whether the sandbox could write it: {reason}", path.display())]
    Unknown { path: PathBuf, reason: String },
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::mcp) struct Arguments {
    /// The path of the bundle in the directory of the bundles
    bundle: String,
    /// Arguments for the body of the bundle
    args: Option<Vec<String>>,
    /// Seconds after which the run is ended: 1 to 3600 [default: 120]
    timeout: Option<u64>,
}

#[derive(Debug, Serialize, JsonSchema)]
pub(in crate::mcp) struct Document {
    /// The exit code of `runner exec`: of the body, 124 after a limit of time, 125 if it was refused
    exit_code: i32,
    /// Whether `timeout` of the call ended the run
    timed_out: bool,
    /// Standard output; U+FFFD stands for bytes that are not UTF-8
    stdout: String,
    /// Standard error, with the messages of `runner`
    stderr: String,
    /// Bytes of both streams that are left out
    left_out_bytes: u64,
    /// Seconds that the run took
    duration_s: f64,
}

impl Bundles {
    /// The directory of `--bundles`, if the flag is given.
    pub(in crate::mcp) async fn open(
        program: &Program,
        flags: &Flags,
    ) -> Result<Option<Self>, BundleError> {
        let Some(named) = &flags.bundles else {
            return Ok(None);
        };
        let directory = named.canonicalize().map_err(|source| BundleError::Open {
            path: named.clone(),
            source,
        })?;
        if !directory.is_dir() {
            return Err(BundleError::NotADirectory { path: directory });
        }
        refuse_writable(program, flags, &directory).await?;
        Ok(Some(Self { directory }))
    }

    /// The bundle that a call names: without links, and in the directory. What the host has elsewhere is
    /// not told.
    fn find(&self, named: &str) -> Result<PathBuf, Refusal> {
        let found = self.directory.join(named).canonicalize().ok();
        let is_inside =
            |found: &PathBuf| found.starts_with(&self.directory) && *found != self.directory;
        found.filter(is_inside).ok_or_else(|| {
            Refusal(format!(
                "`bundle` is `{named}`; expected the path of a bundle in the directory of the bundles"
            ))
        })
    }
}

/// Asks whether commands of the sandbox may write `path`.
async fn refuse_writable(program: &Program, flags: &Flags, path: &Path) -> Result<(), BundleError> {
    let mut question = std::ffi::OsString::from("--path=");
    question.push(path);
    let mut command = Command::new(program.path());
    command.arg("why").args(flags.of_run());
    command.args(["-q", "--json", "--op=write"]).arg(question);
    let answered = command.stdin(Stdio::null()).output().await;
    let answer = answered
        .map_err(|error| error.to_string())
        .and_then(|output| read_answer(&output.stdout, &String::from_utf8_lossy(&output.stderr)));
    let path = path.to_owned();
    match answer {
        Err(reason) => Err(BundleError::Unknown { path, reason }),
        // A private directory of the sandbox has the same name, and is another one.
        Ok(rule) if rule.verdict == "denied" || rule.state == "private" => Ok(()),
        Ok(_) => Err(BundleError::Writable { path }),
    }
}

pub(super) async fn call(
    server: &Server,
    arguments: Arguments,
    context: &Context,
) -> Result<CallToolResult, Refusal> {
    let bundles = server.bundles();
    let bundles = bundles.ok_or_else(|| Refusal("this server has no --bundles".to_owned()))?;
    let seconds = FOREGROUND_S.choose(arguments.timeout)?;
    let bundle = bundles.find(&arguments.bundle)?;
    let sandbox = server.sandbox();
    // A part of the directory may be visible by a flag of its own.
    refuse_writable(&sandbox.program, &sandbox.flags, &bundle).await?;
    let mut words = vec!["exec".into()];
    // Also if this server is killed meanwhile. Before the flags of the operator, which replace it.
    if std::env::var_os(TIMEOUT_VARIABLE).is_none() {
        words.push(format!("--timeout={seconds}s").into());
    }
    words.extend(sandbox.flags.of_run());
    words.push(bundle.into_os_string());
    words.push("--".into());
    words.extend(
        arguments
            .args
            .unwrap_or_default()
            .into_iter()
            .map(Into::into),
    );
    let mut call = Call::new(words);
    call.stop_after = Some(Duration::from_secs(seconds));
    call.progress = Some("the bundle runs");
    let ended = server.execute(call, context).await?;
    let (exit_code, duration) = (ended.code, ended.duration);
    let timed_out =
        ended.is_stopped || exit_code == 124 && duration >= Duration::from_secs(seconds);
    let streams = Streams::of(ended);
    let answer = Answer {
        summary: format!("exit code {exit_code}; {}", streams.sizes()),
        texts: vec![streams.stdout.text.clone(), streams.stderr.text.clone()],
        notes: streams.notes(),
        document: Document {
            exit_code,
            timed_out,
            left_out_bytes: streams.left_out(),
            stdout: streams.stdout.text,
            stderr: streams.stderr.text,
            duration_s: duration.as_secs_f64(),
        },
        is_error: exit_code != 0,
    };
    answer.into_result()
}
