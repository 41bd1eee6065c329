//! `runner sandbox`: sandboxes that stay, and commands in them.

mod cp;
mod exec;
mod forward;
mod logs;
mod ls;
mod snapshot;
mod update;
mod watch;

use std::ffi::OsString;
use std::mem::ManuallyDrop;
use std::path::PathBuf;
use std::time::Duration;

use crate::cli::args::{CommonFlags, MessageFlags, RunFlags};
use crate::cli::context::ProcessContext;
use crate::cli::exit_code::{FAILED, of_signal};
use crate::cli::labels::read_labels;
use crate::cli::plan::Invocation;
use crate::cli::print::Printer;
pub(super) use crate::cli::sandboxes::exec::ExecIn;
use crate::cli::sandboxes::snapshot::Restoring;
use crate::cli::systemd_scope;
use crate::run::staying::StayingSandbox;
use crate::run::verbs::sandboxes::{self, SandboxError};
use spec::path::escape;
use spec::report::{ErrorReport, Exit};
use spec::request::Caller;
use spec::sandboxes::{IdleTimes, SandboxName};
use spec::units::parse_duration;
use sys::allocator::keep_from_children;
use sys::detach::{Detached, Readiness, detach};
use sys::signal_name::parse_signal;

pub(super) const CREATE_HELP: &str = "\
The flags are those of `run`, without -i, -t, --stats, --record-output and a bare --json. Limits of
memory, processors, processes, disk and time are those of all commands together; without --timeout
the sandbox stays until it is removed.

Examples:
  runner sandbox create --name build --rw . -m 2g
  runner sandbox create --image oci:./debian --timeout 1h --idle-timeout 10m
  runner sandbox create --label project=site --label owner=me
  runner sandbox create --manifest sandbox.yaml

Exit codes: 0; 125 it could not be created.";

const KILL_HELP: &str = "\
The signal goes to the process group of the command; SIGKILL goes to its whole session, background
jobs included. `exec -d` prints the id of a command; `runner sandbox ls --json` lists them.

Examples:
  runner sandbox kill build 3
  runner sandbox kill -s INT build 3

Exit codes: 0; 125 no such sandbox, no such command runs, or the sandbox is paused.";

#[derive(Debug, clap::Args)]
pub struct Sandbox {
    #[command(subcommand)]
    pub verb: SandboxVerb,
}

#[derive(Debug, clap::Subcommand)]
#[command(disable_help_subcommand = true)]
pub enum SandboxVerb {
    /// Create a sandbox that stays, and print its name
    #[command(after_help = CREATE_HELP, args_override_self = true)]
    Create(Box<Create>),
    /// Run a command in a sandbox
    #[command(after_help = exec::HELP, args_override_self = true)]
    Exec(ExecIn),
    /// Copy files between the host and a sandbox
    #[command(after_help = cp::HELP)]
    Cp(cp::Cp),
    /// List the files that a sandbox has added, changed or deleted
    #[command(after_help = snapshot::DIFF_HELP)]
    Diff(snapshot::Diff),
    /// Write the files of a sandbox to a tar
    #[command(after_help = snapshot::SNAPSHOT_HELP)]
    Snapshot(snapshot::SnapshotTo),
    /// Create a sandbox with the files of a snapshot, and print its name
    #[command(after_help = snapshot::RESTORE_HELP, args_override_self = true)]
    Restore(Box<snapshot::Restore>),
    /// List the sandboxes of this user
    #[command(after_help = ls::HELP)]
    Ls(ls::Ls),
    /// Print what a command wrote that was started with --detach
    #[command(after_help = logs::LOGS_HELP)]
    Logs(logs::Logs),
    /// Print the events of a directory of a sandbox
    #[command(after_help = watch::HELP)]
    Watch(watch::Watch),
    /// Forward connections from this host to ports of a sandbox
    #[command(after_help = forward::HELP)]
    Forward(forward::Forward),
    /// Send a signal to a command
    #[command(after_help = KILL_HELP)]
    Kill(Kill),
    /// Stop all processes of sandboxes until they are resumed
    #[command(after_help = "Examples:\n  runner sandbox pause build")]
    Pause(Named),
    /// Let the processes of paused sandboxes go on
    #[command(after_help = "Examples:\n  runner sandbox resume build")]
    Resume(Named),
    /// Change when sandboxes end
    #[command(after_help = update::HELP, args_override_self = true)]
    Update(update::Update),
    /// End sandboxes, and remove everything of them
    #[command(after_help = "Examples:\n  runner sandbox rm build\n  runner sandbox rm -f build")]
    Rm(Rm),
}

