//! Bytes from one side of a connection to the other: copied when they come, kept only where the
//! other side does not take them.
//!
//! Both sockets are watched for changes and not for states, so what is known of them is noted here
//! and forgotten only when a call says that it would block.

use std::os::fd::{AsFd, OwnedFd};

use rustix::event::epoll::EventFlags;
use rustix::io::Errno;
use rustix::net::{SendFlags, Shutdown};

use crate::relay::CONNECTIONS_MAX;
use crate::relay::connection::Stepped;
use crate::relay::judge::FIRST_BYTES_MAX;
use crate::relay::slots::Side;

/// Bytes that are copied at once. Measured against 64 and 128 KiB and against splice(2): as fast
/// for one stream as splice, which costs the reader what it saves here, and faster than less.
pub(super) const SCRATCH_BYTES: usize = 256 << 10;
/// What every direction may keep: 1,024 directions keep 16 MiB.
const KEPT_FLOOR_BYTES: usize = 16 << 10;
/// What all directions together may keep beyond that.
const KEPT_SHARED_BYTES: usize = 6 << 20;
/// What a run's relay holds at most: what directions keep, what is read before it is judged, and
/// what is copied through.
const MEMORY_BYTES_MAX: usize = 32 << 20;
const _: () = assert!(
    4 * CONNECTIONS_MAX * KEPT_FLOOR_BYTES
        + KEPT_SHARED_BYTES
        + CONNECTIONS_MAX * FIRST_BYTES_MAX
        + SCRATCH_BYTES
        <= MEMORY_BYTES_MAX
);
/// Reads of one step: a fast stream does not keep the others waiting.
const READS_A_STEP: usize = 4;
/// Bytes that all streams together move in one turn: streams do not keep the run waiting.
const TURN_BYTES: usize = 16 << 20;

/// Memory that all connections share.
#[derive(Debug)]
pub(super) struct Buffers {
    pub(super) scratch: Vec<u8>,
    left: usize,
    /// Bytes that were moved in this turn.
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

    /// Whether what is left to do is left to the next turn.
    pub(super) fn is_spent(&self) -> bool {
        TURN_BYTES <= self.moved
    }
}

/// What is known of one socket.
#[derive(Debug, Clone, Copy)]
struct Ready {
    readable: bool,
    writable: bool,
    health: Health,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Health {
    Whole,
    /// Its end has come, or is about to: a read that is short does not mean that nothing is left.
    Ending,
    /// It is broken; what it had received can still be read.
    Broken,
}

impl Ready {
    /// Nothing is known: everything is tried.
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
    /// Taken from the source and not yet taken by the sink.
    kept: Vec<u8>,
    /// How many of them the sink has taken.
    taken: usize,
    /// How much of the shared memory this takes.
    shared: usize,
    /// How many bytes may still pass, where that is known; what comes after them is dropped.
    limit: Option<u64>,
    source_ended: bool,
    /// The end was passed on, or nothing more can be.
    over: bool,
    /// Bytes that the sink has taken.
    bytes: u64,
}

/// What is to be done about a direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Progress {
    /// Wait for an event.
    Waits,
    /// There is more to do at once.
    Again,
    /// Everything was taken and the end was passed on.
    Ended,
}

/// Which socket is broken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Broken {
    Source,
    Sink,
}

/// One socket of a flow, and what is known of it.
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
    /// Moves what there is. The end of the source closes only this half of the sink.
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
                // The end of a source is told in its order; that it broke is told at once.
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
                    // Nothing is kept, so the sink has not said that it is full.
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
                    // Nothing came before this: what happens from now on is told.
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

    /// How many of so many bytes may pass.
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

    /// Whether nothing is kept afterwards.
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
            // Less than all: the sink is full, and will say when it is not.
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
    /// `first`: what was read of the near side already. `limit`: how many bytes of the near side
    /// may pass at all.
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

    /// Notes what an event says.
    pub(super) fn note(&mut self, side: Side, events: EventFlags) {
        match side {
            Side::Near => self.near_ready.note(events),
            Side::Far => self.far_ready.note(events),
        }
    }

    /// Moves what there is, in both directions. When it is over and `broken` came with it, both
    /// sockets are to be reset: what broke one side is told the other as it would see it without
    /// a relay between them.
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
                // What the other side sent before it broke is still passed on.
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

    /// Whether one side is to be told that the other broke.
    pub(super) fn is_broken(&self) -> bool {
        self.broken
    }

    pub(super) fn far(&self) -> &OwnedFd {
        &self.far
    }

    /// Whether everything that came from this side has been passed on.
    pub(super) fn is_drained(&self, side: Side) -> bool {
        match side {
            Side::Near => self.out.over,
            Side::Far => self.back.over,
        }
    }

    /// Gives its memory back; how many bytes went out and came back.
    pub(super) fn end(mut self, buffers: &mut Buffers) -> (u64, u64) {
        self.out.release(buffers);
        self.back.release(buffers);
        (self.out.bytes, self.back.bytes)
    }
}

/// How many bytes were taken; 0 where none is at the moment.
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
        // The other side is gone already: it has seen the end.
        Ok(()) | Err(Errno::NOTCONN) => Ok(()),
        Err(errno) => Err(errno),
    }
}
