//! The body's standard streams: pipes of ours, pumped with the reader's back-pressure.
//!
//! The body never holds a descriptor of the caller's: no terminal to push characters into, no
//! file to rewind.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::buffer::spare_capacity;
use rustix::fs::{FileType, Mode, OFlags};
use rustix::io::Errno;
use rustix::pipe::PipeFlags;

use crate::prepare::BodyStreams;

/// Bytes that one read takes.
const CHUNK_BYTES: usize = 64 << 10;
/// Bytes that a pipe always takes at once where it is writable at all (pipe(7)).
const PIPE_BUF_BYTES: usize = 4_096;

/// Pipes for the three streams: the body's ends and ours. Ours do not block.
#[derive(Debug)]
pub struct Pipes {
    /// Where the body's input is written; `None` where it reads /dev/null.
    pub stdin: Option<OwnedFd>,
    /// Where its output is read.
    pub stdout: OwnedFd,
    /// Where its errors are read.
    pub stderr: OwnedFd,
}

/// Makes the pipes. All descriptors lie above 2, so that the child can put them in place.
///
/// # Errors
/// The errno of pipe2(2) or open(2): EMFILE at the descriptor limit.
pub fn make_pipes(with_stdin: bool) -> Result<(BodyStreams, Pipes), Errno> {
    let (stdout_ours, stdout) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC)?;
    let (stderr_ours, stderr) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC)?;
    let (stdin, stdin_ours) = if with_stdin {
        let (theirs, ours) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC)?;
        (theirs, Some(ours))
    } else {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        (rustix::fs::open(c"/dev/null", flags, Mode::empty())?, None)
    };
    for ours in [Some(&stdout_ours), Some(&stderr_ours), stdin_ours.as_ref()]
        .into_iter()
        .flatten()
    {
        rustix::io::ioctl_fionbio(ours, true)?;
    }
    Ok((
        BodyStreams {
            stdin,
            stdout,
            stderr,
        },
        Pipes {
            stdin: stdin_ours,
            stdout: stdout_ours,
            stderr: stderr_ours,
        },
    ))
}

/// Where output goes.
#[derive(Debug)]
pub enum Sink {
    /// To the caller's descriptor.
    Passed(Writer),
    /// Into memory, up to the limit.
    Captured(Vec<u8>),
}

/// A descriptor of the caller's that is written to without ever blocking the supervisor.
#[derive(Debug)]
pub struct Writer {
    descriptor: OwnedFd,
    kind: WriterKind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum WriterKind {
    /// A description of our own that does not block.
    NonBlocking,
    /// Shared with the caller, so that it must stay as it is: at most PIPE_BUF at once.
    Small,
    /// A socket: each send says that it must not block.
    Socket,
    /// A file never blocks.
    File,
}

impl Writer {
    /// A writer to what `descriptor` names.
    ///
    /// O_NONBLOCK belongs to the open file description, which the caller shares: it is not ours to
    /// set. Pipes and terminals are opened once more for a description of our own.
    ///
    /// # Errors
    /// EBADF where it is closed.
    pub fn new(descriptor: BorrowedFd<'_>) -> Result<Self, Errno> {
        let own = rustix::io::fcntl_dupfd_cloexec(descriptor, 3)?;
        let mode = rustix::fs::fstat(&own)?.st_mode;
        let kind = match FileType::from_raw_mode(mode) {
            FileType::RegularFile => WriterKind::File,
            FileType::Socket => WriterKind::Socket,
            _ => {
                let path = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&own));
                let flags = OFlags::WRONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
                // A descriptor of another user's, or a device that cannot be opened again.
                match rustix::fs::open(path, flags, Mode::empty()) {
                    Ok(descriptor) => {
                        return Ok(Self {
                            descriptor,
                            kind: WriterKind::NonBlocking,
                        });
                    }
                    Err(_) => WriterKind::Small,
                }
            }
        };
        Ok(Self {
            descriptor: own,
            kind,
        })
    }

    fn write(&self, bytes: &[u8]) -> Result<usize, Errno> {
        match self.kind {
            WriterKind::File | WriterKind::NonBlocking => {
                rustix::io::write(&self.descriptor, bytes)
            }
            WriterKind::Small => {
                rustix::io::write(&self.descriptor, &bytes[..bytes.len().min(PIPE_BUF_BYTES)])
            }
            WriterKind::Socket => {
                let flags = rustix::net::SendFlags::DONTWAIT | rustix::net::SendFlags::NOSIGNAL;
                rustix::net::send(&self.descriptor, bytes, flags)
            }
        }
    }
}

