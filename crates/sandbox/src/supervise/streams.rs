//! The body's standard streams: pipes with the reader's back-pressure.
//!
//! The body never gets a descriptor of the caller, so it cannot inject input into a terminal or
//! rewind a file.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::buffer::spare_capacity;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{FileType, Mode, OFlags};
use rustix::io::Errno;
use rustix::pipe::PipeFlags;

use crate::prepare::BodyStreams;

const CHUNK_BYTES: usize = 64 << 10;
/// Bytes that a writable pipe accepts in one write (pipe(7)).
const PIPE_BUF_BYTES: usize = 4_096;

/// Supervisor's ends of the pipes for the three streams, non-blocking.
#[derive(Debug)]
pub struct Pipes {
    /// `None`: the body reads /dev/null.
    pub stdin: Option<OwnedFd>,
    pub stdout: OwnedFd,
    pub stderr: OwnedFd,
}

/// Creates the pipes. All descriptors are above 2, so that the child can dup2 them.
///
/// # Errors
/// The errno of pipe2(2) or open(2): EMFILE at the descriptor limit.
pub fn make_pipes(with_stdin: bool) -> Result<(BodyStreams, Pipes), Errno> {
    let (stdout_end, stdout) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC)?;
    let (stderr_end, stderr) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC)?;
    let (stdin, stdin_end) = if with_stdin {
        let (child_end, parent_end) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC)?;
        (child_end, Some(parent_end))
    } else {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        (rustix::fs::open(c"/dev/null", flags, Mode::empty())?, None)
    };
    let ends = [Some(&stdout_end), Some(&stderr_end), stdin_end.as_ref()];
    for end in ends.into_iter().flatten() {
        rustix::io::ioctl_fionbio(end, true)?;
    }
    Ok((
        BodyStreams {
            stdin,
            stdout,
            stderr,
        },
        Pipes {
            stdin: stdin_end,
            stdout: stdout_end,
            stderr: stderr_end,
        },
    ))
}

/// Destination of output.
#[derive(Debug)]
pub enum Sink {
    Passed(Writer),
    /// To memory, up to the limit.
    Captured(Vec<u8>),
}

