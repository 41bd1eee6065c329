//! Goes on in a child that the caller does not wait for, once it says that it has started.

use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};

use rustix::fs::{FileType, Mode, OFlags};
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{Signal, set_parent_process_death_signal};

use crate::file::read_to_end;
use crate::process::{self, Ended};

/// This process after [`detach`].
#[derive(Debug)]
pub enum Detached {
    Starter(Starter),
    /// In a session of its own, without the caller's standard input.
    Child(Readiness),
}

/// The process that the caller waits for.
#[derive(Debug)]
pub struct Starter {
    child: i32,
    pipe: OwnedFd,
}

/// What the child tells the process that waits for it.
#[derive(Debug)]
pub struct Readiness {
    pipe: OwnedFd,
    null: OwnedFd,
}

/// Forks. Until the child is ready, it gets SIGTERM if the process that waits ends: the caller has cancelled
/// the start. The child has no other descriptor of the caller than standard output and error. The process
/// must have one thread, and no descriptor of its own.
///
/// # Errors
/// EPIPE: the process that waits has ended; the errno of pipe2(2), open(2), fork(2), setsid(2), prctl(2) or
/// dup2(2).
pub fn detach() -> Result<Detached, Errno> {
    let (pipe, pipe_end) = pipe_with(PipeFlags::CLOEXEC)?;
    let null = open_null()?;
    let starter = rustix::process::getpid();
    // SAFETY: the process has one thread, as this function requires.
    match unsafe { process::fork() }? {
        Some(child) => Ok(Detached::Starter(Starter { child, pipe })),
        None => {
            rustix::process::setsid()?;
            set_parent_process_death_signal(Some(Signal::TERM))?;
            if rustix::process::getppid() != Some(starter) {
                return Err(Errno::PIPE);
            }
            rustix::stdio::dup2_stdin(&null)?;
            // Whoever reads the other end of a pipe of the caller would wait for this process.
            let mut keep = [0, 1, 2, pipe_end.as_raw_fd(), null.as_raw_fd()];
            keep.sort_unstable();
            std::mem::forget(pipe);
            process::close_all_but(&keep)?;
            Ok(Detached::Child(Readiness {
                pipe: pipe_end,
                null,
            }))
        }
    }
}

fn open_null() -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDWR | OFlags::CLOEXEC;
    rustix::fs::open(c"/dev/null", flags, Mode::empty())
}

impl Starter {
    /// Waits until the child is ready, and returns what it says; or until it has ended, and returns how.
    ///
    /// # Errors
    /// The errno of read(2) or wait4(2).
    pub fn wait(self) -> Result<Result<Vec<u8>, Ended>, Errno> {
        let said = read_to_end(&self.pipe)?;
        if !said.is_empty() {
            return Ok(Ok(said));
        }
        let ended = process::wait(self.child, true)?.ok_or(Errno::CHILD)?;
        Ok(Err(ended))
    }
}

impl Readiness {
    /// Puts it in the place of standard input, for the program that this process executes next.
    ///
    /// # Errors
    /// The errno of dup2(2).
    pub fn pass_on(&self) -> Result<(), Errno> {
        rustix::stdio::dup2_stdin(&self.pipe)
    }

    /// Takes what [`Readiness::pass_on`] has put there; `None` if nothing has.
    ///
    /// # Errors
    /// The errno of fstat(2), fcntl(2), open(2) or dup2(2).
    pub fn passed_on() -> Result<Option<Self>, Errno> {
        let stdin = rustix::stdio::stdin();
        let kind = FileType::from_raw_mode(rustix::fs::fstat(stdin)?.st_mode);
        let access = rustix::fs::fcntl_getfl(stdin)? & OFlags::ACCMODE;
        // Nothing else has the writing end of a pipe as its input.
        if kind != FileType::Fifo || access != OFlags::WRONLY {
            return Ok(None);
        }
        let pipe = rustix::io::fcntl_dupfd_cloexec(stdin, 3)?;
        let null = open_null()?;
        rustix::stdio::dup2_stdin(&null)?;
        Ok(Some(Self { pipe, null }))
    }

    /// Says `text`, which is not empty, to the process that waits, and leaves the caller's standard
    /// output and error.
    ///
    /// # Errors
    /// EPIPE: the process that waits is gone; that of prctl(2) or dup2(2).
    pub fn announce(self, text: &[u8]) -> Result<(), Errno> {
        set_parent_process_death_signal(None)?;
        // Which may have been passed on.
        rustix::stdio::dup2_stdin(&self.null)?;
        rustix::stdio::dup2_stdout(&self.null)?;
        rustix::stdio::dup2_stderr(&self.null)?;
        let written = rustix::io::write(self.pipe.as_fd(), text)?;
        if written == text.len() {
            Ok(())
        } else {
            Err(Errno::IO)
        }
    }
}
