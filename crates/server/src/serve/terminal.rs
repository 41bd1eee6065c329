//! What a client types into a command that runs: a pipe, or a terminal of this server.
//!
//! `runner sandbox exec -it` reads the terminal, and passes its size on to that of the command, which is one
//! of the sandbox. The output does not go through it.

use std::os::fd::{AsFd as _, OwnedFd};
use std::process::Stdio;
use std::time::Duration;

use axum::http::StatusCode;
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use rustix::pty::OpenptFlags;
use rustix::termios::{OptionalActions, Winsize};
use tokio::io::AsyncWriteExt as _;
use tokio::process::{Child, ChildStdin, Command};
use tokio::sync::Mutex;
use tokio::time::timeout;

use super::body::STALL;
use super::error::ApiError;
use super::types::TerminalSize;

/// How long to wait for a terminal that takes no more.
const FULL: Duration = Duration::from_millis(10);

/// What a command is to read.
#[derive(Debug, Clone, Copy)]
pub(super) enum Reads {
    Nothing,
    Pipe,
    Terminal(TerminalSize),
}

/// The server's end of what a command reads.
#[derive(Debug)]
pub(super) enum Input {
    /// Closed, or there was none.
    Pipe(Mutex<Option<ChildStdin>>),
    Terminal(Terminal),
}

#[derive(Debug)]
pub(super) struct Terminal {
    master: OwnedFd,
    /// `runner sandbox exec`, which follows the size when it gets SIGWINCH: the terminal is not its controlling
    /// one, so the kernel sends it none.
    process: OwnedFd,
    /// Who writes: the bytes of two calls are not mixed.
    turn: Mutex<()>,
}

/// What programs may send to a terminal, unless the client says otherwise.
pub(super) const DEFAULT_TERM: &str = "--env=TERM=xterm-256color";

impl TerminalSize {
    /// # Errors
    /// 400: programs divide by it.
    pub(super) fn check(self) -> Result<(), ApiError> {
        match self.rows > 0 && self.columns > 0 {
            true => Ok(()),
            false => Err(ApiError::bad_request(
                "terminal_size",
                "a terminal has at least one row and one column",
            )),
        }
    }
}

impl Reads {
    /// The flag of `runner sandbox exec`.
    pub(super) fn flag(self) -> Option<&'static str> {
        match self {
            Self::Nothing => None,
            Self::Pipe => Some("-i"),
            Self::Terminal(_) => Some("-it"),
        }
    }

    /// Starts the command with what it is to read.
    ///
    /// # Errors
    /// It cannot be executed, or there is no terminal left.
    pub(super) fn spawn(self, command: &mut Command) -> Result<(Child, Input), ApiError> {
        let executed = |command: &mut Command| {
            let child = command.spawn();
            child.map_err(|error| super::verbs::not_executed(&error))
        };
        let size = match self {
            Self::Nothing => None,
            Self::Pipe => {
                command.stdin(Stdio::piped());
                None
            }
            Self::Terminal(size) => Some(size),
        };
        let Some(size) = size else {
            let mut child = executed(command)?;
            let pipe = child.stdin.take();
            return Ok((child, Input::Pipe(Mutex::new(pipe))));
        };
        let failed = |errno| ApiError::failed(format!("cannot make a terminal: {errno}"));
        let (master, slave) = open(size).map_err(failed)?;
        command.stdin(slave);
        let mut child = executed(command)?;
        // Not waited for yet, so the number is still its own.
        let pid = child.id().and_then(|pid| i32::try_from(pid).ok());
        let opened = match pid.and_then(Pid::from_raw) {
            Some(pid) => pidfd_open(pid, PidfdFlags::empty()),
            None => Err(Errno::SRCH),
        };
        match opened {
            Ok(process) => Ok((
                child,
                Input::Terminal(Terminal {
                    master,
                    process,
                    turn: Mutex::default(),
                }),
            )),
            Err(errno) => {
                // Its terminal hangs up, and ends the command.
                child
                    .start_kill()
                    .map_err(|error| ApiError::failed(format!("cannot end `runner`: {error}")))?;
                Err(failed(errno))
            }
        }
    }
}

fn winsize(size: TerminalSize) -> Winsize {
    Winsize {
        ws_row: size.rows,
        ws_col: size.columns,
        ws_xpixel: 0,
        ws_ypixel: 0,
    }
}