#[derive(Debug, clap::Args)]
pub struct Create {
    /// The name of the sandbox [default: its run id]
    #[arg(long, value_name = "NAME")]
    pub name: Option<String>,
    /// End the sandbox if no command runs or comes for this time
    #[arg(long, value_name = "DURATION", value_parser = read_time)]
    pub idle_timeout: Option<Duration>,
    /// Pause the sandbox if no command runs or comes for this time; the next command resumes it
    #[arg(long, value_name = "DURATION", value_parser = read_time)]
    pub pause_after_idle: Option<Duration>,
    /// Set a label; without =VALUE it is empty
    #[arg(short, long, value_name = "NAME[=VALUE]")]
    pub label: Vec<OsString>,
    /// Read labels from a file, in the format of --env-file
    #[arg(long, value_name = "FILE")]
    pub label_file: Vec<PathBuf>,
    #[command(flatten)]
    pub flags: RunFlags,
}

#[derive(Debug, clap::Args)]
pub struct Kill {
    /// The signal; SIGKILL ends everything that the command has started
    #[arg(short, long, value_name = "SIGNAL", default_value = "KILL", value_parser = parse_signal)]
    pub signal: i32,
    /// The name of the sandbox
    #[arg(value_name = "NAME")]
    pub sandbox: String,
    /// The id of the command
    #[arg(value_name = "COMMAND")]
    pub command: u64,
    #[command(flatten)]
    pub common: CommonFlags,
}

#[derive(Debug, clap::Args)]
pub struct Rm {
    /// The names of the sandboxes
    #[arg(required = true, value_name = "NAME")]
    pub sandboxes: Vec<String>,
    /// Kill the commands that run
    #[arg(short, long)]
    pub force: bool,
    #[command(flatten)]
    pub common: CommonFlags,
}

#[derive(Debug, clap::Args)]
pub struct Named {
    /// The names of the sandboxes
    #[arg(required = true, value_name = "NAME")]
    pub sandboxes: Vec<String>,
    #[command(flatten)]
    pub common: CommonFlags,
}

impl Create {
    /// What is asked of the sandbox, and the run that becomes it.
    pub(super) fn into_run(self) -> (StayFlags, Invocation) {
        let invocation = Invocation {
            bundle: None,
            flags: self.flags,
            words: Vec::new(),
        };
        let stay = StayFlags {
            name: self.name,
            label: self.label,
            label_file: self.label_file,
            idle_times: IdleTimes {
                end: self.idle_timeout,
                pause: self.pause_after_idle,
            },
        };
        (stay, invocation)
    }
}

/// The flags of a sandbox that stays alone.
#[derive(Debug)]
pub(super) struct StayFlags {
    name: Option<String>,
    label: Vec<OsString>,
    label_file: Vec<PathBuf>,
    idle_times: IdleTimes,
}

impl StayFlags {
    /// # Errors
    /// The name or a label is none.
    pub(super) fn into_sandbox(
        self,
        readiness: Option<Readiness>,
    ) -> Result<StayingSandbox, ErrorReport> {
        let name = self.name.as_deref().map(parse_name).transpose()?;
        let labels = read_labels(&self.label_file, &self.label)?;
        Ok(StayingSandbox::new(
            name,
            labels,
            self.idle_times,
            readiness,
        ))
    }
}

impl SandboxVerb {
    pub(super) fn common(&self) -> &CommonFlags {
        match self {
            Self::Create(create) => &create.flags.common,
            Self::Restore(restore) => &restore.create.flags.common,
            Self::Diff(diff) => &diff.common,
            Self::Snapshot(snapshot) => &snapshot.common,
            Self::Exec(exec) => &exec.common,
            Self::Cp(cp) => &cp.common,
            Self::Ls(ls) => &ls.output.common,
            Self::Update(update) => &update.common,
            Self::Logs(logs) => &logs.common,
            Self::Watch(watch) => &watch.common,
            Self::Forward(forward) => &forward.common,
            Self::Kill(kill) => &kill.common,
            Self::Rm(rm) => &rm.common,
            Self::Pause(named) | Self::Resume(named) => &named.common,
        }
    }
}

/// Reads the name of a sandbox.
///
/// # Errors
/// It is no name.
fn parse_name(name: &str) -> Result<SandboxName, ErrorReport> {
    SandboxName::parse(name).map_err(|error| SandboxError::from(error).report())
}

/// The child that becomes the supervisor of a sandbox.
pub(super) struct Detachment {
    pub(super) readiness: Readiness,
    pub(super) words: Vec<OsString>,
}

