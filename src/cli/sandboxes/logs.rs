//! `runner sandbox logs`: what detached commands wrote.

use super::parse_name;
use crate::cli::args::CommonFlags;
use crate::cli::print::{Printer, write_body_errors, write_body_output};
use crate::run::verbs::sandboxes::{SandboxError, read_log};
use sandbox::control::ControlError;
use spec::base64::decode;
use spec::report::{ErrorReport, WarningReport};
use spec::request::Caller;
use spec::sandboxes::{LogAnswer, LogRequest, SandboxName};

pub(super) const LOGS_HELP: &str = "\
The sandbox keeps the last 128 KiB of each stream of the last 64 commands that were started with
--detach, as long as it lives. The values of its secrets are replaced by ***.

Examples:
  runner sandbox logs build
  runner sandbox logs -f build 3

Exit codes: 0; 125 no such sandbox, or no output of this command is kept.";

#[derive(Debug, clap::Args)]
pub struct Logs {
    /// Go on until the command ends
    #[arg(short, long)]
    pub follow: bool,
    /// The name of the sandbox
    #[arg(value_name = "NAME")]
    pub sandbox: String,
    /// The id of the command [default: that was started last with --detach]
    #[arg(value_name = "COMMAND")]
    pub command: Option<u64>,
    #[command(flatten)]
    pub common: CommonFlags,
}

/// Writes each stream to that of this process. Returns the exit code.
pub(super) fn print(args: &Logs, caller: &Caller, printer: &Printer) -> Result<u8, ErrorReport> {
    let name = parse_name(&args.sandbox)?;
    let mut wanted = LogRequest {
        command: args.command,
        from: [0; 2],
        follows: false,
    };
    loop {
        let answer = match read_log(caller, &name, &wanted) {
            Err(SandboxError::NoSandbox { .. } | SandboxError::Ending { .. }) if wanted.follows => {
                return Ok(0);
            }
            answer => answer.map_err(|error| error.report())?,
        };
        if !show(&name, &answer, printer)? || !args.follow || answer.has_ended {
            return Ok(0);
        }
        wanted = LogRequest {
            command: Some(answer.command),
            from: answer.streams.map(|part| part.end),
            follows: true,
        };
    }
}

/// Returns whether somebody reads it.
fn show(name: &SandboxName, answer: &LogAnswer, printer: &Printer) -> Result<bool, ErrorReport> {
    let malformed = || {
        let error = SandboxError::Control {
            name: name.clone(),
            source: ControlError::Malformed,
        };
        error.report()
    };
    let parts = answer.streams.iter();
    let bytes = parts.map(|part| decode(part.base64.as_bytes()).ok_or_else(malformed));
    let bytes = bytes.collect::<Result<Vec<_>, _>>()?;
    for (part, stream) in answer
        .streams
        .iter()
        .zip(["standard output", "standard error"])
    {
        if part.missed > 0 {
            let message = format!("{} bytes of {stream} are not kept", part.missed);
            printer.warnings(&[WarningReport::new("output_cut", message)]);
        }
    }
    let is_read = write_body_output(&bytes[0]);
    write_body_errors(&bytes[1]);
    Ok(is_read)
}
