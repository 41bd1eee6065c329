//! Runs a program of the host with a time limit and an output limit.
//!
//! The program is started without a shell, in its own process group, which is killed before [`run`]
//! returns. Its standard error is discarded, because it may quote the value.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{Read as _, Seek as _, Write as _};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{MemfdFlags, memfd_create};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use crate::VALUE_BYTES_MAX;
use crate::error::Unusable;
use spec::request::EnvironmentEntry;
use spec::secret::Secret;
use sys::allocator::keep_from_children;
use sys::file::errno_of;
use sys::process::kill;
use sys::signal;

/// Interval between two calls of [`Invocation::is_cancelled`].
const POLL_INTERVAL: Duration = Duration::from_millis(200);

/// A program and its inputs.
#[derive(Clone, Copy)]
pub struct Invocation<'run> {
    pub argv: &'run [String],
    /// The data on standard input.
    pub input: &'run [u8],
    /// The complete environment.
    pub environment: &'run [EnvironmentEntry],
    pub timeout: Duration,
    /// A signalfd: waiting stops when a signal arrives that ends the run.
    pub signals: Option<BorrowedFd<'run>>,
    /// Whether waiting must stop.
    pub is_cancelled: &'run dyn Fn() -> bool,
}

/// Omits input and variables: they may contain secrets.
impl std::fmt::Debug for Invocation<'_> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("Invocation")
            .field("argv", &self.argv)
            .finish_non_exhaustive()
    }
}

/// Exit status and output of a program.
#[derive(Debug)]
pub struct ProgramOutput {
    pub status: ExitStatus,
    /// At most [`VALUE_BYTES_MAX`] and a newline.
    pub stdout: Secret,
}

/// Runs a program and returns its output.
///
/// # Errors
/// [`Unusable`]: the start failed, the output is too long, the timeout has passed, or the caller
/// cancelled.
pub fn run(invocation: &Invocation<'_>) -> Result<ProgramOutput, Unusable> {
    let mut program = start(invocation)?;
    // Allocated at full size: a growing vector leaves copies of the secret in freed memory.
    let mut bytes = keep_from_children(|| Vec::with_capacity(VALUE_BYTES_MAX + 1));
    let read = program.read_to_exit(&mut bytes, invocation);
    // The process group is gone when this returns, also after an error.
    let ended = program.end();
    let stdout = Secret::new(bytes);
    let status = read.and(ended)?;
    Ok(ProgramOutput { status, stdout })
}

struct RunningProgram {
    child: Child,
    pid: i32,
    pidfd: OwnedFd,
    output: File,
}

fn start(invocation: &Invocation<'_>) -> Result<RunningProgram, Unusable> {
    let (program, arguments) = invocation
        .argv
        .split_first()
        .ok_or_else(|| Unusable::NotStarted(std::io::ErrorKind::InvalidInput.into()))?;
    let mut command = Command::new(program);
    command
        .args(arguments)
        .env_clear()
        .stdin(input(invocation.input).map_err(Unusable::NotStarted)?)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .process_group(0);
    for (name, value) in invocation.environment {
        command.env(OsStr::from_bytes(name), OsStr::from_bytes(value));
    }
    let mut child = command.spawn().map_err(Unusable::NotStarted)?;
    let pid = i32::try_from(child.id()).map_err(|_range| Unusable::Lost(Errno::RANGE))?;
    let output = child.stdout.take().map(OwnedFd::from);
    let opened = Pid::from_raw(pid)
        .ok_or(Errno::SRCH)
        .and_then(|pid| pidfd_open(pid, PidfdFlags::empty()))
        .and_then(|pidfd| {
            let output = output.ok_or(Errno::BADF)?;
            rustix::io::ioctl_fionbio(&output, true)?;
            Ok((pidfd, output))
        });
    match opened {
        Ok((pidfd, output)) => Ok(RunningProgram {
            child,
            pid,
            pidfd,
            output: File::from(output),
        }),
        Err(errno) => {
            // Without a pidfd the program cannot be waited for with a timeout.
            let ended = kill(-pid, libc::SIGKILL)
                .and_then(|()| child.wait().map_err(|error| errno_of(&error)));
            Err(Unusable::Lost(ended.err().unwrap_or(errno)))
        }
    }
}

/// Uses a memory file instead of a pipe: no writer is needed while the program runs.
fn input(bytes: &[u8]) -> std::io::Result<Stdio> {
    if bytes.is_empty() {
        return Ok(Stdio::null());
    }
    let mut file = File::from(memfd_create("input", MemfdFlags::CLOEXEC)?);
    file.write_all(bytes)?;
    file.rewind()?;
    Ok(Stdio::from(file))
}

