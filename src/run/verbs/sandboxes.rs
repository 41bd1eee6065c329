//! What is asked of the supervisors of sandboxes that stay.

use std::os::fd::{AsFd as _, OwnedFd};

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use crate::run::error::{RUNTIME_DIRECTORY_HINT, RUNTIME_DIRECTORY_UNUSABLE};
use crate::run::host::resources::runtime_directory;
use sandbox::control::{Answer, CallerStreams, Client, ControlError, Refusal};
use sandbox::prepare::BodyStreams;
use sandbox::records::{RecordsError, Sandboxes};
use sandbox::supervise::streams::{InputPump, OutputPump, Pipes, Sink, Writer, make_pipes};
use sandbox::supervise::watch::listen_for_signals;
use spec::did_you_mean::nearest;
use spec::limits::UNLIMITED;
use spec::report::ErrorReport;
use spec::request::Caller;
use spec::sandboxes::{
    CommandRequest, LifetimeMaximum, LogAnswer, LogRequest, NotAName, SandboxName, UpdateAnswer,
    UpdateRequest,
};
use spec::units::milliseconds;
use sys::terminal::RawMode;

/// A request to a sandbox failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SandboxError {
    #[error(transparent)]
    Name(#[from] NotAName),
    #[error(transparent)]
    Records(#[from] RecordsError),
    #[error("there is no sandbox {name}")]
    NoSandbox {
        name: SandboxName,
        /// One with a similar name.
        similar: Option<SandboxName>,
    },
    #[error("the sandbox {name} was not removed: commands run in it")]
    Busy { name: SandboxName },
    #[error("the sandbox {name} is ending")]
    Ending { name: SandboxName },
    #[error("the sandbox {name} is paused")]
    Paused { name: SandboxName },
    #[error("the sandbox {name} cannot be paused: it has no cgroup that can be frozen")]
    NoFreezer { name: SandboxName },
    #[error("the sandbox {name} keeps no output of such a command")]
    NoLog { name: SandboxName },
    #[error("the sandbox {name} runs no such command")]
    NoCommand { name: SandboxName },
    #[error(
        "--timeout {}: the sandbox {name} would live longer than {}, the most that {} allows",
        time_limit(*timeout_ms),
        milliseconds(maximum.time_ms),
        maximum.place
    )]
    AboveMaximum {
        name: SandboxName,
        timeout_ms: u64,
        maximum: LifetimeMaximum,
    },
    #[error(
        "--idle-timeout {}: the sandbox {name} is paused after it has been idle for {}, and time \
         stands still in a pause",
        milliseconds(*idle_timeout_ms),
        milliseconds(*pause_after_idle_ms)
    )]
    PausedBefore {
        name: SandboxName,
        idle_timeout_ms: u64,
        pause_after_idle_ms: u64,
    },
    #[error("the sandbox {name} has no cgroup that enforces such a limit for a single command")]
    NoCommandLimit { name: SandboxName },
    #[error("nothing accepts connections on port {port} of the sandbox {name}: {errno}")]
    NoListener {
        name: SandboxName,
        port: u16,
        errno: Errno,
    },
    #[error("the sandbox {name} has as many connections from outside as it may")]
    Connections { name: SandboxName },
    #[error("the sandbox {name} has ended")]
    Ended { name: SandboxName },
    #[error("the sandbox {name} was created by another version of runner")]
    Version { name: SandboxName },
    #[error("the supervisor of the sandbox {name} does not answer as expected")]
    Control {
        name: SandboxName,
        #[source]
        source: ControlError,
    },
    #[error("cannot {act}: {errno}")]
    Call { act: &'static str, errno: Errno },
}

impl SandboxError {
    pub(crate) fn call(act: &'static str, errno: Errno) -> Self {
        Self::Call { act, errno }
    }

