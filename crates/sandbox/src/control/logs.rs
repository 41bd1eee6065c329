//! What commands wrote that were started with --detach: the end of each of their streams.

use std::collections::VecDeque;
use std::fmt;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::pipe::PipeFlags;

use super::Refusal;
use crate::supervise::streams::read_chunk;
use spec::base64::Base64;
use spec::sandboxes::{LogAnswer, LogPart, LogRequest};

/// Most commands whose output is kept.
const LOGS_MAX: usize = 64;
/// Of each stream.
const KEPT_BYTES_MAX: usize = 128 << 10;
/// Most reads from a stream when its command has ended; what it left running may go on to write.
const LAST_READS_MAX: usize = 32;

/// Masks a piece of a stream. The second argument says that it is the last one.
pub type Mask = Box<dyn FnMut(&mut Vec<u8>, bool)>;

/// Makes the mask of each stream that is kept.
pub struct OutputMasks(pub Box<dyn Fn() -> Mask>);

impl fmt::Debug for OutputMasks {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("OutputMasks")
    }
}

#[derive(Debug)]
pub(super) struct Logs {
    masks: OutputMasks,
    /// By the ids of their commands.
    logs: Vec<Log>,
}

#[derive(Debug)]
struct Log {
    command: u64,
    has_ended: bool,
    /// Standard output and standard error.
    streams: [Stream; 2],
}

struct Stream {
    /// `None`: it is closed.
    source: Option<OwnedFd>,
    mask: Mask,
    kept: VecDeque<u8>,
    /// Number of bytes up to the end of `kept`.
    end: u64,
}

impl fmt::Debug for Stream {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Stream({} bytes)", self.end)
    }
}

impl Logs {
    pub(super) fn new(masks: OutputMasks) -> Self {
        Self {
            masks,
            logs: Vec::new(),
        }
    }

    /// Keeps the output of a command from now on. Returns its ends of the pipes, or `None` if too many
    /// others still write, or no descriptor is left.
    pub(super) fn begin(&mut self, command: u64) -> Result<Option<[OwnedFd; 2]>, Errno> {
        if self.logs.len() == LOGS_MAX {
            let Some(over) = self.logs.iter().position(Log::is_over) else {
                return Ok(None);
            };
            self.logs.remove(over);
        }
        let pipes = self
            .stream()
            .and_then(|stdout| Ok((stdout, self.stream()?)));
        let (stdout, stderr) = match pipes {
            Ok(pipes) => pipes,
            Err(Errno::MFILE | Errno::NFILE) => return Ok(None),
            Err(errno) => return Err(errno),
        };
        self.logs.push(Log {
            command,
            has_ended: false,
            streams: [stdout.0, stderr.0],
        });
        Ok(Some([stdout.1, stderr.1]))
    }

    /// A stream, and the command's end of its pipe.
    fn stream(&self) -> Result<(Stream, OwnedFd), Errno> {
        let (source, sink) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC)?;
        rustix::io::ioctl_fionbio(&source, true)?;
        let stream = Stream {
            source: Some(source),
            mask: (self.masks.0)(),
            kept: VecDeque::new(),
            end: 0,
        };
        Ok((stream, sink))
    }

    /// The command was not executed.
    pub(super) fn forget(&mut self, command: u64) {
        self.logs.retain(|log| log.command != command);
    }

    /// The descriptors that [`Logs::read`] waits for, each with its number until the next turn.
    pub(super) fn sources(&self) -> impl Iterator<Item = (BorrowedFd<'_>, usize)> {
        let streams = self.logs.iter().flat_map(|log| &log.streams);
        let numbered = (0..).zip(streams);
        numbered.filter_map(|(number, stream)| Some((stream.source.as_ref()?.as_fd(), number)))
    }

    /// Reads what is there from the stream with this number.
    ///
    /// # Errors
    /// The errno of read(2).
    pub(super) fn read(&mut self, number: usize) -> Result<(), Errno> {
        let mut streams = self.logs.iter_mut().flat_map(|log| &mut log.streams);
        match streams.nth(number) {
            Some(stream) => stream.read().map(|_has_more| ()),
            None => Ok(()),
        }
    }

    /// The first process of a command has ended: reads what it wrote.
    ///
    /// # Errors
    /// The errno of read(2).
    pub(super) fn end(&mut self, command: u64) -> Result<(), Errno> {
        let Some(log) = self.logs.iter_mut().find(|log| log.command == command) else {
            return Ok(());
        };
        log.has_ended = true;
        for stream in &mut log.streams {
            for _ in 0..LAST_READS_MAX {
                if !stream.read()? {
                    break;
                }
            }
        }
        Ok(())
    }

    /// What a client asks for; `None`: it waits for what is new.
    pub(super) fn answer(&self, request: &LogRequest) -> Option<Result<LogAnswer, Refusal>> {
        let log = match request.command {
            Some(command) => self.logs.iter().find(|log| log.command == command),
            None => self.logs.last(),
        };
        let Some(log) = log else {
            return Some(Err(Refusal::NoLog));
        };
        let [stdout, stderr] = &log.streams;
        let has_news = stdout.end > request.from[0] || stderr.end > request.from[1];
        if request.follows && !has_news && !log.has_ended {
            return None;
        }
        Some(Ok(LogAnswer {
            command: log.command,
            has_ended: log.has_ended,
            streams: [stdout.part(request.from[0]), stderr.part(request.from[1])],
        }))
    }
}

