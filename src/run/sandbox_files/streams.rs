//! The client's ends of the streams of a command that copies files.

use std::io::{self, Read, Write};
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use sandbox::control::{Answer, Client, ControlError};
use sandbox::supervise::streams::Writer;
use spec::path::{escape, is_hidden};
use sys::signal;

/// Most bytes of the messages of a command that are kept.
const MESSAGES_BYTES_MAX: usize = 256 << 10;
/// Time between two looks for a signal while the caller does not read.
pub(super) const WRITE_INTERVAL: Duration = Duration::from_millis(50);

/// Reads or writes the data of the command, and meanwhile its messages and the signals of this process.
pub(super) struct Streams<'run> {
    data: Option<OwnedFd>,
    messages_end: Option<OwnedFd>,
    signals: BorrowedFd<'run>,
    messages: Vec<u8>,
    /// The signal that asked for the end.
    cancelled: Option<i32>,
    /// The command has closed its end of the data.
    is_at_end: bool,
}

/// How the command ended.
pub(super) struct End {
    pub(super) answer: Answer,
    /// Of a stranger, and escaped.
    pub(super) messages: Vec<String>,
}

impl<'run> Streams<'run> {
    /// The descriptors do not block.
    pub(super) fn new(data: OwnedFd, messages_end: OwnedFd, signals: BorrowedFd<'run>) -> Self {
        Self {
            data: Some(data),
            messages_end: Some(messages_end),
            signals,
            messages: Vec::new(),
            cancelled: None,
            is_at_end: false,
        }
    }

    /// Whether the command ended the data, and not this side.
    pub(super) fn is_at_end(&self) -> bool {
        self.is_at_end
    }

    pub(super) fn cancelled(&self) -> Option<i32> {
        self.cancelled
    }

    /// Notes a signal that asks for the end.
    pub(super) fn take_signals(&mut self) -> Result<(), Errno> {
        while let Some(number) = signal::take(self.signals)? {
            if signal::ends_a_run(number) {
                self.cancelled = Some(number);
            }
        }
        Ok(())
    }

    /// Closes the data, and waits for the end of the command, or for the next signal that asks for the end.
    pub(super) fn finish(&mut self, client: &Client) -> Result<Option<End>, ControlError> {
        self.data = None;
        let earlier = self.cancelled.take();
        let failed = |source| ControlError::Call {
            act: "wait for the end of the command",
            source,
        };
        let answer = loop {
            let ready = self.poll(Some((client.as_fd(), PollFlags::IN)));
            if ready.map_err(failed)? {
                break client.receive()?;
            }
            if self.cancelled.is_some() {
                return Ok(None);
            }
        };
        self.cancelled = earlier;
        while self.read_messages().map_err(failed)? {}
        Ok(Some(End {
            answer,
            messages: lines(&self.messages),
        }))
    }