    pub(crate) fn refused(name: &SandboxName, refusal: Refusal) -> Self {
        let name = name.clone();
        match refusal {
            Refusal::Busy => Self::Busy { name },
            Refusal::Ending => Self::Ending { name },
            Refusal::Version => Self::Version { name },
            Refusal::Paused => Self::Paused { name },
            Refusal::NoFreezer => Self::NoFreezer { name },
            Refusal::NoLog => Self::NoLog { name },
            Refusal::NoCommand => Self::NoCommand { name },
            Refusal::NoCommandLimit => Self::NoCommandLimit { name },
            Refusal::Connections => Self::Connections { name },
            Refusal::Malformed => Self::Control {
                name,
                source: ControlError::Malformed,
            },
        }
    }

    pub(in crate::run) fn of_control(name: &SandboxName, error: ControlError) -> Self {
        match error {
            ControlError::NoSandbox => Self::NoSandbox {
                name: name.clone(),
                similar: None,
            },
            ControlError::Records(error) => Self::Records(error),
            ControlError::Refused(refusal) => Self::refused(name, refusal),
            source @ (ControlError::Malformed
            | ControlError::Unresponsive
            | ControlError::Call { .. }) => Self::Control {
                name: name.clone(),
                source,
            },
        }
    }

    #[must_use]
    pub(crate) fn report(&self) -> ErrorReport {
        let (code, hint) = match self {
            Self::Name(_) => ("sandbox_name", None),
            Self::Records(_) => (
                RUNTIME_DIRECTORY_UNUSABLE,
                Some(RUNTIME_DIRECTORY_HINT.to_owned()),
            ),
            Self::Call { .. } => ("host_failed", None),
            Self::NoSandbox { similar, .. } => (
                "no_sandbox",
                Some(match similar {
                    Some(similar) => format!("did you mean {similar}?"),
                    None => "`runner sandbox ls` lists them".to_owned(),
                }),
            ),
            Self::Busy { name } => (
                "sandbox_busy",
                Some(format!("to kill them: runner sandbox rm -f {name}")),
            ),
            Self::Ending { .. } => ("sandbox_ending", None),
            Self::Paused { name } => (
                "sandbox_paused",
                Some(format!("to let it go on: runner sandbox resume {name}")),
            ),
            Self::NoFreezer { .. } => (
                "sandbox_no_freezer",
                Some("`runner doctor` says which groups this user may create".to_owned()),
            ),
            Self::NoLog { name } => (
                "no_log",
                Some(format!(
                    "it keeps that of the last 64 commands that were started with --detach; \
                     `runner sandbox ls --json` has the ids of {name}"
                )),
            ),
            Self::NoCommand { name } => (
                "no_command",
                Some(format!(
                    "`runner sandbox ls --json` has the ids of the commands of {name} that run"
                )),
            ),
            Self::AboveMaximum { maximum, .. } => (
                "limit_above_maximum",
                Some(format!(
                    "at most --timeout {}ms now, or raise maxima.timeout in {}",
                    maximum.left_ms, maximum.place
                )),
            ),
            Self::PausedBefore { .. } => ("sandbox_lifecycle", None),
            Self::NoCommandLimit { .. } => (
                "limit_unenforceable",
                Some(
                    "`runner doctor` says which limits this user's cgroups enforce; without the flag \
                     the limits of the sandbox hold"
                        .to_owned(),
                ),
            ),
            Self::NoListener { .. } => (
                "no_listener",
                Some("a server is reached at 127.0.0.1 or ::1 of the sandbox, or at all its addresses".to_owned()),
            ),
            Self::Connections { .. } => ("sandbox_connections", None),
            Self::Ended { .. } => ("sandbox_ended", None),
            Self::Version { .. } => (
                "sandbox_version",
                Some(
                    "use that version, or end the supervisor of the sandbox with SIGTERM"
                        .to_owned(),
                ),
            ),
            Self::Control { .. } => ("sandbox_unusable", None),
        };
        ErrorReport::of(code, self, hint)
    }
}

fn time_limit(timeout_ms: u64) -> String {
    match timeout_ms {
        UNLIMITED => "none".to_owned(),
        timeout_ms => milliseconds(timeout_ms),
    }
}

pub(super) fn open(caller: &Caller) -> Result<Sandboxes, SandboxError> {
    Ok(Sandboxes::open(&runtime_directory(caller))?)
}