/// A terminal that changes nothing of what is written to it.
fn open(size: TerminalSize) -> Result<(OwnedFd, OwnedFd), Errno> {
    let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
    let master = rustix::pty::openpt(flags)?;
    rustix::pty::grantpt(&master)?;
    rustix::pty::unlockpt(&master)?;
    let slave = rustix::pty::ioctl_tiocgptpeer(&master, flags)?;
    // `runner` does so too, but what a client sends first may be here earlier.
    let mut mode = rustix::termios::tcgetattr(&slave)?;
    mode.make_raw();
    rustix::termios::tcsetattr(&slave, OptionalActions::Now, &mode)?;
    rustix::termios::tcsetwinsize(&master, winsize(size))?;
    rustix::io::ioctl_fionbio(&master, true)?;
    Ok((master, slave))
}

impl Terminal {
    async fn write(&self, bytes: &[u8]) -> Result<(), Errno> {
        let _turn = self.turn.lock().await;
        let mut left = bytes;
        while !left.is_empty() {
            match rustix::io::write(&self.master, left) {
                Ok(count) => left = &left[count..],
                Err(Errno::INTR) => (),
                // Full, and stays so if the reader has ended.
                Err(Errno::AGAIN) if self.has_ended()? => return Err(Errno::IO),
                // Not epoll(7): the kernel may report room before there is, and then not again.
                Err(Errno::AGAIN) => tokio::time::sleep(FULL).await,
                Err(errno) => return Err(errno),
            }
        }
        Ok(())
    }

    fn has_ended(&self) -> Result<bool, Errno> {
        let mut fds = [PollFd::new(&self.process, PollFlags::IN)];
        Ok(rustix::event::poll(&mut fds, Some(&Timespec::default()))? > 0)
    }

    fn resize(&self, size: TerminalSize) -> Result<(), Errno> {
        rustix::termios::tcsetwinsize(&self.master, winsize(size))?;
        match pidfd_send_signal(self.process.as_fd(), Signal::WINCH) {
            // It has ended, and the command before it.
            Ok(()) | Err(Errno::SRCH) => Ok(()),
            Err(errno) => Err(errno),
        }
    }
}

impl Input {
    pub(super) fn is_terminal(&self) -> bool {
        matches!(self, Self::Terminal(_))
    }

    /// # Errors
    /// 409: the command reads nothing, or not everything in time.
    pub(super) async fn write(&self, bytes: &[u8]) -> Result<(), ApiError> {
        let late = "the command did not read everything in 30 s";
        let written = timeout(STALL, self.write_all(bytes)).await;
        written.unwrap_or_else(|_late| Err(conflict(late)))
    }

    /// As [`Self::write`], however long it takes.
    ///
    /// # Errors
    /// 409: the command reads nothing.
    pub(super) async fn write_all(&self, bytes: &[u8]) -> Result<(), ApiError> {
        let written = match self {
            Self::Pipe(pipe) => match pipe.lock().await.as_mut() {
                Some(pipe) => pipe.write_all(bytes).await.is_ok(),
                None => {
                    let message = "the command has no standard input, or it was closed";
                    return Err(conflict(message));
                }
            },
            Self::Terminal(terminal) => terminal.write(bytes).await.is_ok(),
        };
        match written {
            true => Ok(()),
            false => Err(conflict("the command reads no more")),
        }
    }

    /// # Errors
    /// 409: a terminal has no end of input of its own.
    pub(super) async fn close(&self) -> Result<(), ApiError> {
        match self {
            Self::Pipe(pipe) => {
                drop(pipe.lock().await.take());
                Ok(())
            }
            Self::Terminal(_) => Err(conflict(
                "a terminal is not closed: send 0x04 (Ctrl-D), or kill the command",
            )),
        }
    }

    /// # Errors
    /// 409: it is no terminal.
    pub(super) fn resize(&self, size: TerminalSize) -> Result<(), ApiError> {
        match self {
            Self::Pipe(_) => Err(conflict("the command has no terminal")),
            Self::Terminal(terminal) => terminal.resize(size).map_err(|errno| {
                ApiError::failed(format!("cannot set the size of the terminal: {errno}"))
            }),
        }
    }
}

fn conflict(message: &str) -> ApiError {
    ApiError::new(StatusCode::CONFLICT, "stdin", message)
}
