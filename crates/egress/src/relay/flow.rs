//! Copies bytes between the two sides of a connection. Bytes are buffered only if the receiver does not
//! accept them.
//!
//! Both sockets are edge-triggered, so their readiness is recorded here and cleared only when a call
//! would block.

use std::os::fd::{AsFd, OwnedFd};

use rustix::event::epoll::EventFlags;
use rustix::io::Errno;
use rustix::net::{SendFlags, Shutdown};

use crate::relay::CONNECTIONS_MAX;
use crate::relay::connection::Step;
use crate::relay::host_check::FIRST_BYTES_MAX;
use crate::relay::slots::Side;

/// Size of the copy buffer, in bytes. In measurements it is faster than 64 and 128 KiB, and as fast for
/// one stream as splice(2), which moves the cost to the reader.
pub(super) const SCRATCH_BYTES: usize = 256 << 10;
/// Buffer space that is guaranteed to each direction: 16 MiB for 1,024 directions.
const BUFFER_RESERVED_BYTES: usize = 16 << 10;
/// Additional buffer space that all directions share.
const BUFFER_SHARED_BYTES: usize = 6 << 20;
/// Memory limit of a run's relay: direction buffers, first bytes that are not checked yet, and the copy
/// buffer.
const MEMORY_BYTES_MAX: usize = 32 << 20;
const _: () = assert!(
    4 * CONNECTIONS_MAX * BUFFER_RESERVED_BYTES
        + BUFFER_SHARED_BYTES
        + CONNECTIONS_MAX * FIRST_BYTES_MAX
        + SCRATCH_BYTES
        <= MEMORY_BYTES_MAX
);
/// Maximum number of reads in one step, so that a fast stream does not block the others.
const READS_PER_STEP: usize = 4;
/// Bytes that all streams together copy in one turn, so that streams do not block the run.
const TURN_BYTES_MAX: usize = 16 << 20;

/// Buffers that all connections share.
#[derive(Debug)]
pub(super) struct Buffers {
    pub(super) scratch: Vec<u8>,
    /// Unused shared buffer space.
    shared_left: usize,
    /// Bytes copied in this turn.
    copied: usize,
}

impl Buffers {
    pub(super) fn new() -> Self {
        Self {
            scratch: vec![0; SCRATCH_BYTES],
            shared_left: BUFFER_SHARED_BYTES,
            copied: 0,
        }
    }

    pub(super) fn begin_turn(&mut self) {
        self.copied = 0;
    }

    /// Whether the remaining work is deferred to the next turn.
    pub(super) fn is_spent(&self) -> bool {
        self.copied >= TURN_BYTES_MAX
    }
}

/// The recorded readiness of one socket.
#[derive(Debug, Clone, Copy)]
struct Ready {
    readable: bool,
    writable: bool,
    health: Health,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Health {
    Open,
    /// The end of the stream has arrived or is imminent: a short read does not mean that the socket is
    /// drained.
    Ending,
    /// The socket has an error; data that it received before can still be read.
    Failed,
}

impl Ready {
    /// The readiness is unknown: every call is tried.
    const UNKNOWN: Self = Self {
        readable: true,
        writable: true,
        health: Health::Ending,
    };

    fn record(&mut self, events: EventFlags) {
        let ends = EventFlags::RDHUP | EventFlags::HUP | EventFlags::ERR;
        self.readable |= events.intersects(EventFlags::IN | ends);
        self.writable |= events.intersects(EventFlags::OUT | EventFlags::HUP | EventFlags::ERR);
        if events.contains(EventFlags::ERR) {
            self.health = Health::Failed;
        } else if events.intersects(ends) {
            self.health = self.health.max(Health::Ending);
        }
    }
}

/// One direction of a connection.
#[derive(Debug, Default)]
struct Direction {
    /// Bytes read from the source and not accepted by the sink yet.
    buffer: Vec<u8>,
    /// How many of them the sink has accepted since.
    flushed: usize,
    /// How much of the shared buffer space this direction uses.
    shared: usize,
    /// How many bytes may still pass, if limited; later bytes are discarded.
    limit: Option<u64>,
    source_ended: bool,
    /// The end of the stream was passed on, or the sink has failed.
    is_done: bool,
    /// Bytes that the sink has accepted.
    bytes: u64,
}

/// What a direction needs next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Progress {
    /// Wait for an event.
    Wait,
    /// More work is possible now.
    Again,
    /// All bytes and the end of the stream were passed on.
    Ended,
}

