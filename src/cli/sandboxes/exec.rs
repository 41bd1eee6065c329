//! `runner sandbox exec`.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt};
use std::path::PathBuf;
use std::time::Duration;

use crate::cli::args::{CommonFlags, EnvironmentFlags};
use crate::cli::context::ProcessContext;
use crate::cli::environment;
use crate::cli::exit_code::{FAILED, NOT_EXECUTABLE, NOT_FOUND, TIMED_OUT, of_signal};
use crate::cli::limit_flags::CommandLimitFlags;
use crate::cli::print::{Printer, Tone};
use crate::cli::report_target::{ReportTarget, TargetError};
use crate::cli::request::RequestError;
use crate::cli::sandboxes::{code_of, parse_name, read_time};
use crate::run::verbs::sandboxes::{self, Attachment, Executed, Execution, SandboxError};
use rustix::io::Errno;
use sandbox::control::Answer;
use sandbox::steps::ChildStep;
use spec::limits::{Limit, milliseconds};
use spec::outcome::Outcome;
use spec::path::escape;
use spec::report::{ErrorReport, Exit, Usage};
use spec::request::Caller;
use spec::sandboxes::{
    Action, CommandRecord, CommandRequest, CommandResult, SandboxName, TerminalSize,
};
use spec::units::count;

pub(super) const HELP: &str = "\
Examples:
  runner sandbox exec build -- make -j4
  echo text | runner sandbox exec -i build -- wc -c
  runner sandbox exec --timeout 10m build -- make test
  runner sandbox exec -m 512m --pids 64 --cpu-time 30s --json=end.json build -- ./tool

The limits hold for the command and what it leaves running, below those of the sandbox. They and the
usage in --json need cgroups of the command's own, which take time to make.

At the end of --timeout the process group of the command gets the stop signal of the sandbox, and
after its --grace what is left in the command's session gets SIGKILL.

Exit codes: that of the command; 124 out of time; 125 wrong usage, no such sandbox, or it
could not be started; 126 the program could not be executed, 127 it was not found, 128 + n signal n
ended the command, 137 also if the sandbox ended first.";

#[derive(Debug, clap::Args)]
#[expect(clippy::struct_excessive_bools, reason = "one for each switch")]
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
    /// Read NAME=VALUE lines, or entries that end with a NUL as those of `env -0`
    #[arg(long, value_name = "FILE")]
    pub env_file: Vec<PathBuf>,
    /// End the command after this time, with exit code 124
    #[arg(long, value_name = "DURATION", value_parser = read_time)]
    pub timeout: Option<Duration>,
    #[command(flatten)]
    pub limits: CommandLimitFlags,
    /// Count what the command uses, in a cgroup of its own, as with a limit: for --json and `sandbox ls`
    #[arg(long)]
    pub usage: bool,
    /// Write how the command ended, or why it was not started, to a file or an open descriptor
    #[arg(long, value_name = "FILE|fd:N")]
    pub json: Option<OsString>,
    /// Write the id of the command to a file or an open descriptor once it runs
    #[arg(long, value_name = "FILE|fd:N")]
    pub id_file: Option<OsString>,
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
        env_file: exec.env_file.clone(),
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
        limits: exec.limits.0,
        working_directory: exec
            .workdir
            .as_ref()
            .map(|directory| directory.as_os_str().as_bytes().to_vec()),
    };
    let target = exec.json.as_deref().map(open_target).transpose();
    let target = target.map_err(|error| error.report())?;
    let id_target = exec
        .id_file
        .as_deref()
        .map(|value| ReportTarget::of_flag("id-file", value))
        .transpose();
    let id_target = id_target.map_err(|error| error.report())?;
    let attachment = match (exec.detach, exec.interactive) {
        (true, _) => Attachment::Detached,
        (false, true) => Attachment::Interactive,
        (false, false) => Attachment::Output,
    };
    let mut unwritten = None;
    let write_id = |id| {
        unwritten = id_target
            .as_ref()
            .and_then(|target| target.write(&id).err());
    };
    let execution = Execution {
        name: &name,
        request: &wanted,
        attachment,
        is_measured: exec.usage,
    };
    let executed = sandboxes::execute(caller, &execution, write_id);
    let (id, answer) = match executed {
        Ok(Executed { id, answer }) => (id, Ok(answer)),
        Err(error) => (None, Err(error)),
    };
    if let Some(error) = unwritten {
        return Err(error.report());
    }
    let end = End::of(answer, &name, exec);
    if let Some(target) = &target {
        let written = target.write(&CommandResult {
            id,
            outcome: end.outcome,
            exit: end.exit,
            usage: end.usage,
            refused_forks: end.refused_forks,
            error: end.error.clone(),
        });
        written.map_err(|error| error.report())?;
    }
    Ok(end.tell(id, printer))
}

/// The command's own output goes to standard output.
fn open_target(value: &OsStr) -> Result<ReportTarget, TargetError> {
    match ReportTarget::is_standard_output(value) {
        true => Err(TargetError::Descriptor {
            flag: "json",
            number: 1,
            cause: "is standard output, where the command's own output goes",
        }),
        false => ReportTarget::open(value),
    }
}