/// One output stream of the body on its way.
#[derive(Debug)]
pub struct OutputPump {
    source: Option<OwnedFd>,
    sink: Sink,
    pending: Vec<u8>,
    written: usize,
    limit_bytes: Option<u64>,
    seen_bytes: u64,
    dropped_bytes: u64,
    copy: Option<Copy>,
}

/// What passed through so far, while that is not more than the limit.
#[derive(Debug)]
struct Copy {
    bytes: Vec<u8>,
    limit_bytes: usize,
}

/// What became of one output stream.
#[derive(Debug)]
pub struct Finished {
    /// Bytes that the body wrote.
    pub seen_bytes: u64,
    /// Bytes of those that were thrown away.
    pub dropped_bytes: u64,
    pub captured: Option<Vec<u8>>,
    /// All that passed through, where a copy was asked for and nothing is missing in it.
    pub copy: Option<Vec<u8>>,
}

/// What a pump waits for.
#[derive(Debug, Clone, Copy)]
pub enum Waiting<'pump> {
    /// Bytes of the body.
    Source(BorrowedFd<'pump>),
    /// Room at the reader.
    Sink(BorrowedFd<'pump>),
}

impl OutputPump {
    /// A pump from `source`; what goes beyond `limit_bytes` is counted and thrown away.
    #[must_use]
    pub fn new(source: OwnedFd, sink: Sink, limit_bytes: Option<u64>) -> Self {
        Self {
            source: Some(source),
            sink,
            pending: Vec::new(),
            written: 0,
            limit_bytes,
            seen_bytes: 0,
            dropped_bytes: 0,
            copy: None,
        }
    }

    /// Keeps a copy of what passes through, up to `limit_bytes`; beyond that none at all.
    #[must_use]
    pub fn with_copy(mut self, limit_bytes: usize) -> Self {
        self.copy = Some(Copy {
            bytes: Vec::new(),
            limit_bytes,
        });
        self
    }

    /// What to poll for; `None` once all is done.
    #[must_use]
    pub fn waiting(&self) -> Option<Waiting<'_>> {
        match (&self.sink, self.written < self.pending.len()) {
            (Sink::Passed(writer), true) => Some(Waiting::Sink(writer.descriptor.as_fd())),
            _ => self
                .source
                .as_ref()
                .map(|source| Waiting::Source(source.as_fd())),
        }
    }

    /// Moves what can be moved without waiting. `false` where nothing could be.
    ///
    /// # Errors
    /// The errno of read(2) or write(2), but for a reader that has gone: then the pipe is closed,
    /// and the body learns of it as it would from the reader itself.
    pub(crate) fn advance(&mut self) -> Result<bool, Errno> {
        if self.written < self.pending.len() {
            return self.flush();
        }
        let Some(source) = &self.source else {
            return Ok(false);
        };
        self.pending.clear();
        self.pending.reserve_exact(CHUNK_BYTES);
        self.written = 0;
        let read = rustix::io::read(source, spare_capacity(&mut self.pending));
        match read {
            Ok(0) => {
                self.source = None;
                Ok(true)
            }
            // A terminal whose other side has gone answers EIO in place of an end of file.
            Err(Errno::IO) => {
                self.source = None;
                Ok(true)
            }
            Err(Errno::AGAIN | Errno::INTR) => Ok(false),
            Err(errno) => Err(errno),
            Ok(count) => {
                self.admit(count);
                self.flush().map(|_moved| true)
            }
        }
    }

    /// Keeps of the last `count` bytes what the limit still allows.
    fn admit(&mut self, count: usize) {
        let count_bytes = u64::try_from(count).unwrap_or(u64::MAX);
        let before = self.seen_bytes;
        self.seen_bytes += count_bytes;
        if let Some(limit) = self.limit_bytes {
            let room = limit.saturating_sub(before);
            if room < count_bytes {
                self.dropped_bytes += count_bytes - room;
                self.pending
                    .truncate(usize::try_from(room).unwrap_or(usize::MAX));
            }
        }
        if let Some(copy) = &mut self.copy {
            if copy.limit_bytes - copy.bytes.len() < self.pending.len() {
                self.copy = None;
            } else {
                copy.bytes.extend_from_slice(&self.pending);
            }
        }
    }

    fn flush(&mut self) -> Result<bool, Errno> {
        let rest = &self.pending[self.written..];
        if rest.is_empty() {
            return Ok(false);
        }
        match &mut self.sink {
            Sink::Captured(text) => {
                text.extend_from_slice(rest);
                self.written = self.pending.len();
                Ok(true)
            }
            Sink::Passed(writer) => match writer.write(rest) {
                Ok(count) => {
                    self.written += count;
                    Ok(0 < count)
                }
                Err(Errno::AGAIN | Errno::INTR) => Ok(false),
                Err(Errno::PIPE | Errno::CONNRESET | Errno::IO) => {
                    self.give_up();
                    Ok(true)
                }
                Err(errno) => Err(errno),
            },
        }
    }

    /// Closes the stream; what was still on its way is counted as thrown away.
    pub fn give_up(&mut self) {
        let rest = self.pending.len() - self.written;
        self.dropped_bytes += u64::try_from(rest).unwrap_or(u64::MAX);
        self.written = self.pending.len();
        self.source = None;
        self.copy = None;
    }

    /// Whether more came than the limit allows.
    #[must_use]
    pub(crate) fn over_limit(&self) -> bool {
        self.limit_bytes
            .is_some_and(|limit| limit < self.seen_bytes)
    }

    /// What became of it.
    #[must_use]
    pub fn finish(self) -> Finished {
        let captured = match self.sink {
            Sink::Captured(text) => Some(text),
            Sink::Passed(_) => None,
        };
        let is_whole = self.dropped_bytes == 0;
        Finished {
            seen_bytes: self.seen_bytes,
            dropped_bytes: self.dropped_bytes,
            captured,
            copy: self.copy.filter(|_| is_whole).map(|copy| copy.bytes),
        }
    }
}