/// `create` and `restore` go on in a child: `words` is the argument vector. The process that the caller waits for
/// prints the name once the sandbox has started, and gets its exit code as the error.
///
/// No forked process gets the words and the environment: the child reads the words again, and must not
/// use `words`. The environment is read later.
pub(super) fn detach_creation(words: &[OsString]) -> Result<Option<Detachment>, u8> {
    let [_, group, verb, ..] = words else {
        return Ok(None);
    };
    let restores = verb == "restore";
    if group != "sandbox" || verb != "create" && !restores {
        return Ok(None);
    }
    let printer = Printer::new(MessageFlags::default(), &ProcessContext::default());
    let failed = |errno| printer.failure(&SandboxError::call("detach the sandbox", errno).report());
    let again = |readiness| {
        Some(Detachment {
            readiness,
            words: keep_from_children(|| std::env::args_os().collect()),
        })
    };
    // The child has started this program again, in a scope where nothing but the supervisor may be.
    if std::env::var_os(systemd_scope::MARK).is_some()
        && let Some(readiness) = Readiness::passed_on().map_err(failed)?
    {
        return Ok(again(readiness));
    }
    // Never dropped: the child has closed all descriptors.
    let restoring = ManuallyDrop::new(match restores {
        false => None,
        true => match Restoring::open(words) {
            None => return Ok(None),
            Some(opened) => Some(opened.map_err(|error| printer.problem("refused", &error))?),
        },
    });
    match detach().map_err(failed)? {
        Detached::Child(readiness) => Ok(again(readiness)),
        Detached::Starter(starter) => Err(match (starter.wait().map_err(failed)?, &*restoring) {
            (Ok(name), Some(restoring)) => restoring.fill(&String::from_utf8_lossy(&name)),
            (Ok(name), None) => printer.document(&format!("{}\n", escape(&name)), 0),
            // It has said why.
            (Err(ended), _) => code_of(ended.raw_status),
        }),
    }
}

/// All verbs but `create`. Returns the exit code.
pub(super) fn sandbox(
    verb: &SandboxVerb,
    context: &ProcessContext,
    caller: &Caller,
    printer: &Printer,
) -> u8 {
    let done = match verb {
        // They go on as runs.
        SandboxVerb::Create(_) | SandboxVerb::Restore(_) => Ok(FAILED),
        SandboxVerb::Diff(diff) => snapshot::diff(diff, caller, printer),
        SandboxVerb::Snapshot(args) => snapshot::snapshot(args, caller, printer),
        SandboxVerb::Cp(cp) => cp::copy(cp, caller, printer),
        SandboxVerb::Exec(exec) => exec::run(exec, context, caller, printer),
        SandboxVerb::Ls(args) => ls::list(args, caller, printer),
        SandboxVerb::Update(args) => Ok(update::update(args, caller, printer)),
        SandboxVerb::Logs(args) => logs::print(args, caller, printer),
        SandboxVerb::Watch(args) => watch::print(args, caller),
        SandboxVerb::Forward(args) => forward::forward(args, caller, *printer),
        SandboxVerb::Kill(kill) => parse_name(&kill.sandbox).and_then(|name| {
            let sent = sandboxes::kill(caller, &name, kill.command, kill.signal);
            sent.map(|()| 0).map_err(|error| error.report())
        }),
        SandboxVerb::Rm(rm) => Ok(each(&rm.sandboxes, printer, |name| {
            sandboxes::remove(caller, name, rm.force)
        })),
        SandboxVerb::Pause(named) => Ok(each(&named.sandboxes, printer, |name| {
            sandboxes::pause(caller, name, true)
        })),
        SandboxVerb::Resume(named) => Ok(each(&named.sandboxes, printer, |name| {
            sandboxes::pause(caller, name, false)
        })),
    };
    done.unwrap_or_else(|error| printer.problem("refused", &error))
}

/// Reads a time, which is not 0.
fn read_time(text: &str) -> Result<Duration, String> {
    let time = parse_duration(text).map_err(|error| error.to_string())?;
    match time.is_zero() {
        false => Ok(time),
        true => Err("0 would leave no time; omit the flag for no limit".to_owned()),
    }
}

/// The exit code of a wait status.
fn code_of(raw_status: i32) -> u8 {
    let exit = Exit::of_wait_status(raw_status);
    let code = exit.code.and_then(|code| u8::try_from(code).ok());
    code.or(exit.signal.map(of_signal)).unwrap_or(FAILED)
}

/// Does `act` with each, and prints the names for which it succeeded.
fn each(
    names: &[String],
    printer: &Printer,
    act: impl Fn(&SandboxName) -> Result<(), SandboxError>,
) -> u8 {
    let mut code = 0;
    for name in names {
        let done = parse_name(name).and_then(|name| act(&name).map_err(|error| error.report()));
        match done {
            Ok(()) if printer.is_quiet() => (),
            Ok(()) => code = code.max(printer.document(&format!("{name}\n"), 0)),
            Err(error) => code = printer.problem("refused", &error),
        }
    }
    code
}