impl Log {
    fn is_over(&self) -> bool {
        self.has_ended && self.streams.iter().all(|stream| stream.source.is_none())
    }
}

impl Stream {
    /// Returns whether there may be more.
    fn read(&mut self) -> Result<bool, Errno> {
        let Some(source) = &self.source else {
            return Ok(false);
        };
        let mut piece = Vec::new();
        let is_last = match read_chunk(source, &mut piece)? {
            None => return Ok(false),
            Some(count) => count == 0,
        };
        if is_last {
            self.source = None;
        }
        (self.mask)(&mut piece, is_last);
        self.keep(&piece);
        Ok(!is_last)
    }

    fn keep(&mut self, piece: &[u8]) {
        self.end = self.end.saturating_add(length(piece.len()));
        let piece = &piece[piece.len().saturating_sub(KEPT_BYTES_MAX)..];
        let excess = (self.kept.len() + piece.len()).saturating_sub(KEPT_BYTES_MAX);
        self.kept.drain(..excess.min(self.kept.len()));
        self.kept.extend(piece);
    }

    /// What is kept from `from` on.
    fn part(&self, from: u64) -> LogPart {
        let start = self.end - length(self.kept.len());
        let skipped = usize::try_from(from.saturating_sub(start)).unwrap_or(usize::MAX);
        let bytes: Vec<u8> = self.kept.iter().copied().skip(skipped).collect();
        LogPart {
            end: self.end,
            missed: start.saturating_sub(from),
            base64: Base64(&bytes).to_string(),
        }
    }
}

fn length(bytes: usize) -> u64 {
    u64::try_from(bytes).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn logs() -> Logs {
        Logs::new(OutputMasks(Box::new(|| Box::new(|_piece, _is_last| ()))))
    }

    fn ask(logs: &Logs, command: Option<u64>, from: u64, follows: bool) -> Option<LogAnswer> {
        let request = LogRequest {
            command,
            from: [from, 0],
            follows,
        };
        logs.answer(&request).map(|answer| answer.expect("known"))
    }

    fn write(sink: &OwnedFd, bytes: &[u8]) {
        assert_eq!(rustix::io::write(sink, bytes), Ok(bytes.len()));
    }

    #[test]
    fn the_end_of_a_stream_is_kept_and_the_rest_counted() {
        let mut logs = logs();
        let [stdout, _stderr] = logs.begin(1).expect("made").expect("kept");
        for _ in 0..64 {
            write(&stdout, &[b'x'; 4096]);
            logs.read(0).expect("read");
        }
        write(&stdout, b"end");
        logs.end(1).expect("read");
        let answer = ask(&logs, None, 0, false).expect("an answer");
        let [part, _] = answer.streams;
        let bytes = spec::base64::decode(part.base64.as_bytes()).expect("bytes");
        assert_eq!(bytes.len(), KEPT_BYTES_MAX);
        assert!(bytes.ends_with(b"xend"));
        assert_eq!(
            (part.end, part.missed),
            (64 * 4096 + 3, 64 * 4096 + 3 - 131_072)
        );
        assert!(answer.has_ended);
        // A position that no client can have is as the end.
        let [part, _] = ask(&logs, None, u64::MAX, false)
            .expect("an answer")
            .streams;
        assert_eq!((&*part.base64, part.missed), ("", 0));
    }

    #[test]
    fn a_follower_waits_for_what_is_new_or_for_the_end() {
        let mut logs = logs();
        let [stdout, stderr] = logs.begin(4).expect("made").expect("kept");
        assert!(ask(&logs, Some(4), 0, true).is_none());
        write(&stdout, b"a");
        logs.read(0).expect("read");
        let answer = ask(&logs, Some(4), 0, true).expect("an answer");
        assert_eq!(
            (&*answer.streams[0].base64, answer.has_ended),
            ("YQ==", false)
        );
        assert!(ask(&logs, Some(4), 1, true).is_none());
        write(&stdout, b"b");
        logs.end(4).expect("read");
        let answer = ask(&logs, Some(4), 1, true).expect("an answer");
        assert_eq!(
            (&*answer.streams[0].base64, answer.has_ended),
            ("Yg==", true)
        );
        assert!(ask(&logs, Some(4), 2, true).expect("an answer").has_ended);
        let unknown = LogRequest {
            command: Some(3),
            from: [0; 2],
            follows: true,
        };
        assert_eq!(logs.answer(&unknown), Some(Err(Refusal::NoLog)));
        drop(stderr);
    }

    #[test]
    fn the_oldest_log_that_is_over_makes_room_and_without_one_nothing_is_kept() {
        let mut logs = logs();
        let last = length(LOGS_MAX);
        let mut ends: Vec<_> = (1..=last)
            .map(|id| logs.begin(id).expect("made").expect("kept"))
            .collect();
        assert!(logs.begin(last + 1).expect("no error").is_none());
        // Its first process has ended, and another one may write.
        logs.end(1).expect("read");
        assert!(logs.begin(last + 1).expect("no error").is_none());
        ends.remove(1);
        logs.end(2).expect("read");
        assert!(logs.begin(last + 1).expect("made").is_some());
        let request = |command| LogRequest {
            command: Some(command),
            from: [0; 2],
            follows: false,
        };
        assert_eq!(logs.answer(&request(2)), Some(Err(Refusal::NoLog)));
        assert!(matches!(logs.answer(&request(1)), Some(Ok(_))));
        logs.forget(last + 1);
        assert!(logs.begin(last + 2).expect("made").is_some());
    }
}