/// Connects to the supervisor of a sandbox.
///
/// # Errors
/// [`SandboxError`].
pub(in crate::run) fn connect(caller: &Caller, name: &SandboxName) -> Result<Client, SandboxError> {
    let sandboxes = open(caller)?;
    let connected = sandboxes.connect(name);
    connected.map_err(|error| match error {
        ControlError::NoSandbox => no_sandbox(&sandboxes, name),
        error => SandboxError::of_control(name, error),
    })
}

pub(super) fn no_sandbox(sandboxes: &Sandboxes, name: &SandboxName) -> SandboxError {
    let all = sandboxes.all().unwrap_or_default();
    let known = all.iter().map(|(name, _)| name.as_str());
    let similar = nearest(name.as_str(), known);
    SandboxError::NoSandbox {
        name: name.clone(),
        similar: similar.and_then(|similar| SandboxName::parse(similar).ok()),
    }
}

/// Ends a sandbox, and waits until nothing of it is left.
///
/// # Errors
/// [`SandboxError`].
pub(crate) fn remove(caller: &Caller, name: &SandboxName, force: bool) -> Result<(), SandboxError> {
    let ended = connect(caller, name)?.end(force);
    ended.map_err(|error| SandboxError::of_control(name, error))
}

/// Moves the end of a sandbox.
///
/// # Errors
/// [`SandboxError`].
pub(crate) fn update(
    caller: &Caller,
    name: &SandboxName,
    wanted: &UpdateRequest,
) -> Result<(), SandboxError> {
    let asked = connect(caller, name)?.update(wanted);
    let answer = asked.map_err(|error| SandboxError::of_control(name, error))?;
    let name = name.clone();
    match answer {
        UpdateAnswer::Updated => Ok(()),
        UpdateAnswer::AboveMaximum(maximum) => Err(SandboxError::AboveMaximum {
            name,
            timeout_ms: wanted.timeout_ms.unwrap_or(UNLIMITED),
            maximum,
        }),
        UpdateAnswer::PausedBefore {
            pause_after_idle_ms,
        } => Err(SandboxError::PausedBefore {
            name,
            idle_timeout_ms: wanted.idle_timeout_ms.unwrap_or(UNLIMITED),
            pause_after_idle_ms,
        }),
    }
}

/// Sends a signal to the process group of a command, or SIGKILL to its session.
///
/// # Errors
/// [`SandboxError`].
pub(crate) fn kill(
    caller: &Caller,
    name: &SandboxName,
    id: u64,
    signal: i32,
) -> Result<(), SandboxError> {
    let asked = connect(caller, name)?.kill(id, signal);
    asked.map_err(|error| SandboxError::of_control(name, error))
}

/// Reads what a command wrote that was started detached.
///
/// # Errors
/// [`SandboxError`].
pub(crate) fn read_log(
    caller: &Caller,
    name: &SandboxName,
    wanted: &LogRequest,
) -> Result<LogAnswer, SandboxError> {
    let asked = connect(caller, name)?.log(wanted);
    asked.map_err(|error| SandboxError::of_control(name, error))
}

/// Stops all processes of a sandbox, or lets them go on.
///
/// # Errors
/// [`SandboxError`].
pub(crate) fn pause(
    caller: &Caller,
    name: &SandboxName,
    is_paused: bool,
) -> Result<(), SandboxError> {
    let client = connect(caller, name)?;
    let asked = if is_paused {
        client.pause()
    } else {
        client.resume()
    };
    asked.map_err(|error| SandboxError::of_control(name, error))
}

/// How the streams of a command are those of this process.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Attachment {
    Output,
    /// Standard input, too.
    Interactive,
    /// They are not: the command reads nothing, and the sandbox keeps the end of its output.
    Detached,
}

/// What became of a command.
#[derive(Debug)]
pub(crate) struct Executed {
    /// `None`: it was not started, or its supervisor, of an earlier version, does not tell.
    pub(crate) id: Option<u64>,
    pub(crate) answer: Answer,
}

