//! Runs a program of the host with a time limit and an output limit.
//!
//! The program runs in its own process group, which is killed before the function returns, and is started
//! without a shell. Its standard error is discarded, since it may quote the value.

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
use sys::file::errno_of;
use sys::process::kill;
use sys::signal;

/// Interval between two checks whether to continue.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// The inputs of a program.
#[derive(Clone, Copy)]
pub struct Question<'run> {
    /// The program and its arguments.
    pub words: &'run [String],
    /// The data on standard input.
    pub input: &'run [u8],
    /// The complete environment.
    pub environment: &'run [EnvironmentEntry],
    /// The time limit.
    pub deadline: Duration,
    /// A signalfd: waiting stops when a signal arrives that ends the run.
    pub signals: Option<BorrowedFd<'run>>,
    /// Whether waiting must stop.
    pub is_over: &'run dyn Fn() -> bool,
}

/// Omits input and variables: they may contain secrets.
impl std::fmt::Debug for Question<'_> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("Question")
            .field("words", &self.words)
            .finish_non_exhaustive()
    }
}

/// The output of a program.
#[derive(Debug)]
pub struct Answer {
    pub status: ExitStatus,
    /// Its standard output, at most [`VALUE_BYTES_MAX`] and a newline.
    pub output: Secret,
}

/// Runs a program and returns its output.
///
/// # Errors
/// [`Unusable`]: the start failed, the output is too long, the time is over, or the caller requested an
/// end.
pub fn ask(question: &Question<'_>) -> Result<Answer, Unusable> {
    let mut asked = start(question)?;
    // Allocated at full size: a growing vector leaves copies of the secret in freed memory.
    let mut bytes = Vec::with_capacity(VALUE_BYTES_MAX + 1);
    let followed = asked.follow(&mut bytes, question);
    // The process group is gone when this returns, also after an error.
    let ended = asked.end();
    let output = Secret::new(bytes);
    let status = followed.and(ended)?;
    Ok(Answer { status, output })
}

struct RunningProvider {
    child: Child,
    pid: i32,
    pidfd: OwnedFd,
    output: File,
}

fn start(question: &Question<'_>) -> Result<RunningProvider, Unusable> {
    let (program, rest) = question
        .words
        .split_first()
        .ok_or_else(|| Unusable::NotStarted(std::io::ErrorKind::InvalidInput.into()))?;
    let mut command = Command::new(program);
    command
        .args(rest)
        .env_clear()
        .stdin(input(question.input).map_err(Unusable::NotStarted)?)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .process_group(0);
    for (name, value) in question.environment {
        command.env(OsStr::from_bytes(name), OsStr::from_bytes(value));
    }
    let mut child = command.spawn().map_err(Unusable::NotStarted)?;
    let pid = i32::try_from(child.id()).map_err(|_range| Unusable::Lost(Errno::RANGE))?;
    let output = child.stdout.take().map(OwnedFd::from);
    let followed = Pid::from_raw(pid)
        .ok_or(Errno::SRCH)
        .and_then(|pid| pidfd_open(pid, PidfdFlags::empty()))
        .and_then(|pidfd| {
            let output = output.ok_or(Errno::BADF)?;
            rustix::io::ioctl_fionbio(&output, true)?;
            Ok((pidfd, output))
        });
    match followed {
        Ok((pidfd, output)) => Ok(RunningProvider {
            child,
            pid,
            pidfd,
            output: File::from(output),
        }),
        Err(errno) => {
            // The program cannot be monitored, so it is killed.
            let ended = kill(-pid, libc::SIGKILL)
                .and_then(|()| child.wait().map_err(|error| errno_of(&error)));
            Err(Unusable::Lost(ended.err().unwrap_or(errno)))
        }
    }
}

/// A memory file instead of a pipe: no writer is needed while the program runs.
fn input(bytes: &[u8]) -> std::io::Result<Stdio> {
    if bytes.is_empty() {
        return Ok(Stdio::null());
    }
    let mut file = File::from(memfd_create("input", MemfdFlags::CLOEXEC)?);
    file.write_all(bytes)?;
    file.rewind()?;
    Ok(Stdio::from(file))
}

impl RunningProvider {
    /// Reads until the program exits, the output is too long, the time is over, or a signal arrives.
    fn follow(&mut self, bytes: &mut Vec<u8>, question: &Question<'_>) -> Result<(), Unusable> {
        let (signals, deadline) = (question.signals, question.deadline);
        let started = Instant::now();
        let mut open = true;
        loop {
            let left = deadline.saturating_sub(started.elapsed());
            if left.is_zero() {
                let seconds = deadline.as_secs();
                return Err(Unusable::Late { seconds });
            }
            if (question.is_over)() {
                return Err(Unusable::Interrupted);
            }
            let piece = left.min(LOOK_EVERY);
            let ready = self.wait(open, signals, piece).map_err(Unusable::Lost)?;
            if let (true, Some(signals)) = (ready.signal, signals) {
                check_signals(signals)?;
            }
            if ready.output && self.take(bytes)? == Taken::End {
                open = false;
            }
            if ready.ended {
                // All output of the program is in the pipe. Other holders of the pipe are ignored.
                while open && self.take(bytes)? == Taken::Bytes {}
                return Ok(());
            }
        }
    }

    fn wait(
        &self,
        open: bool,
        signals: Option<BorrowedFd<'_>>,
        left: Duration,
    ) -> Result<Ready, Errno> {
        let mut fds = vec![PollFd::new(&self.pidfd, PollFlags::IN)];
        if open {
            fds.push(PollFd::new(&self.output, PollFlags::IN));
        }
        if let Some(signals) = signals {
            fds.push(PollFd::from_borrowed_fd(signals, PollFlags::IN));
        }
        let timeout = Timespec {
            tv_sec: left.as_secs().try_into().unwrap_or(i64::MAX),
            tv_nsec: left.subsec_nanos().into(),
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
            output: open && is_ready(1),
            signal: is_ready(usize::from(open) + 1),
        })
    }

    /// Reads the available output.
    fn take(&mut self, bytes: &mut Vec<u8>) -> Result<Taken, Unusable> {
        let mut chunk = [0; 4_096];
        let read = self.output.read(&mut chunk);
        let taken = match read {
            Ok(0) => Ok(Taken::End),
            // Never exceed the reserved capacity.
            Ok(count) if bytes.capacity() - bytes.len() < count => Err(Unusable::TooLong),
            Ok(count) => {
                bytes.extend_from_slice(&chunk[..count]);
                Ok(Taken::Bytes)
            }
            Err(error) => match error.kind() {
                std::io::ErrorKind::WouldBlock | std::io::ErrorKind::Interrupted => {
                    Ok(Taken::Nothing)
                }
                _ => Err(Unusable::Lost(errno_of(&error))),
            },
        };
        chunk.fill(0);
        std::hint::black_box(&chunk);
        taken
    }

    /// Kills the process group and reaps the program; the pid identifies the group until then.
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

/// Result of reading the output.
#[derive(PartialEq, Eq)]
enum Taken {
    Bytes,
    Nothing,
    End,
}

/// The events that ended a wait.
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

/// Describes an exit status.
#[must_use]
pub fn described(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exit code {code}"),
        (None, Some(signal)) => format!("signal {signal}"),
        (None, None) => "an unknown status".to_owned(),
    }
}