/// Writes to a descriptor of the caller without blocking the supervisor.
#[derive(Debug)]
pub struct Writer {
    descriptor: OwnedFd,
    kind: WriterKind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum WriterKind {
    NonBlocking,
    /// A blocking description shared with the caller: write at most PIPE_BUF at a time.
    Small,
    /// A socket: send with MSG_DONTWAIT.
    Socket,
    /// A regular file never blocks.
    File,
}

impl Writer {
    /// Creates a writer to `descriptor`.
    ///
    /// Opens pipes and terminals again, because O_NONBLOCK on the shared open file description
    /// would also affect the caller. Fails with EBADF if `descriptor` is closed.
    pub fn new(descriptor: BorrowedFd<'_>) -> Result<Self, Errno> {
        let own = rustix::io::fcntl_dupfd_cloexec(descriptor, 3)?;
        let mode = rustix::fs::fstat(&own)?.st_mode;
        let kind = match FileType::from_raw_mode(mode) {
            FileType::RegularFile => WriterKind::File,
            FileType::Socket => WriterKind::Socket,
            _ => {
                let path = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&own));
                let flags = OFlags::WRONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
                // Fails for files of another user and for devices that cannot be reopened.
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

    /// Waits until the descriptor can be written, or for `timeout`.
    ///
    /// # Errors
    /// [`Errno::AGAIN`] after the timeout, or the errno of poll(2).
    pub fn wait(&self, timeout: Duration) -> Result<(), Errno> {
        let mut descriptor = [PollFd::new(&self.descriptor, PollFlags::OUT)];
        let timeout = Timespec::try_from(timeout).ok();
        match poll(&mut descriptor, timeout.as_ref())? {
            0 => Err(Errno::AGAIN),
            _ => Ok(()),
        }
    }

    /// Writes what the descriptor accepts without blocking. Call it when poll(2) says that it can be
    /// written.
    ///
    /// # Errors
    /// The errno of write(2) or send(2).
    pub fn write(&self, bytes: &[u8]) -> Result<usize, Errno> {
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

/// Copies one output stream of the body.
#[derive(Debug)]
pub struct OutputPump {
    source: Option<OwnedFd>,
    sink: Sink,
    pending: Vec<u8>,
    written: usize,
    limit_bytes: Option<u64>,
    seen_bytes: u64,
    dropped_bytes: u64,
    copy: Option<Copying>,
    /// Of what was passed on since [`OutputPump::take_last_byte`].
    last_byte: Option<u8>,
}

/// How much of a stream is kept besides passing it on.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CopyLimits {
    /// A stream up to this size is kept as a whole.
    pub whole_bytes: usize,
    /// Of a longer one, this much of its start.
    pub head_bytes: usize,
}

/// What was kept of a stream.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Kept {
    pub bytes: Vec<u8>,
    pub is_whole: bool,
}

#[derive(Debug)]
struct Copying {
    kept: Kept,
    limits: CopyLimits,
}

impl Copying {
    fn add(&mut self, bytes: &[u8]) {
        let (kept, limits) = (&mut self.kept, self.limits);
        if kept.is_whole && bytes.len() <= limits.whole_bytes.saturating_sub(kept.bytes.len()) {
            kept.bytes.extend_from_slice(bytes);
            return;
        }
        let room = limits.head_bytes.saturating_sub(kept.bytes.len());
        if kept.is_whole && room < bytes.len() {
            kept.is_whole = false;
            kept.bytes.truncate(limits.head_bytes);
            kept.bytes.shrink_to_fit();
        }
        kept.bytes
            .extend_from_slice(&bytes[..bytes.len().min(room)]);
    }
}

/// Result of one output stream.
#[derive(Debug)]
pub struct Finished {
    pub seen_bytes: u64,
    pub dropped_bytes: u64,
    pub captured: Option<Vec<u8>>,
    /// If a copy was requested.
    pub copy: Option<Kept>,
}

/// Descriptor that a pump waits for.
#[derive(Debug, Clone, Copy)]
pub enum Waiting<'pump> {
    Source(BorrowedFd<'pump>),
    Sink(BorrowedFd<'pump>),
}

impl<'pump> Waiting<'pump> {
    /// The event to poll for.
    pub(crate) fn to_poll(self) -> PollFd<'pump> {
        match self {
            Waiting::Source(fd) => PollFd::from_borrowed_fd(fd, PollFlags::IN),
            Waiting::Sink(fd) => PollFd::from_borrowed_fd(fd, PollFlags::OUT),
        }
    }
}

impl OutputPump {
    /// Creates a pump from `source`. It counts and discards bytes beyond `limit_bytes`.
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
            last_byte: None,
        }
    }

    /// Keeps a copy of the stream, or of its start.
    #[must_use]
    pub fn with_copy(mut self, limits: CopyLimits) -> Self {
        self.copy = (limits != CopyLimits::default()).then(|| Copying {
            kept: Kept {
                bytes: Vec::new(),
                is_whole: true,
            },
            limits,
        });
        self
    }

    /// What to poll for; `None` at the end.
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

    /// Moves available bytes without blocking. Returns `false` if nothing moved.
    ///
    /// # Errors
    /// The errno of read(2) or write(2). If the reader has closed its end, this closes the pipe, so
    /// that the body gets EPIPE, and returns no error.
    pub(crate) fn advance(&mut self) -> Result<bool, Errno> {
        if self.written < self.pending.len() {
            return self.flush();
        }
        let Some(source) = &self.source else {
            return Ok(false);
        };
        self.written = 0;
        match read_chunk(source, &mut self.pending)? {
            None => Ok(false),
            Some(0) => {
                self.source = None;
                Ok(true)
            }
            Some(count) => {
                self.apply_limit(count);
                self.flush().map(|_moved| true)
            }
        }
    }