/// Which socket failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Failed {
    Source,
    Sink,
}

/// One socket of a flow, and its readiness.
struct End<'flow> {
    socket: &'flow OwnedFd,
    ready: &'flow mut Ready,
}

impl Direction {
    /// Copies available bytes. The end of the source closes only this half of the sink.
    fn pump(
        &mut self,
        source: End<'_>,
        sink: &mut End<'_>,
        buffers: &mut Buffers,
    ) -> Result<Progress, Failed> {
        for _ in 0..READS_PER_STEP {
            if !self.flush(sink, buffers)? {
                // An end of stream is passed on in order; an error is passed on immediately.
                return if source.ready.health == Health::Failed {
                    Err(Failed::Source)
                } else {
                    Ok(Progress::Wait)
                };
            }
            if self.source_ended {
                close_half(sink.socket).map_err(|_errno| Failed::Sink)?;
                return Ok(Progress::Ended);
            }
            if !source.ready.readable {
                return Ok(Progress::Wait);
            }
            let room = SCRATCH_BYTES.min(BUFFER_RESERVED_BYTES + buffers.shared_left);
            let Some(scratch) = buffers.scratch.get_mut(..room) else {
                return Ok(Progress::Wait);
            };
            match rustix::io::read(source.socket, &mut *scratch) {
                Ok(0) => self.source_ended = true,
                Ok(read) => {
                    source.ready.readable = read == room || source.ready.health != Health::Open;
                    buffers.copied += read;
                    let passed = self.take_from_limit(read);
                    // No bytes are buffered, so the sink is not known to be full.
                    let sent = send(sink.socket, &scratch[..passed])?;
                    self.bytes += sent as u64;
                    if sent < passed {
                        sink.ready.writable = false;
                        self.buffer = scratch[sent..passed].to_vec();
                        self.shared = self.buffer.len().saturating_sub(BUFFER_RESERVED_BYTES);
                        buffers.shared_left -= self.shared;
                    }
                }
                Err(Errno::AGAIN) => {
                    source.ready.readable = false;
                    // All data before the end was read: later changes cause events.
                    if source.ready.health == Health::Ending {
                        source.ready.health = Health::Open;
                    }
                }
                Err(Errno::INTR) => (),
                Err(_) => return Err(Failed::Source),
            }
        }
        Ok(Progress::Again)
    }

    /// How many of `read` bytes may pass under the limit.
    fn take_from_limit(&mut self, read: usize) -> usize {
        match &mut self.limit {
            None => read,
            Some(left) => {
                let passed = read.min(usize::try_from(*left).unwrap_or(usize::MAX));
                *left -= passed as u64;
                passed
            }
        }
    }

    /// Sends the buffer. Returns whether it is empty afterwards.
    fn flush(&mut self, sink: &mut End<'_>, buffers: &mut Buffers) -> Result<bool, Failed> {
        while self.flushed < self.buffer.len() {
            if !sink.ready.writable {
                return Ok(false);
            }
            let sent = send(sink.socket, &self.buffer[self.flushed..])?;
            self.bytes += sent as u64;
            self.flushed += sent;
            // A short write: the sink is full, and an event will report when it is writable.
            sink.ready.writable = self.flushed == self.buffer.len();
        }
        self.release(buffers);
        Ok(true)
    }

    fn release(&mut self, buffers: &mut Buffers) {
        if !self.buffer.is_empty() {
            self.buffer = Vec::new();
            self.flushed = 0;
            buffers.shared_left += std::mem::take(&mut self.shared);
        }
    }
}

