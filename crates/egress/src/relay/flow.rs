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
use crate::relay::connection::Stepped;
use crate::relay::judge::FIRST_BYTES_MAX;
use crate::relay::slots::Side;

/// Size of the copy buffer, in bytes. In measurements it is faster than 64 and 128 KiB, and as fast for
/// one stream as splice(2), which moves the cost to the reader.
pub(super) const SCRATCH_BYTES: usize = 256 << 10;
/// Buffer space that is guaranteed to each direction: 16 MiB for 1,024 directions.
const KEPT_FLOOR_BYTES: usize = 16 << 10;
/// Additional buffer space that all directions share.
const KEPT_SHARED_BYTES: usize = 6 << 20;
/// Memory limit of a run's relay: direction buffers, first bytes that are not judged yet, and the copy
/// buffer.
const MEMORY_BYTES_MAX: usize = 32 << 20;
const _: () = assert!(
    4 * CONNECTIONS_MAX * KEPT_FLOOR_BYTES
        + KEPT_SHARED_BYTES
        + CONNECTIONS_MAX * FIRST_BYTES_MAX
        + SCRATCH_BYTES
        <= MEMORY_BYTES_MAX
);
/// Reads of one step, so that a fast stream does not block the others.
const READS_A_STEP: usize = 4;
/// Bytes that all streams together move in one turn, so that streams do not block the run.
const TURN_BYTES: usize = 16 << 20;

/// Buffers that all connections share.
#[derive(Debug)]
pub(super) struct Buffers {
    pub(super) scratch: Vec<u8>,
    left: usize,
    /// Bytes moved in this turn.
    moved: usize,
}

impl Buffers {
    pub(super) fn new() -> Self {
        Self {
            scratch: vec![0; SCRATCH_BYTES],
            left: KEPT_SHARED_BYTES,
            moved: 0,
        }
    }

    pub(super) fn begin_turn(&mut self) {
        self.moved = 0;
    }

    /// Whether the remaining work is deferred to the next turn.
    pub(super) fn is_spent(&self) -> bool {
        TURN_BYTES <= self.moved
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
    Whole,
    /// The end of the stream has arrived or is imminent: a short read does not mean that the socket is
    /// drained.
    Ending,
    /// The socket has an error; data that it received before can still be read.
    Broken,
}

impl Ready {
    /// The readiness is unknown: every call is tried.
    const UNKNOWN: Self = Self {
        readable: true,
        writable: true,
        health: Health::Ending,
    };

    fn note(&mut self, events: EventFlags) {
        let ends = EventFlags::RDHUP | EventFlags::HUP | EventFlags::ERR;
        self.readable |= events.intersects(EventFlags::IN | ends);
        self.writable |= events.intersects(EventFlags::OUT | EventFlags::HUP | EventFlags::ERR);
        if events.contains(EventFlags::ERR) {
            self.health = Health::Broken;
        } else if events.intersects(ends) {
            self.health = self.health.max(Health::Ending);
        }
    }
}

/// One direction of a connection.
#[derive(Debug, Default)]
struct Direction {
    /// Bytes read from the source and not accepted by the sink yet.
    kept: Vec<u8>,
    /// How many of them the sink has accepted.
    taken: usize,
    /// How much of the shared buffer space this direction uses.
    shared: usize,
    /// How many bytes may still pass, if limited; later bytes are discarded.
    limit: Option<u64>,
    source_ended: bool,
    /// The end of the stream was passed on, or the sink is closed.
    over: bool,
    /// Bytes that the sink has accepted.
    bytes: u64,
}

/// What a direction needs next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Progress {
    /// Wait for an event.
    Waits,
    /// More work is possible now.
    Again,
    /// All bytes and the end of the stream were passed on.
    Ended,
}

/// Which socket failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Broken {
    Source,
    Sink,
}

/// One socket of a flow, and its readiness.
struct End<'flow> {
    socket: &'flow OwnedFd,
    ready: &'flow mut Ready,
}

impl<'flow> End<'flow> {
    fn of(socket: &'flow OwnedFd, ready: &'flow mut Ready) -> Self {
        Self { socket, ready }
    }
}

impl Direction {
    /// Copies available bytes. The end of the source closes only this half of the sink.
    fn pump(
        &mut self,
        source: End<'_>,
        sink: End<'_>,
        buffers: &mut Buffers,
    ) -> Result<Progress, Broken> {
        let (source, source_ready) = (source.socket, source.ready);
        let (sink, sink_ready) = (sink.socket, sink.ready);
        for _ in 0..READS_A_STEP {
            if !self.flush(sink, sink_ready, buffers)? {
                // An end of stream is passed on in order; an error is passed on immediately.
                return if source_ready.health == Health::Broken {
                    Err(Broken::Source)
                } else {
                    Ok(Progress::Waits)
                };
            }
            if self.source_ended {
                close_half(sink).map_err(|_errno| Broken::Sink)?;
                return Ok(Progress::Ended);
            }
            if !source_ready.readable {
                return Ok(Progress::Waits);
            }
            let room = SCRATCH_BYTES.min(KEPT_FLOOR_BYTES + buffers.left);
            let Some(scratch) = buffers.scratch.get_mut(..room) else {
                return Ok(Progress::Waits);
            };
            match rustix::io::read(source, &mut *scratch) {
                Ok(0) => self.source_ended = true,
                Ok(read) => {
                    source_ready.readable = read == room || source_ready.health != Health::Whole;
                    buffers.moved += read;
                    let passed = self.pass(read);
                    // No bytes are buffered, so the sink is not known to be full.
                    let sent = send(sink, &scratch[..passed])?;
                    self.bytes += sent as u64;
                    if sent < passed {
                        sink_ready.writable = false;
                        self.kept = scratch[sent..passed].to_vec();
                        self.shared = self.kept.len().saturating_sub(KEPT_FLOOR_BYTES);
                        buffers.left -= self.shared;
                    }
                }
                Err(Errno::AGAIN) => {
                    source_ready.readable = false;
                    // All data before the end was read: later changes cause events.
                    if source_ready.health == Health::Ending {
                        source_ready.health = Health::Whole;
                    }
                }
                Err(Errno::INTR) => (),
                Err(_) => return Err(Broken::Source),
            }
        }
        Ok(Progress::Again)
    }

