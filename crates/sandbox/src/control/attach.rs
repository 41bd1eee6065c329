//! The client of a command: passes its streams and the signals of the terminal through.

use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;

use super::client::{Answer, Client, ControlError, call};
use crate::supervise::streams::{InputPump, OutputPump, Waiting};
use sys::signal;
use sys::terminal::copy_size;

/// The caller's ends of the streams of a command.
#[derive(Debug)]
pub struct CallerStreams {
    pub stdin: Option<InputPump>,
    pub stdout: OutputPump,
    /// `None`: the command has a terminal.
    pub stderr: Option<OutputPump>,
    /// The caller's terminal, and that of the command, which follows its size.
    pub terminals: Option<[OwnedFd; 2]>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Source {
    Supervisor,
    Signal,
    Stdin,
    Stdout,
    Stderr,
}

impl CallerStreams {
    fn follow_size(&self) -> Result<(), ControlError> {
        match &self.terminals {
            Some([from, to]) => {
                copy_size(from.as_fd(), to.as_fd()).map_err(call("follow the terminal"))
            }
            None => Ok(()),
        }
    }
}

impl Client {
    /// Waits for the end of the command that [`Client::exec`] has started. `signals` is the signalfd of
    /// [`crate::supervise::watch::listen_for_signals`]; a second signal that asks for the end kills the
    /// command.
    ///
    /// What the command leaves running may hold its output open: after its end only what is there is
    /// passed on.
    ///
    /// # Errors
    /// [`ControlError`].
    pub fn attach(
        &self,
        mut streams: CallerStreams,
        signals: BorrowedFd<'_>,
    ) -> Result<Answer, ControlError> {
        let failed = call("pass on the streams of the command");
        let mut outcome = None;
        let mut was_asked_to_end = false;
        // A change of the size before signals were listened for had no effect.
        streams.follow_size()?;
        loop {
            let ready = self
                .wait(&streams, signals, outcome.is_some())
                .map_err(&failed)?;
            if ready.is_empty()
                && let Some(answer) = outcome.take()
            {
                return Ok(answer);
            }
            for source in ready {
                match source {
                    Source::Stdout => {
                        streams.stdout.advance().map_err(&failed)?;
                    }
                    Source::Stderr => {
                        if let Some(pump) = &mut streams.stderr {
                            pump.advance().map_err(&failed)?;
                        }
                    }
                    Source::Stdin => {
                        if let Some(pump) = &mut streams.stdin {
                            pump.advance().map_err(&failed)?;
                        }
                    }
                    Source::Signal => {
                        self.forward_signals(&streams, signals, &mut was_asked_to_end)?;
                    }
                    Source::Supervisor => {
                        outcome = Some(self.receive()?);
                        streams.stdin = None;
                    }
                }
            }
        }
    }

    fn forward_signals(
        &self,
        streams: &CallerStreams,
        signals: BorrowedFd<'_>,
        was_asked_to_end: &mut bool,
    ) -> Result<(), ControlError> {
        while let Some(number) = signal::take(signals).map_err(call("read a signal"))? {
            let ends = signal::ends_a_run(number);
            match number {
                libc::SIGWINCH => streams.follow_size()?,
                _ if ends && *was_asked_to_end => self.signal(libc::SIGKILL)?,
                number => self.signal(number)?,
            }
            *was_asked_to_end |= ends;
        }
        Ok(())
    }

    fn wait(
        &self,
        streams: &CallerStreams,
        signals: BorrowedFd<'_>,
        has_ended: bool,
    ) -> Result<Vec<Source>, Errno> {
        let mut fds = Vec::with_capacity(5);
        let mut sources = Vec::with_capacity(5);
        let mut must_wait = !has_ended;
        let mut watch = |fd, source| {
            fds.push(fd);
            sources.push(source);
        };
        if !has_ended {
            watch(
                PollFd::from_borrowed_fd(self.as_fd(), PollFlags::IN),
                Source::Supervisor,
            );
            watch(
                PollFd::from_borrowed_fd(signals, PollFlags::IN),
                Source::Signal,
            );
        }
        let outputs = [
            (streams.stdout.waiting(), Source::Stdout),
            (
                streams.stderr.as_ref().and_then(OutputPump::waiting),
                Source::Stderr,
            ),
            (
                streams.stdin.as_ref().and_then(InputPump::waiting),
                Source::Stdin,
            ),
        ];
        for (waiting, source) in outputs {
            if let Some(waiting) = waiting {
                // What was read is passed on, however slow its reader is.
                must_wait |= matches!(waiting, Waiting::Sink(_));
                watch(waiting.to_poll(), source);
            }
        }
        let none = Timespec::default();
        let timeout = (!must_wait).then_some(&none);
        match rustix::event::poll(&mut fds, timeout) {
            Ok(_) => (),
            Err(Errno::INTR) => return self.wait(streams, signals, has_ended),
            Err(errno) => return Err(errno),
        }
        let ready = fds.iter().zip(sources);
        let ready = ready.filter(|(fd, _)| !fd.revents().is_empty());
        Ok(ready.map(|(_, source)| source).collect())
    }
}