/// How a command ended, or why it was not started.
struct End {
    outcome: Option<Outcome>,
    exit: Option<Exit>,
    usage: Option<Usage>,
    refused_forks: Option<u64>,
    error: Option<ErrorReport>,
    /// What is said before `error`.
    title: &'static str,
    message: Option<String>,
    code: u8,
}

impl End {
    fn new(outcome: Option<Outcome>, code: u8) -> Self {
        Self {
            outcome,
            exit: None,
            usage: None,
            refused_forks: None,
            error: None,
            title: "",
            message: None,
            code,
        }
    }

    fn of(answer: Result<Answer, SandboxError>, name: &SandboxName, exec: &ExecIn) -> Self {
        let answer = match answer {
            Ok(Answer::Refused(refusal)) => Err(SandboxError::refused(name, refusal)),
            answer => answer,
        };
        match answer {
            Ok(Answer::Ended {
                raw_status,
                has_timed_out,
                record,
            }) => {
                let exit = Exit::of_wait_status(raw_status);
                let outcome = match (record.as_ref().and_then(|record| record.outcome), exit) {
                    (Some(outcome), _) => outcome,
                    (None, _) if has_timed_out => Outcome::TimedOut,
                    (None, Exit { signal: None, .. }) => Outcome::Exited,
                    (None, _) => Outcome::Signaled,
                };
                let code = match outcome {
                    Outcome::TimedOut | Outcome::CpuExhausted => TIMED_OUT,
                    _ => code_of(raw_status),
                };
                let record = record.as_deref();
                Self {
                    exit: Some(exit),
                    usage: record.and_then(|record| record.usage),
                    refused_forks: record.and_then(|record| record.refused_forks),
                    message: limited(outcome, record, exec),
                    ..Self::new(Some(outcome), code)
                }
            }
            Ok(Answer::NotStarted(step, errno)) => {
                let program = escape(exec.command[0].as_bytes());
                let (code, error) = not_started(name, &program, step, errno);
                Self {
                    error: Some(error),
                    title: "not started",
                    ..Self::new(Some(Outcome::Failed), code)
                }
            }
            Ok(Answer::Gone) => Self {
                message: Some(format!("the sandbox {name} ended, and the command with it")),
                ..Self::new(Some(Outcome::Cancelled), of_signal(libc::SIGKILL))
            },
            Ok(Answer::Started { .. } | Answer::Refused(_)) => Self::new(None, 0),
            Err(error) => Self {
                error: Some(error.report()),
                title: "refused",
                ..Self::new(Some(Outcome::Refused), FAILED)
            },
        }
    }

    /// Returns the exit code.
    fn tell(&self, id: Option<u64>, printer: &Printer) -> u8 {
        if let Some(refused) = self.refused_forks.filter(|count| *count > 0) {
            let refused = count(refused, "process");
            let line = format!("warning: --pids refused {refused} (threads count, too)");
            printer.line(Tone::Warning, &line);
        }
        if let Some(message) = &self.message {
            printer.line(Tone::Error, message);
        }
        if let Some(error) = &self.error {
            printer.problem(self.title, error);
        }
        match (self.outcome, id) {
            (None, Some(id)) if !printer.is_quiet() => printer.document(&format!("{id}\n"), 0),
            _ => self.code,
        }
    }
}

/// Which limit ended the command, and what sets it.
fn limited(outcome: Outcome, record: Option<&CommandRecord>, exec: &ExecIn) -> Option<String> {
    let own = exec.limits.0;
    match outcome {
        Outcome::TimedOut => {
            let flag = exec.timeout.map(milliseconds);
            let limit = record.and_then(|record| record.timeout_ms).or(flag);
            let change = match limit == flag {
                true => "--timeout sets it",
                false => "`timeout_ms` of the sandbox's manifest sets it",
            };
            let limit = Limit::WallTime.amount(limit.unwrap_or_default());
            Some(format!("timed out: the command ran for {limit}; {change}"))
        }
        Outcome::CpuExhausted => {
            let usage = record.and_then(|record| record.usage).unwrap_or_default();
            let used = usage.user_time_ms.unwrap_or(0) + usage.system_time_ms.unwrap_or(0);
            let used = Limit::CpuTime.amount(used);
            let change = match own.cpu_time_ms {
                Some(_) => "--cpu-time sets the limit",
                None => "`cpu_ms` of the sandbox's manifest sets the limit",
            };
            Some(format!(
                "out of CPU time: the command used {used}; {change}"
            ))
        }
        Outcome::OutOfMemory => Some(match own.memory_bytes {
            Some(limit) => {
                let limit = Limit::Memory.amount(limit);
                format!("out of memory: the limit of the command is {limit}; --memory sets it")
            }
            None => {
                "out of memory: the memory limit of the sandbox ended the command; --memory of \
                     `runner sandbox create` sets it"
                    .to_owned()
            }
        }),
        _ => None,
    }
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