    /// Counts `count` new bytes and truncates them to the limit.
    fn apply_limit(&mut self, count: usize) {
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
            copy.add(&self.pending);
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
                    self.last_byte = self.pending[..self.written].last().copied();
                    Ok(count > 0)
                }
                Err(Errno::AGAIN | Errno::INTR) => Ok(false),
                Err(Errno::PIPE | Errno::CONNRESET | Errno::IO) => {
                    self.discard_rest();
                    Ok(true)
                }
                Err(errno) => Err(errno),
            },
        }
    }

    /// Closes the stream and counts pending bytes as discarded.
    pub(crate) fn discard_rest(&mut self) {
        let rest = self.pending.len() - self.written;
        self.dropped_bytes += u64::try_from(rest).unwrap_or(u64::MAX);
        self.written = self.pending.len();
        self.source = None;
        if let Some(copy) = &mut self.copy {
            copy.kept.is_whole = false;
        }
    }

    /// The last byte that was passed on since the last call, if one was.
    pub(crate) fn take_last_byte(&mut self) -> Option<u8> {
        self.last_byte.take()
    }

    #[must_use]
    pub(crate) fn over_limit(&self) -> bool {
        self.limit_bytes
            .is_some_and(|limit| self.seen_bytes > limit)
    }

    /// Ends the pump and returns its result.
    #[must_use]
    pub fn finish(self) -> Finished {
        let captured = match self.sink {
            Sink::Captured(text) => Some(text),
            Sink::Passed(_) => None,
        };
        let is_whole = self.dropped_bytes == 0;
        let copy = self.copy.map(|copy| Kept {
            is_whole: is_whole && copy.kept.is_whole,
            ..copy.kept
        });
        Finished {
            seen_bytes: self.seen_bytes,
            dropped_bytes: self.dropped_bytes,
            captured,
            copy,
        }
    }
}

/// Copies to the body's standard input.
#[derive(Debug)]
pub struct InputPump {
    source: Option<OwnedFd>,
    sink: Option<OwnedFd>,
    pending: Vec<u8>,
    written: usize,
    /// On a terminal a character marks the end of input.
    end_character: Option<u8>,
}

impl InputPump {
    /// Sends `text` and then the end of input.
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

    /// Copies the caller's standard input `source`. Fails with EBADF if it is closed.
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

    /// What to poll for; `None` at the end.
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

    /// Moves available bytes. Call it when the polled descriptor is ready.
    ///
    /// # Errors
    /// The errno of read(2) or write(2). A body that has closed its input is no error.
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
        self.written = 0;
        if read_chunk(source, &mut self.pending)? == Some(0) {
            self.source = None;
            self.pending.extend(self.end_character);
        }
        Ok(())
    }
}

/// Replaces `pending` by available bytes. Returns their number, 0 at the end, `None` if none is
/// available yet.
pub(crate) fn read_chunk(source: &OwnedFd, pending: &mut Vec<u8>) -> Result<Option<usize>, Errno> {
    pending.clear();
    pending.reserve_exact(CHUNK_BYTES);
    let read = rustix::io::read(source, spare_capacity(pending));
    match read {
        Ok(count) => Ok(Some(count)),
        // A terminal returns EIO instead of end of file.
        Err(Errno::IO) => Ok(Some(0)),
        Err(Errno::AGAIN | Errno::INTR) => Ok(None),
        Err(errno) => Err(errno),
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
    fn bytes_beyond_the_limit_are_counted_and_discarded() {
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
    fn a_copy_has_the_whole_stream_or_its_start() {
        for (whole_bytes, head_bytes, text, expected, is_whole) in [
            (0, 4, "abcd", "abcd", true),
            (0, 4, "abcde", "abcd", false),
            (6, 0, "abcdef", "abcdef", true),
            (6, 0, "abcdefg", "", false),
            (6, 2, "abcdef", "abcdef", true),
            (6, 2, "abcdefgh", "ab", false),
        ] {
            for piece in 1..text.len() {
                let mut copying = Copying {
                    kept: Kept {
                        bytes: Vec::new(),
                        is_whole: true,
                    },
                    limits: CopyLimits {
                        whole_bytes,
                        head_bytes,
                    },
                };
                for bytes in text.as_bytes().chunks(piece) {
                    copying.add(bytes);
                }
                let expected = Kept {
                    bytes: expected.into(),
                    is_whole,
                };
                assert_eq!(copying.kept, expected, "{text} by {piece}");
            }
        }
    }

    #[test]
    fn a_closed_reader_closes_the_stream() {
        let (read, write) = pipe();
        let (gone, sink) = pipe();
        let writer = Writer::new(sink.as_fd()).expect("a writer");
        drop((gone, sink));
        let mut pump = OutputPump::new(read, Sink::Passed(writer), None);
        rustix::io::write(&write, b"abc").expect("written");
        // The test harness ignores SIGPIPE, as the runner does.
        assert!(pump.advance().expect("moved"));
        assert!(pump.waiting().is_none());
        let finished = pump.finish();
        assert_eq!((finished.seen_bytes, finished.dropped_bytes), (3, 3));
        assert_eq!(finished.captured, None);
    }

    #[test]
    fn a_slow_reader_stops_reading_from_the_source() {
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