/// A command for a sandbox.
#[derive(Debug)]
pub(crate) struct Execution<'request> {
    pub(crate) name: &'request SandboxName,
    pub(crate) request: &'request CommandRequest,
    pub(crate) attachment: Attachment,
    /// Whether its end has what it used.
    pub(crate) is_measured: bool,
}

/// Runs a command in a sandbox with the streams of this process, and waits for its end, or, if it is
/// detached, for its start. `on_start` gets its id.
///
/// # Errors
/// [`SandboxError`].
pub(crate) fn execute(
    caller: &Caller,
    execution: &Execution<'_>,
    on_start: impl FnOnce(u64),
) -> Result<Executed, SandboxError> {
    let Execution {
        name,
        request,
        attachment,
        is_measured,
    } = *execution;
    let failed = |act| move |errno| SandboxError::call(act, errno);
    let of_control = |error| SandboxError::of_control(name, error);
    let signals = listen_for_signals().map_err(failed("listen for signals"))?;
    let is_interactive = matches!(attachment, Attachment::Interactive);
    let (ends, pipes) = match attachment {
        Attachment::Detached => null_streams().map(|ends| (ends, None)),
        Attachment::Output | Attachment::Interactive => {
            make_pipes(is_interactive).map(|(ends, pipes)| (ends, Some(pipes)))
        }
    }
    .map_err(failed("make the streams of the command"))?;
    let client = connect(caller, name)?;
    let started = client
        .exec(request, &ends, is_measured)
        .map_err(of_control)?;
    // Otherwise the end of the command's output would not be seen.
    drop(ends);
    let id = match started {
        Answer::Started { id, .. } => (id > 0).then_some(id),
        _ => None,
    };
    if let Some(id) = id {
        on_start(id);
    }
    let answer = match (started, pipes) {
        (Answer::Started { terminal, .. }, Some(pipes)) => {
            let caller = rustix::stdio::stdin();
            let is_raw = is_interactive && terminal.is_some() && rustix::termios::isatty(caller);
            let raw = is_raw.then(|| RawMode::enter(caller)).transpose();
            let _raw = raw.map_err(failed("put the terminal into raw mode"))?;
            let streams = attached(pipes, terminal, is_interactive)
                .map_err(failed("connect the streams of the command"))?;
            let attached = client.attach(streams, signals.as_fd());
            attached.map_err(of_control)?
        }
        (answer, _) => answer,
    };
    Ok(Executed { id, answer })
}

fn null_streams() -> Result<BodyStreams, Errno> {
    let open = || rustix::fs::open(c"/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty());
    Ok(BodyStreams {
        stdin: open()?,
        stdout: open()?,
        stderr: open()?,
    })
}

fn attached(
    pipes: Pipes,
    terminal: Option<OwnedFd>,
    is_interactive: bool,
) -> Result<CallerStreams, Errno> {
    let caller = rustix::stdio::stdin();
    let output = |source, descriptor| {
        let sink = Sink::Passed(Writer::new(descriptor)?);
        Ok::<_, Errno>(OutputPump::new(source, sink, None))
    };
    let Some(master) = terminal else {
        let stdin = pipes
            .stdin
            .map(|sink| InputPump::of_caller(caller, sink, false));
        return Ok(CallerStreams {
            stdin: stdin.transpose()?,
            stdout: output(pipes.stdout, rustix::stdio::stdout())?,
            stderr: Some(output(pipes.stderr, rustix::stdio::stderr())?),
            terminals: None,
        });
    };
    rustix::io::ioctl_fionbio(&master, true)?;
    let again = |descriptor| rustix::io::fcntl_dupfd_cloexec(descriptor, 3);
    let stdin = match is_interactive {
        true => Some(InputPump::of_caller(caller, again(master.as_fd())?, true)?),
        false => None,
    };
    let terminals = match rustix::termios::isatty(caller) {
        true => Some([again(caller)?, again(master.as_fd())?]),
        false => None,
    };
    Ok(CallerStreams {
        stdin,
        stdout: output(master, rustix::stdio::stdout())?,
        stderr: None,
        terminals,
    })
}