    /// Waits until `wanted` is ready, or for something else. Returns whether it is.
    fn poll(&mut self, wanted: Option<(BorrowedFd<'_>, PollFlags)>) -> Result<bool, Errno> {
        let mut fds = vec![PollFd::from_borrowed_fd(self.signals, PollFlags::IN)];
        if let Some(end) = &self.messages_end {
            fds.push(PollFd::new(end, PollFlags::IN));
        }
        if let Some((descriptor, flags)) = wanted {
            fds.push(PollFd::from_borrowed_fd(descriptor, flags));
        }
        match rustix::event::poll(&mut fds, None) {
            Ok(_) => (),
            Err(Errno::INTR) => return Ok(false),
            Err(errno) => return Err(errno),
        }
        let ready: Vec<bool> = fds.iter().map(|fd| !fd.revents().is_empty()).collect();
        let is_ready = wanted.is_some() && ready.last() == Some(&true);
        let has_messages = self.messages_end.is_some() && ready.get(1) == Some(&true);
        if ready.first() == Some(&true) {
            self.take_signals()?;
        }
        if has_messages {
            self.read_messages()?;
        }
        Ok(is_ready)
    }

    /// Returns whether there was something.
    fn read_messages(&mut self) -> Result<bool, Errno> {
        let Some(end) = &self.messages_end else {
            return Ok(false);
        };
        let mut piece = [0; 4096];
        match rustix::io::read(end, &mut piece) {
            Ok(0) => {
                self.messages_end = None;
                Ok(false)
            }
            Ok(count) => {
                let room = MESSAGES_BYTES_MAX.saturating_sub(self.messages.len());
                self.messages.extend_from_slice(&piece[..count.min(room)]);
                Ok(true)
            }
            Err(Errno::AGAIN | Errno::INTR) => Ok(false),
            Err(errno) => Err(errno),
        }
    }

    /// Reads from a descriptor of the caller, which may wait.
    pub(super) fn read_from(
        &mut self,
        descriptor: BorrowedFd<'_>,
        buffer: &mut [u8],
    ) -> io::Result<usize> {
        loop {
            let is_ready = self.poll(Some((descriptor, PollFlags::IN)));
            self.check()?;
            if is_ready? {
                match rustix::io::read(descriptor, &mut *buffer) {
                    Err(Errno::AGAIN | Errno::INTR) => (),
                    done => return Ok(done?),
                }
            }
        }
    }

    /// Writes to a descriptor of the caller, which may wait.
    pub(super) fn write_to(&mut self, writer: &Writer, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            match writer.write(bytes) {
                Ok(count) => bytes = bytes.get(count..).unwrap_or_default(),
                Err(Errno::INTR) => (),
                Err(Errno::AGAIN) => {
                    self.take_signals()?;
                    self.check()?;
                    match writer.wait(WRITE_INTERVAL) {
                        Ok(()) | Err(Errno::AGAIN | Errno::INTR) => (),
                        Err(errno) => return Err(errno.into()),
                    }
                }
                Err(errno) => return Err(errno.into()),
            }
        }
        Ok(())
    }

    fn check(&self) -> io::Result<()> {
        match self.cancelled {
            Some(_) => Err(Errno::CANCELED.into()),
            None => Ok(()),
        }
    }

    /// Waits until the data is ready.
    fn wait(&mut self, flags: PollFlags) -> io::Result<OwnedFd> {
        let Some(data) = self.data.take() else {
            return Err(Errno::PIPE.into());
        };
        loop {
            let is_ready = self.poll(Some((data.as_fd(), flags)));
            if let Err(cancelled) = self.check() {
                self.data = Some(data);
                return Err(cancelled);
            }
            if is_ready? {
                return Ok(data);
            }
        }
    }

    fn transfer(
        &mut self,
        flags: PollFlags,
        act: &mut dyn FnMut(BorrowedFd<'_>) -> Result<usize, Errno>,
    ) -> io::Result<usize> {
        loop {
            let data = self.wait(flags)?;
            let done = act(data.as_fd());
            self.data = Some(data);
            match done {
                Err(Errno::AGAIN | Errno::INTR) => (),
                done => {
                    self.is_at_end |= matches!(done, Ok(0) | Err(Errno::PIPE));
                    return Ok(done?);
                }
            }
        }
    }
}

impl Read for Streams<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.transfer(PollFlags::IN, &mut |data| {
            rustix::io::read(data, &mut *buffer)
        })
    }
}

impl Write for Streams<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.transfer(PollFlags::OUT, &mut |data| rustix::io::write(data, bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The lines, safe for a terminal. The command has escaped the names in them, so a plain line stays as it
/// is; one with characters that control or hide something did not come from it, and is escaped whole.
fn lines(text: &[u8]) -> Vec<String> {
    let lines = text
        .split(|byte| *byte == b'\n')
        .filter(|line| !line.is_empty());
    let shown = lines.map(|line| match str::from_utf8(line) {
        Ok(text) if !text.chars().any(is_hidden) => text.to_owned(),
        _ => escape(line),
    });
    shown.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_escaped_unless_they_are_plain() {
        let text = b"skipped `a\\x0a`\n\n\x1b[31mred\n\xff\n";
        let expected = ["skipped `a\\x0a`", "\\x1b[31mred", "\\xff"];
        assert_eq!(lines(text), expected);
    }
}