#[derive(Debug)]
pub(super) struct Flow {
    far: OwnedFd,
    out: Direction,
    back: Direction,
    near_ready: Ready,
    far_ready: Ready,
    is_broken: bool,
}

impl Flow {
    /// `first` are bytes already read from the near side. `limit` is the total number of bytes that may
    /// pass from the near side.
    pub(super) fn new(far: OwnedFd, first: Vec<u8>, limit: Option<u64>) -> Self {
        Self {
            far,
            out: Direction {
                buffer: first,
                limit,
                ..Direction::default()
            },
            back: Direction::default(),
            near_ready: Ready::UNKNOWN,
            far_ready: Ready::UNKNOWN,
            is_broken: false,
        }
    }

    /// Records an event.
    pub(super) fn record_event(&mut self, side: Side, events: EventFlags) {
        match side {
            Side::Near => self.near_ready.record(events),
            Side::Far => self.far_ready.record(events),
        }
    }

    /// Copies available bytes in both directions. If the result is [`Step::Done`] and the flow is broken,
    /// both sockets must be reset: each peer then sees the failure as it would without a relay.
    pub(super) fn turn(&mut self, near: &OwnedFd, buffers: &mut Buffers) -> Step {
        let mut again = false;
        for side in [Side::Near, Side::Far] {
            let near = End {
                socket: near,
                ready: &mut self.near_ready,
            };
            let far = End {
                socket: &self.far,
                ready: &mut self.far_ready,
            };
            let (direction, source, mut sink) = match side {
                Side::Near => (&mut self.out, near, far),
                Side::Far => (&mut self.back, far, near),
            };
            if direction.is_done {
                continue;
            }
            match direction.pump(source, &mut sink, buffers) {
                Ok(Progress::Wait) => (),
                Ok(Progress::Again) => again = true,
                Ok(Progress::Ended) => direction.is_done = true,
                Err(Failed::Source) => {
                    self.is_broken = true;
                    return Step::Done;
                }
                // Data that the failed side sent before is still passed on.
                Err(Failed::Sink) => {
                    direction.is_done = true;
                    direction.release(buffers);
                    *sink.ready = Ready::UNKNOWN;
                    self.is_broken = true;
                    again = true;
                }
            }
        }
        if self.out.is_done && self.back.is_done {
            Step::Done
        } else if again {
            Step::Again
        } else {
            Step::Wait
        }
    }

    /// Whether one side failed, so that the other must be reset.
    pub(super) fn is_broken(&self) -> bool {
        self.is_broken
    }

    pub(super) fn far(&self) -> &OwnedFd {
        &self.far
    }

    /// Whether all bytes received from this side are passed on.
    pub(super) fn is_drained(&self, side: Side) -> bool {
        match side {
            Side::Near => self.out.is_done,
            Side::Far => self.back.is_done,
        }
    }

    /// Releases the shared buffer space. Returns the bytes sent and received.
    pub(super) fn end(mut self, buffers: &mut Buffers) -> (u64, u64) {
        self.out.release(buffers);
        self.back.release(buffers);
        (self.out.bytes, self.back.bytes)
    }
}

/// Returns how many bytes were accepted; 0 if the call would block.
fn send(sink: &OwnedFd, bytes: &[u8]) -> Result<usize, Failed> {
    if bytes.is_empty() {
        return Ok(0);
    }
    loop {
        match rustix::net::send(sink.as_fd(), bytes, SendFlags::NOSIGNAL) {
            Ok(sent) => return Ok(sent),
            Err(Errno::AGAIN) => return Ok(0),
            Err(Errno::INTR) => (),
            Err(_) => return Err(Failed::Sink),
        }
    }
}

fn close_half(sink: &OwnedFd) -> Result<(), Errno> {
    match rustix::net::shutdown(sink, Shutdown::Write) {
        // The peer has already disconnected and has seen the end.
        Ok(()) | Err(Errno::NOTCONN) => Ok(()),
        Err(errno) => Err(errno),
    }
}
