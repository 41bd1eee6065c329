//! Bytes from one side of a connection to the other: copied when they come, kept only where the
//! other side does not take them.

use std::os::fd::{AsFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{SendFlags, Shutdown};

/// Reads of one turn: a fast stream does not keep the others waiting.
const READS_A_TURN: usize = 8;

/// One direction of a connection.
#[derive(Debug, Default)]
pub(super) struct Direction {
    /// Taken from the source and not yet taken by the sink.
    kept: Vec<u8>,
    /// How many of them the sink has taken.
    taken: usize,
    source_ended: bool,
    sink_told: bool,
    /// Bytes that the sink has taken.
    pub(super) bytes: u64,
}

/// What is to be done about a direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Progress {
    /// Wait for an event.
    Waits,
    /// There is more to do at once.
    Again,
    /// Everything was taken and the end was passed on.
    Ended,
}

impl Direction {
    /// A direction that has bytes already: what was read to look at it.
    pub(super) fn with(kept: Vec<u8>) -> Self {
        Self {
            kept,
            ..Self::default()
        }
    }

    /// Moves what there is. The end of the source closes only this half of the sink.
    ///
    /// # Errors
    /// The errno of recv(2) or send(2): the connection is broken.
    pub(super) fn pump(
        &mut self,
        source: &OwnedFd,
        sink: &OwnedFd,
        scratch: &mut [u8],
    ) -> Result<Progress, Errno> {
        for _ in 0..READS_A_TURN {
            if !self.flush(sink)? {
                return Ok(Progress::Waits);
            }
            if self.source_ended {
                if !self.sink_told {
                    close_half(sink)?;
                    self.sink_told = true;
                }
                return Ok(Progress::Ended);
            }
            match rustix::io::read(source, &mut *scratch) {
                Ok(0) => self.source_ended = true,
                Ok(read) => {
                    let sent = send(sink, &scratch[..read])?;
                    self.bytes += sent as u64;
                    self.kept.extend_from_slice(&scratch[sent..read]);
                }
                Err(Errno::AGAIN) => return Ok(Progress::Waits),
                Err(Errno::INTR) => (),
                Err(errno) => return Err(errno),
            }
        }
        Ok(Progress::Again)
    }

    /// Whether nothing is kept afterwards.
    fn flush(&mut self, sink: &OwnedFd) -> Result<bool, Errno> {
        while self.taken < self.kept.len() {
            let sent = send(sink, &self.kept[self.taken..])?;
            if sent == 0 {
                return Ok(false);
            }
            self.bytes += sent as u64;
            self.taken += sent;
        }
        self.kept.clear();
        self.taken = 0;
        Ok(true)
    }
}

/// How many bytes were taken; 0 where none is at the moment.
fn send(sink: &OwnedFd, bytes: &[u8]) -> Result<usize, Errno> {
    loop {
        match rustix::net::send(sink.as_fd(), bytes, SendFlags::NOSIGNAL) {
            Ok(sent) => return Ok(sent),
            Err(Errno::AGAIN) => return Ok(0),
            Err(Errno::INTR) => (),
            Err(errno) => return Err(errno),
        }
    }
}

fn close_half(sink: &OwnedFd) -> Result<(), Errno> {
    match rustix::net::shutdown(sink, Shutdown::Write) {
        // The other side is gone already: it has seen the end.
        Ok(()) | Err(Errno::NOTCONN) => Ok(()),
        Err(errno) => Err(errno),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read as _, Write as _};
    use std::os::unix::net::UnixStream;

    fn pair() -> (UnixStream, OwnedFd) {
        let (one, other) = UnixStream::pair().expect("a pair");
        other.set_nonblocking(true).expect("set");
        (one, other.into())
    }

    #[test]
    fn bytes_that_the_sink_does_not_take_are_kept_and_the_end_comes_last() {
        let (mut body, source) = pair();
        let (mut upstream, sink) = pair();
        let sent: Vec<u8> = (0..=u8::MAX).cycle().take(4_000_000).collect();
        let wanted = sent.clone();
        let writer = std::thread::spawn(move || body.write_all(&sent).expect("written"));
        let mut direction = Direction::with(b"first".to_vec());
        let mut scratch = vec![0; 64 << 10];
        // Nobody reads: at some time everything waits.
        while direction.pump(&source, &sink, &mut scratch).expect("moves") == Progress::Again {}
        let reader = std::thread::spawn(move || {
            let mut all = Vec::new();
            upstream.read_to_end(&mut all).expect("read");
            all
        });
        while direction.pump(&source, &sink, &mut scratch).expect("moves") != Progress::Ended {
            std::thread::yield_now();
        }
        writer.join().expect("written");
        let all = reader.join().expect("read");
        assert_eq!(all.len() as u64, direction.bytes);
        assert_eq!(&all[..5], b"first");
        assert!(all[5..] == wanted[..], "the same bytes in the same order");
    }
}