impl RunningProgram {
    fn read_to_exit(
        &mut self,
        bytes: &mut Vec<u8>,
        invocation: &Invocation<'_>,
    ) -> Result<(), Unusable> {
        let (signals, timeout) = (invocation.signals, invocation.timeout);
        let started = Instant::now();
        let mut is_open = true;
        loop {
            let left = timeout.saturating_sub(started.elapsed());
            if left.is_zero() {
                let seconds = timeout.as_secs();
                return Err(Unusable::TimedOut { seconds });
            }
            if (invocation.is_cancelled)() {
                return Err(Unusable::Interrupted);
            }
            let interval = left.min(POLL_INTERVAL);
            let ready = self
                .wait(is_open, signals, interval)
                .map_err(Unusable::Lost)?;
            if let (true, Some(signals)) = (ready.signal, signals) {
                check_signals(signals)?;
            }
            if ready.output && self.read_available(bytes)? == ReadResult::End {
                is_open = false;
            }
            if ready.ended {
                // All output of the program is in the pipe. Other holders of the pipe are ignored.
                while is_open && self.read_available(bytes)? == ReadResult::Bytes {}
                return Ok(());
            }
        }
    }

    fn wait(
        &self,
        is_open: bool,
        signals: Option<BorrowedFd<'_>>,
        timeout: Duration,
    ) -> Result<Ready, Errno> {
        let mut fds = vec![PollFd::new(&self.pidfd, PollFlags::IN)];
        if is_open {
            fds.push(PollFd::new(&self.output, PollFlags::IN));
        }
        if let Some(signals) = signals {
            fds.push(PollFd::from_borrowed_fd(signals, PollFlags::IN));
        }
        let timeout = Timespec {
            tv_sec: timeout.as_secs().try_into().unwrap_or(i64::MAX),
            tv_nsec: timeout.subsec_nanos().into(),
        };
        match poll(&mut fds, Some(&timeout)) {
            Ok(_) | Err(Errno::INTR) => (),
            Err(errno) => return Err(errno),
        }
        let is_ready = |index: usize| {
            fds.get(index)
                .is_some_and(|fd: &PollFd<'_>| !fd.revents().is_empty())
        };
        Ok(Ready {
            ended: is_ready(0),
            output: is_open && is_ready(1),
            signal: is_ready(usize::from(is_open) + 1),
        })
    }

    fn read_available(&mut self, bytes: &mut Vec<u8>) -> Result<ReadResult, Unusable> {
        let mut chunk = [0; 4_096];
        let read = self.output.read(&mut chunk);
        let result = match read {
            Ok(0) => Ok(ReadResult::End),
            // Never exceed the reserved capacity.
            Ok(count) if count > bytes.capacity() - bytes.len() => Err(Unusable::TooLong),
            Ok(count) => {
                bytes.extend_from_slice(&chunk[..count]);
                Ok(ReadResult::Bytes)
            }
            Err(error) => match error.kind() {
                std::io::ErrorKind::WouldBlock | std::io::ErrorKind::Interrupted => {
                    Ok(ReadResult::Nothing)
                }
                _ => Err(Unusable::Lost(errno_of(&error))),
            },
        };
        chunk.fill(0);
        std::hint::black_box(&chunk);
        result
    }

    /// Kills the process group and reaps the program: until then the pid identifies the group.
    fn end(&mut self) -> Result<ExitStatus, Unusable> {
        match kill(-self.pid, libc::SIGKILL) {
            Ok(()) | Err(Errno::SRCH) => self.child.wait(),
            // The program runs as another user and cannot be killed: do not wait for it.
            Err(errno) => self
                .child
                .try_wait()
                .and_then(|status| status.ok_or_else(|| errno.into())),
        }
        .map_err(|error| Unusable::Lost(errno_of(&error)))
    }
}

#[derive(PartialEq, Eq)]
enum ReadResult {
    Bytes,
    Nothing,
    End,
}

struct Ready {
    ended: bool,
    output: bool,
    signal: bool,
}

/// Reads pending signals; a signal that cancels the run is an error.
fn check_signals(signals: BorrowedFd<'_>) -> Result<(), Unusable> {
    while let Some(number) = signal::take(signals).map_err(Unusable::Lost)? {
        if signal::ends_a_run(number) {
            return Err(Unusable::Cancelled { signal: number });
        }
    }
    Ok(())
}

/// Describes an exit status, for messages.
#[must_use]
pub fn describe_status(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exit code {code}"),
        (None, Some(signal)) => format!("signal {signal}"),
        (None, None) => "an unknown status".to_owned(),
    }
}