    /// How many of `read` bytes may pass.
    fn pass(&mut self, read: usize) -> usize {
        match &mut self.limit {
            None => read,
            Some(left) => {
                let passed = read.min(usize::try_from(*left).unwrap_or(usize::MAX));
                *left -= passed as u64;
                passed
            }
        }
    }

    /// Returns whether the buffer is empty afterwards.
    fn flush(
        &mut self,
        sink: &OwnedFd,
        sink_ready: &mut Ready,
        buffers: &mut Buffers,
    ) -> Result<bool, Broken> {
        while self.taken < self.kept.len() {
            if !sink_ready.writable {
                return Ok(false);
            }
            let sent = send(sink, &self.kept[self.taken..])?;
            self.bytes += sent as u64;
            self.taken += sent;
            // A short write: the sink is full, and an event will report when it is writable.
            sink_ready.writable = self.taken == self.kept.len();
        }
        self.release(buffers);
        Ok(true)
    }

    fn release(&mut self, buffers: &mut Buffers) {
        if !self.kept.is_empty() {
            self.kept = Vec::new();
            self.taken = 0;
            buffers.left += std::mem::take(&mut self.shared);
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
    broken: bool,
}

impl Flow {
    /// `first` are bytes already read from the near side. `limit` is the total number of bytes that may
    /// pass from the near side.
    pub(super) fn new(far: OwnedFd, first: Vec<u8>, limit: Option<u64>) -> Self {
        Self {
            far,
            out: Direction {
                kept: first,
                limit,
                ..Direction::default()
            },
            back: Direction::default(),
            near_ready: Ready::UNKNOWN,
            far_ready: Ready::UNKNOWN,
            broken: false,
        }
    }

    /// Records an event.
    pub(super) fn note(&mut self, side: Side, events: EventFlags) {
        match side {
            Side::Near => self.near_ready.note(events),
            Side::Far => self.far_ready.note(events),
        }
    }

    /// Copies available bytes in both directions. If the result is over with `broken`, both sockets must
    /// be reset: each peer then sees the failure as it would without a relay.
    pub(super) fn turn(&mut self, near: &OwnedFd, buffers: &mut Buffers) -> Stepped {
        let mut again = false;
        if !self.out.over {
            let source = End::of(near, &mut self.near_ready);
            let sink = End::of(&self.far, &mut self.far_ready);
            match self.out.pump(source, sink, buffers) {
                Ok(Progress::Waits) => (),
                Ok(Progress::Again) => again = true,
                Ok(Progress::Ended) => self.out.over = true,
                Err(Broken::Source) => return self.break_off(),
                // Data that the other side sent before it failed is still passed on.
                Err(Broken::Sink) => {
                    self.out.over = true;
                    self.out.release(buffers);
                    self.far_ready = Ready::UNKNOWN;
                    self.broken = true;
                }
            }
        }
        if !self.back.over {
            let source = End::of(&self.far, &mut self.far_ready);
            let sink = End::of(near, &mut self.near_ready);
            match self.back.pump(source, sink, buffers) {
                Ok(Progress::Waits) => (),
                Ok(Progress::Again) => again = true,
                Ok(Progress::Ended) => self.back.over = true,
                Err(Broken::Source) => return self.break_off(),
                Err(Broken::Sink) => {
                    self.back.over = true;
                    self.back.release(buffers);
                    self.near_ready = Ready::UNKNOWN;
                    self.broken = true;
                    again |= !self.out.over;
                }
            }
        }
        if self.out.over && self.back.over {
            return Stepped::Over;
        }
        if again {
            Stepped::Again
        } else {
            Stepped::Waits
        }
    }

    fn break_off(&mut self) -> Stepped {
        self.broken = true;
        Stepped::Over
    }

    /// Whether one side failed, so that the other must be reset.
    pub(super) fn is_broken(&self) -> bool {
        self.broken
    }

    pub(super) fn far(&self) -> &OwnedFd {
        &self.far
    }

    /// Whether all bytes received from this side are passed on.
    pub(super) fn is_drained(&self, side: Side) -> bool {
        match side {
            Side::Near => self.out.over,
            Side::Far => self.back.over,
        }
    }

    /// Releases its shared memory; returns the bytes sent out and received.
    pub(super) fn end(mut self, buffers: &mut Buffers) -> (u64, u64) {
        self.out.release(buffers);
        self.back.release(buffers);
        (self.out.bytes, self.back.bytes)
    }
}

/// Returns how many bytes were accepted; 0 if the call would block.
fn send(sink: &OwnedFd, bytes: &[u8]) -> Result<usize, Broken> {
    if bytes.is_empty() {
        return Ok(0);
    }
    loop {
        match rustix::net::send(sink.as_fd(), bytes, SendFlags::NOSIGNAL) {
            Ok(sent) => return Ok(sent),
            Err(Errno::AGAIN) => return Ok(0),
            Err(Errno::INTR) => (),
            Err(_) => return Err(Broken::Sink),
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