/// The body's standard input on its way.
#[derive(Debug)]
pub struct InputPump {
    source: Option<OwnedFd>,
    sink: Option<OwnedFd>,
    pending: Vec<u8>,
    written: usize,
    /// A terminal knows the end of its input by a character.
    end_character: Option<u8>,
}

impl InputPump {
    /// Passes `text` on and then the end.
    #[must_use]
    pub fn of_text(text: Vec<u8>, sink: OwnedFd) -> Self {
        Self {
            source: None,
            sink: Some(sink),
            pending: text,
            written: 0,
            end_character: None,
        }
    }

    /// Passes on what the caller's standard input gives.
    ///
    /// # Errors
    /// EBADF where it is closed.
    pub fn of_caller(
        source: BorrowedFd<'_>,
        sink: OwnedFd,
        is_terminal: bool,
    ) -> Result<Self, Errno> {
        let source = Some(rustix::io::fcntl_dupfd_cloexec(source, 3)?);
        let end_character = is_terminal.then_some(4);
        Ok(Self {
            source,
            sink: Some(sink),
            pending: Vec::new(),
            written: 0,
            end_character,
        })
    }

    /// The descriptor to poll, and whether for writing; `None` once all is done.
    #[must_use]
    pub fn waiting(&self) -> Option<Waiting<'_>> {
        let sink = self.sink.as_ref()?;
        if self.written < self.pending.len() {
            return Some(Waiting::Sink(sink.as_fd()));
        }
        self.source
            .as_ref()
            .map(|source| Waiting::Source(source.as_fd()))
    }

    /// Moves what can be moved without waiting; called when the polled descriptor is ready.
    ///
    /// # Errors
    /// The errno of read(2) or write(2), but for a body that has closed its input.
    pub(crate) fn advance(&mut self) -> Result<(), Errno> {
        if self.written == self.pending.len() && self.source.is_some() {
            self.fill()?;
        }
        let Some(sink) = &self.sink else {
            return Ok(());
        };
        while self.written < self.pending.len() {
            match rustix::io::write(sink, &self.pending[self.written..]) {
                Ok(count) => self.written += count,
                Err(Errno::AGAIN | Errno::INTR) => return Ok(()),
                Err(Errno::PIPE | Errno::IO) => {
                    self.sink = None;
                    return Ok(());
                }
                Err(errno) => return Err(errno),
            }
        }
        if self.source.is_none() {
            self.sink = None;
        }
        Ok(())
    }

    fn fill(&mut self) -> Result<(), Errno> {
        let Some(source) = &self.source else {
            return Ok(());
        };
        self.pending.clear();
        self.pending.reserve_exact(CHUNK_BYTES);
        self.written = 0;
        let read = rustix::io::read(source, spare_capacity(&mut self.pending));
        match read {
            Ok(0) | Err(Errno::IO) => {
                self.source = None;
                self.pending.extend(self.end_character);
                Ok(())
            }
            Ok(_) | Err(Errno::AGAIN | Errno::INTR) => Ok(()),
            Err(errno) => Err(errno),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pipe() -> (OwnedFd, OwnedFd) {
        let (read, write) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC).expect("a pipe");
        rustix::io::ioctl_fionbio(&read, true).expect("set");
        (read, write)
    }

    #[test]
    fn what_goes_beyond_the_limit_is_counted_and_not_kept() {
        let (read, write) = pipe();
        let mut pump = OutputPump::new(read, Sink::Captured(Vec::new()), Some(4));
        rustix::io::write(&write, b"abcdef").expect("written");
        drop(write);
        while pump.waiting().is_some() {
            pump.advance().expect("moved");
        }
        assert!(pump.over_limit());
        let finished = pump.finish();
        assert_eq!((finished.seen_bytes, finished.dropped_bytes), (6, 2));
        assert_eq!(finished.captured, Some(b"abcd".to_vec()));
    }

    #[test]
    fn a_reader_that_has_gone_closes_the_stream() {
        let (read, write) = pipe();
        let (gone, sink) = pipe();
        let writer = Writer::new(sink.as_fd()).expect("a writer");
        drop((gone, sink));
        let mut pump = OutputPump::new(read, Sink::Passed(writer), None);
        rustix::io::write(&write, b"abc").expect("written");
        // SIGPIPE is ignored by the test harness as it is by the runner.
        assert!(pump.advance().expect("moved"));
        assert!(pump.waiting().is_none());
        let finished = pump.finish();
        assert_eq!((finished.seen_bytes, finished.dropped_bytes), (3, 3));
        assert_eq!(finished.captured, None);
    }

    #[test]
    fn a_slow_reader_holds_the_source_back() {
        let (read, write) = pipe();
        let (reader, sink) = pipe();
        let writer = Writer::new(sink.as_fd()).expect("a writer");
        let mut pump = OutputPump::new(read, Sink::Passed(writer), None);
        for _ in 0..2 {
            rustix::io::write(&write, &[b'x'; 60_000][..]).expect("written");
            while pump.advance().expect("moved") {}
        }
        assert!(matches!(pump.waiting(), Some(Waiting::Sink(_))));
        drop(reader);
    }
}
