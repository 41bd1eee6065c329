//! A program of the host's that is asked one thing: it has so long and may say so much.
//!
//! It is in a process group of its own, which is gone when the answer is there, and no shell starts
//! it. What it writes to standard error is thrown away, since it may quote the value.

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

/// How long is waited between two looks at whether to go on.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// What a program is asked.
#[derive(Clone, Copy)]
pub struct Question<'run> {
    /// The program and its arguments.
    pub words: &'run [String],
    /// What it reads from standard input.
    pub input: &'run [u8],
    /// All of its variables.
    pub environment: &'run [EnvironmentEntry],
    /// How long it has.
    pub deadline: Duration,
    /// A signal descriptor: once a signal that ends a run is there, nothing is waited for.
    pub signals: Option<BorrowedFd<'run>>,
    /// Whether nothing is to be waited for any longer.
    pub is_over: &'run dyn Fn() -> bool,
}

/// Nothing of the input and the variables: they may be secrets.
impl std::fmt::Debug for Question<'_> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("Question")
            .field("words", &self.words)
            .finish_non_exhaustive()
    }
}

/// What a program said.
#[derive(Debug)]
pub struct Answer {
    pub status: ExitStatus,
    /// What it wrote to standard output, at most [`VALUE_BYTES_MAX`] and a newline.
    pub output: Secret,
}

/// Asks a program.
///
/// # Errors
/// [`Unusable`]: it cannot be started, says too much, is too slow, or the caller wants an end.
pub fn ask(question: &Question<'_>) -> Result<Answer, Unusable> {
    let mut asked = start(question)?;
    // Room for all of it at once: a vector that grows leaves copies behind.
    let mut bytes = Vec::with_capacity(VALUE_BYTES_MAX + 1);
    let followed = asked.follow(&mut bytes, question);
    // Whatever came of it, the group is not there any longer when this returns.
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
            // Not followed, so not left behind either.
            let ended = kill(-pid, libc::SIGKILL)
                .and_then(|()| child.wait().map_err(|error| errno_of(&error)));
            Err(Unusable::Lost(ended.err().unwrap_or(errno)))
        }
    }
}

/// A file in memory rather than a pipe: nobody has to write while the program reads or ends.
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
    /// Reads until the program has ended, says too much, is too slow, or the caller's signal comes.
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
                // What it wrote before its end is all there. Who else holds the pipe is not asked.
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

    /// Takes what is there.
    fn take(&mut self, bytes: &mut Vec<u8>) -> Result<Taken, Unusable> {
        let mut chunk = [0; 4_096];
        let read = self.output.read(&mut chunk);
        let taken = match read {
            Ok(0) => Ok(Taken::End),
            // Never beyond what was reserved.
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

    /// Ends the whole group and reaps the program, whose pid names the group until then.
    fn end(&mut self) -> Result<ExitStatus, Unusable> {
        match kill(-self.pid, libc::SIGKILL) {
            Ok(()) | Err(Errno::SRCH) => self.child.wait(),
            // A program that became somebody else cannot be ended by us: it is not waited for.
            Err(errno) => self
                .child
                .try_wait()
                .and_then(|status| status.ok_or_else(|| errno.into())),
        }
        .map_err(|error| Unusable::Lost(errno_of(&error)))
    }
}

/// What a look at the output found.
#[derive(PartialEq, Eq)]
enum Taken {
    Bytes,
    Nothing,
    End,
}

/// What a wait was ended by.
struct Ready {
    ended: bool,
    output: bool,
    signal: bool,
}

/// Takes the signals that are there; one that cancels the run is an error.
fn check_signals(signals: BorrowedFd<'_>) -> Result<(), Unusable> {
    while let Some(number) = signal::take(signals).map_err(Unusable::Lost)? {
        if signal::ends_a_run(number) {
            return Err(Unusable::Cancelled { signal: number });
        }
    }
    Ok(())
}

/// How a program ended.
#[must_use]
pub fn described(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exit code {code}"),
        (None, Some(signal)) => format!("signal {signal}"),
        (None, None) => "an unknown status".to_owned(),
    }
}
