//! `runner sandbox exec`.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt};
use std::path::PathBuf;
use std::time::Duration;

use crate::cli::args::{CommonFlags, EnvironmentFlags};
use crate::cli::context::ProcessContext;
use crate::cli::environment;
use crate::cli::exit_code::{FAILED, NOT_EXECUTABLE, NOT_FOUND, TIMED_OUT, of_signal};
use crate::cli::print::{Printer, Tone};
use crate::cli::request::RequestError;
use crate::cli::sandboxes::{code_of, parse_name, read_time};
use crate::run::verbs::sandboxes::{self, Attachment, SandboxError};
use rustix::io::Errno;
use sandbox::control::Answer;
use sandbox::steps::ChildStep;
use spec::limits::milliseconds;
use spec::path::escape;
use spec::report::ErrorReport;
use spec::request::Caller;
use spec::sandboxes::{Action, CommandRequest, SandboxName, TerminalSize};
use spec::units;

pub(super) const HELP: &str = "\
Examples:
  runner sandbox exec build -- make -j4
  echo text | runner sandbox exec -i build -- wc -c
  runner sandbox exec --timeout 10m build -- make test

At the end of --timeout the process group of the command gets the stop signal of the sandbox, and
after its --grace what is left in the command's session gets SIGKILL.

Exit codes: that of the command; 124 its time was over; 125 wrong usage, no such sandbox, or it
could not be started; 126 the program could not be executed, 127 it was not found, 128 + n signal n
ended the command, 137 also if the sandbox ended first.";

#[derive(Debug, clap::Args)]
pub struct ExecIn {
    /// Pass standard input to the command
    #[arg(short, long)]
    pub interactive: bool,
    /// Give the command a terminal of its own
    #[arg(short, long)]
    pub tty: bool,
    /// Print the id of the command once it runs, and return; `runner sandbox logs` prints its output
    #[arg(short, long, conflicts_with_all = ["interactive", "tty"])]
    pub detach: bool,
    /// Set a variable; without =VALUE its value is taken from your environment
    #[arg(short, long, value_name = "NAME[=VALUE]")]
    pub env: Vec<OsString>,
    /// End the command after this time, with exit code 124
    #[arg(long, value_name = "DURATION", value_parser = read_time)]
    pub timeout: Option<Duration>,
    /// The working directory in the sandbox [default: that of `create`]
    #[arg(short, long, value_name = "DIR")]
    pub workdir: Option<PathBuf>,
    /// The name of the sandbox
    #[arg(value_name = "NAME")]
    pub sandbox: String,
    /// The program and its arguments
    #[arg(trailing_var_arg = true, required = true, value_name = "CMD")]
    pub command: Vec<OsString>,
    #[command(flatten)]
    pub common: CommonFlags,
}

/// Runs the command. Returns the exit code.
pub(super) fn run(
    exec: &ExecIn,
    context: &ProcessContext,
    caller: &Caller,
    printer: &Printer,
) -> Result<u8, ErrorReport> {
    let name = parse_name(&exec.sandbox)?;
    let variables = EnvironmentFlags {
        env: exec.env.clone(),
        ..EnvironmentFlags::default()
    };
    let terminal = exec.tty.then(terminal_size);
    let mut variables_of_command = environment::resolve(&variables, context)
        .map_err(|error| RequestError::from(error).report())?;
    if let (Some(_), Some(value)) = (terminal, context.variables.get(OsStr::new("TERM"))) {
        variables_of_command.insert(0, (b"TERM".to_vec(), value.as_bytes().to_vec()));
    }
    let wanted = CommandRequest {
        action: Action::Execute,
        argv: exec
            .command
            .iter()
            .cloned()
            .map(OsStringExt::into_vec)
            .collect(),
        environment: variables_of_command,
        terminal,
        timeout_ms: exec.timeout.map(milliseconds),
        is_detached: exec.detach,
        working_directory: exec
            .workdir
            .as_ref()
            .map(|directory| directory.as_os_str().as_bytes().to_vec()),
    };
    let attachment = match (exec.detach, exec.interactive) {
        (true, _) => Attachment::Detached,
        (false, true) => Attachment::Interactive,
        (false, false) => Attachment::Output,
    };
    let answer = sandboxes::execute(caller, &name, &wanted, attachment);
    let answer = answer.map_err(|error| error.report())?;
    let program = escape(exec.command[0].as_bytes());
    Ok(match answer {
        Answer::Ended {
            has_timed_out: true,
            ..
        } => {
            let limit = exec.timeout.map_or(0, milliseconds);
            let limit = units::milliseconds(limit);
            printer.line(
                Tone::Error,
                &format!("timed out: the command ran for {limit}; --timeout sets it"),
            );
            TIMED_OUT
        }
        Answer::Ended { raw_status, .. } => code_of(raw_status),
        Answer::NotStarted(step, errno) => {
            let (code, error) = not_started(&name, &program, step, errno);
            printer.problem("not started", &error);
            code
        }
        Answer::Gone => {
            printer.line(
                Tone::Error,
                &format!("the sandbox {name} ended, and the command with it"),
            );
            of_signal(libc::SIGKILL)
        }
        Answer::Refused(refusal) => return Err(SandboxError::refused(&name, refusal).report()),
        Answer::Started { id, .. } if id > 0 && !printer.is_quiet() => {
            printer.document(&format!("{id}\n"), 0)
        }
        Answer::Started { .. } => 0,
    })
}

/// The size of the caller's terminal, or docker's where there is none.
fn terminal_size() -> TerminalSize {
    let size = rustix::termios::tcgetwinsize(rustix::stdio::stdin());
    let (rows, columns) = size.map_or((24, 80), |size| (size.ws_row, size.ws_col));
    TerminalSize { rows, columns }
}

/// Exit code and message of a command that was not executed.
fn not_started(
    name: &SandboxName,
    program: &str,
    step: ChildStep,
    errno: Errno,
) -> (u8, ErrorReport) {
    let report = |code: &str, message: String, hint: Option<&str>| ErrorReport {
        code: code.to_owned(),
        message,
        hint: hint.map(str::to_owned),
        source_line: None,
    };
    match (step, errno) {
        (ChildStep::Execute, Errno::NOENT | Errno::NOTDIR) => (
            NOT_FOUND,
            report(
                "program_not_found",
                format!("`{program}` was not found in the sandbox {name}"),
                Some(
                    "a program outside of the system directories needs --ro at `runner sandbox create`",
                ),
            ),
        ),
        (ChildStep::Execute, errno) => (
            NOT_EXECUTABLE,
            report(
                "program_not_executable",
                format!("`{program}` cannot be executed in the sandbox {name}: {errno}"),
                None,
            ),
        ),
        (step, errno) => (
            FAILED,
            report(
                "command_not_started",
                format!(
                    "`{program}` was not started in the sandbox {name}: cannot {}: {errno}",
                    step.act()
                ),
                (step == ChildStep::WorkingDirectory)
                    .then_some("-w must name a directory that exists in the sandbox"),
            ),
        ),
    }
}
