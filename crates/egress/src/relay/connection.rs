//! One connection from accept to close: a sequence of stages, each of which can end it.

use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::epoll::EventFlags;
use rustix::io::Errno;
use rustix::net::SendFlags;

use crate::denials::{Attempt, Protocol};
use crate::relay::dial::{Reach, Reached};
use crate::relay::flow::Flow;
use crate::relay::judge::{self, FIRST_BYTES_MAX, Judged, Wanted};
use crate::relay::proxy::{self, Speech};
use crate::relay::shared::Shared;
use crate::relay::slots::{Key, Side, Token};
use spec::denial_reason::DenialReason;
use spec::egress_report::UnreachableCause;

/// How long the first bytes of a connection may take.
pub(super) const FIRST_BYTES_PATIENCE: Duration = Duration::from_secs(5);
/// A DNS connection without queries is closed after this time.
pub(super) const QUESTIONS_PATIENCE: Duration = Duration::from_secs(10);
/// Reads of one step where the input is answered or discarded.
pub(super) const READS_A_STEP: usize = 16;
const DNS_PORT: u16 = 53;

/// What a connection needs after a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stepped {
    /// Wait for an event or the deadline.
    Waits,
    Again,
    Over,
}

/// How a connection arrived.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    /// The body dialled the destination itself.
    Dialled,
    /// The body dialled the proxy and has not sent a request yet.
    Proxy,
    /// The request is complete and not answered yet.
    Asked(Speech),
    /// The client was told that the connection is established.
    Answered,
    /// From outside, to a published port of the body.
    Published(u16),
}

#[derive(Debug)]
pub(super) enum Stage {
    Questions {
        received: Vec<u8>,
    },
    /// The client of the proxy sends its request.
    Greeting {
        received: Vec<u8>,
        greeted: bool,
    },
    /// The first bytes must name the host; a proxy connection is already established.
    First {
        received: Vec<u8>,
        far: Option<OwnedFd>,
    },
    /// The host is resolved and dialled.
    Reach {
        received: Vec<u8>,
        limit: Option<u64>,
        reach: Box<Reach>,
    },
    /// A socket inside the namespace was requested.
    Inside {
        id: i32,
        is_v6: bool,
    },
    Entering {
        socket: OwnedFd,
        is_v6: bool,
    },
    Flow(Box<Flow>),
    /// The final answer was sent; further input is discarded.
    Farewell,
    Over,
}

#[derive(Debug)]
pub(super) struct Connection {
    pub(super) near: OwnedFd,
    pub(super) way: Way,
    pub(super) wanted: Wanted,
    pub(super) port: u16,
    pub(super) stage: Stage,
    pub(super) deadline: Option<Instant>,
    /// Whether the connection is queued for another step.
    pub(super) is_queued: bool,
}

/// The transition to the next stage.
pub(super) enum Next {
    /// Stay in this stage until an event.
    Stay(Stage, Stepped),
    /// Enter another stage immediately.
    Go(Stage),
    Denied(DenialReason),
    /// The address must not be dialled; holds the first such address.
    Private(IpAddr),
    /// Allowed, but the destination is unreachable.
    Unreachable(UnreachableCause),
    /// Close without a reset.
    Closed,
    /// Close with a reset.
    Reset,
}

impl Connection {
    /// A connection that the body dialled itself. `None`: already denied and reset.
    pub(super) fn dialled(
        near: OwnedFd,
        dialled: SocketAddr,
        shared: &mut Shared,
        now: Instant,
    ) -> Option<Self> {
        let port = dialled.port();
        let received = Vec::new();
        let mut connection = Self {
            near,
            way: Way::Dialled,
            wanted: Wanted::at(dialled.ip(), &shared.names),
            port,
            stage: Stage::Over,
            deadline: Some(now + FIRST_BYTES_PATIENCE),
            is_queued: false,
        };
        if port == DNS_PORT {
            connection.stage = Stage::Questions { received };
            connection.deadline = Some(now + QUESTIONS_PATIENCE);
            return Some(connection);
        }
        let refusal = connection.wanted.refusal(port, &shared.settings.allowed);
        if let Some(reason) = refusal {
            connection.deny(None, shared, reason, now);
            reset(&connection.near);
            return None;
        }
        connection.stage = Stage::First {
            received,
            far: None,
        };
        Some(connection)
    }

    pub(super) fn near(&self) -> BorrowedFd<'_> {
        self.near.as_fd()
    }

    /// When to step the connection if no event arrives.
    pub(super) fn deadline(&self) -> Option<Instant> {
        match &self.stage {
            Stage::Reach { reach, .. } => Some(reach.deadline()),
            _ => self.deadline,
        }
    }

    /// Whether all bytes that the body had sent before it ended are forwarded.
    pub(super) fn is_settled(&self) -> bool {
        match &self.stage {
            Stage::Flow(flow) => flow.is_drained(self.side_of_body()),
            Stage::Over => true,
            _ => self.is_published(),
        }
    }

    fn side_of_body(&self) -> Side {
        if self.is_published() {
            Side::Far
        } else {
            Side::Near
        }
    }

    /// Records an event.
    pub(super) fn note(&mut self, side: Side, events: EventFlags) {
        // Every other stage retries its call.
        if let Stage::Flow(flow) = &mut self.stage {
            flow.note(side, events);
        }
    }

    /// Records the traffic, and closes. If the body's data is incomplete, the connection is reset, so
    /// that the peer does not take the data as complete.
    pub(super) fn end(self, shared: &mut Shared) {
        let body = self.side_of_body();
        if let Stage::Flow(flow) = self.stage {
            if flow.is_broken() || !flow.is_drained(body) {
                reset(&self.near);
                reset(flow.far());
            }
            let (sent, received) = flow.end(&mut shared.buffers);
            if !matches!(self.way, Way::Published(_)) {
                shared.ledger.traffic(self.wanted.shown(), sent, received);
            }
        }
    }

    /// Denies, with the answer for a client of the proxy. `found` is an address of the name.
    fn deny_next(
        &self,
        found: Option<IpAddr>,
        shared: &mut Shared,
        reason: DenialReason,
        now: Instant,
    ) -> Option<Vec<u8>> {
        self.deny(found, shared, reason, now);
        self.asked()
            .map(|speech| proxy::denied(speech, &self.wanted.shown(), self.port, reason))
    }

    fn deny(&self, found: Option<IpAddr>, shared: &mut Shared, reason: DenialReason, now: Instant) {
        let (host, address) = match &self.wanted {
            Wanted::Name(name) => (Some(name.to_string()), found),
            Wanted::Address(address) => (None, Some(*address)),
        };
        self.deny_as(host, address, shared, reason, now);
    }

    pub(super) fn deny_as(
        &self,
        host: Option<String>,
        address: Option<IpAddr>,
        shared: &mut Shared,
        reason: DenialReason,
        now: Instant,
    ) {
        let attempt = Attempt {
            protocol: Protocol::Tcp,
            host,
            address,
            port: Some(self.port),
            reason,
        };
        shared.deny(attempt, now);
    }

    /// Advances the connection as far as possible.
    pub(super) fn step(&mut self, shared: &mut Shared, key: Key, now: Instant) -> Stepped {
        loop {
            if let Stage::Flow(flow) = &mut self.stage {
                return flow.turn(&self.near, &mut shared.buffers);
            }
            let next = match std::mem::replace(&mut self.stage, Stage::Over) {
                Stage::Questions { received } => self.questions(received, shared, now),
                Stage::Greeting { received, greeted } => {
                    self.greeting(received, greeted, shared, key, now)
                }
                Stage::First { received, far } => self.first(received, far, shared, key, now),
                Stage::Reach {
                    received,
                    limit,
                    reach,
                } => self.reach(received, limit, reach, shared, now),
                Stage::Inside { id, is_v6 } if !self.is_late(now) => {
                    Next::Stay(Stage::Inside { id, is_v6 }, Stepped::Waits)
                }
                Stage::Inside { .. } => Next::Reset,
                Stage::Entering { socket, is_v6 } => self.enter(socket, is_v6, shared, now),
                Stage::Farewell => self.farewell(shared, now),
                Stage::Flow(_) | Stage::Over => Next::Closed,
            };
            match self.follow(next, shared, now) {
                Some(stepped) => return stepped,
                None => continue,
            }
        }
    }

    /// `None`: continue with the next stage.
    fn follow(&mut self, next: Next, shared: &mut Shared, now: Instant) -> Option<Stepped> {
        let answer = match next {
            Next::Stay(stage, stepped) => {
                self.stage = stage;
                return Some(stepped);
            }
            Next::Go(stage) => {
                self.stage = stage;
                return None;
            }
            Next::Closed => return Some(Stepped::Over),
            Next::Reset => None,
            Next::Denied(reason) => self.deny_next(None, shared, reason, now),
            Next::Private(address) => {
                self.deny_next(Some(address), shared, DenialReason::ResolvesToPrivate, now)
            }
            Next::Unreachable(cause) => {
                let host = self.wanted.shown();
                let answer = self
                    .asked()
                    .map(|speech| proxy::unreachable(speech, &host, self.port, cause));
                shared.ledger.unreachable(host, self.port, cause);
                answer
            }
        };
        match answer {
            Some(answer) => {
                self.stage = self.say_farewell(&answer, now);
                None
            }
            None => {
                reset(&self.near);
                Some(Stepped::Over)
            }
        }
    }

    fn asked(&self) -> Option<Speech> {
        match self.way {
            Way::Asked(speech) => Some(speech),
            Way::Dialled | Way::Proxy | Way::Answered | Way::Published(_) => None,
        }
    }

    pub(super) fn is_late(&self, now: Instant) -> bool {
        self.deadline.is_some_and(|deadline| deadline <= now)
    }

    pub(super) fn begin_reach(
        &mut self,
        received: Vec<u8>,
        limit: Option<u64>,
        shared: &mut Shared,
        key: Key,
        now: Instant,
    ) -> Next {
        let far = Token::Connection(key, Side::Far);
        let reach = Reach::begin(&self.wanted, self.port, far, shared, now);
        Next::Go(Stage::Reach {
            received,
            limit,
            reach: Box::new(reach),
        })
    }

    /// Reads the first bytes, which name the host at some ports.
    fn first(
        &mut self,
        mut received: Vec<u8>,
        far: Option<OwnedFd>,
        shared: &mut Shared,
        key: Key,
        now: Instant,
    ) -> Next {
        let refuse_ech = shared.settings.refuse_ech;
        let judge = |received: &[u8], is_last| {
            judge::first_bytes(received, &self.wanted, self.port, refuse_ech, is_last)
        };
        let mut judged = judge(&received, false);
        if judged == Judged::More {
            let Ok(read) = self.read_more(&mut received, FIRST_BYTES_MAX) else {
                return Next::Closed;
            };
            if read == Read::Ended && received.is_empty() {
                return Next::Closed;
            }
            judged = judge(&received, read == Read::Ended || self.is_late(now));
        }
        match (judged, far) {
            (Judged::More, far) => Next::Stay(Stage::First { received, far }, Stepped::Waits),
            (Judged::Denied(reason), _) => Next::Denied(reason),
            (Judged::Same, Some(far)) => self.begin_flow(far, received, None),
            (Judged::Same, None) => self.begin_reach(received, None, shared, key, now),
        }
    }

    fn reach(
        &mut self,
        received: Vec<u8>,
        limit: Option<u64>,
        mut reach: Box<Reach>,
        shared: &mut Shared,
        now: Instant,
    ) -> Next {
        match reach.turn(shared, now) {
            Reached::Waits => Next::Stay(
                Stage::Reach {
                    received,
                    limit,
                    reach,
                },
                Stepped::Waits,
            ),
            Reached::Denied(reason) => Next::Denied(reason),
            Reached::Private(address) => Next::Private(address),
            Reached::Nobody(cause) => Next::Unreachable(cause),
            Reached::Connected(far) => {
                let Way::Asked(speech) = self.way else {
                    return self.begin_flow(far, received, limit);
                };
                self.way = Way::Answered;
                if !self.say(&proxy::connected(speech)) {
                    return Next::Reset;
                }
                if speech == Speech::Request {
                    return self.begin_flow(far, received, limit);
                }
                self.deadline = Some(now + FIRST_BYTES_PATIENCE);
                Next::Go(Stage::First {
                    received,
                    far: Some(far),
                })
            }
        }
    }

    pub(super) fn begin_flow(&mut self, far: OwnedFd, first: Vec<u8>, limit: Option<u64>) -> Next {
        self.deadline = None;
        // Small writes are not delayed here.
        if rustix::net::sockopt::set_tcp_nodelay(&self.near, true).is_err() {
            return Next::Reset;
        }
        Next::Go(Stage::Flow(Box::new(Flow::new(far, first, limit))))
    }

    /// Returns whether all bytes were sent. Only for short, expected messages.
    pub(super) fn say(&self, bytes: &[u8]) -> bool {
        bytes.is_empty()
            || rustix::net::send(&self.near, bytes, SendFlags::NOSIGNAL) == Ok(bytes.len())
    }

    /// Reads until the read would block or `bytes_max` bytes are buffered.
    pub(super) fn read_more(
        &self,
        received: &mut Vec<u8>,
        bytes_max: usize,
    ) -> Result<Read, Errno> {
        let mut buffer = [0; 4_096];
        while received.len() < bytes_max {
            let room = buffer.len().min(bytes_max - received.len());
            match rustix::io::read(&self.near, &mut buffer[..room]) {
                Ok(0) => return Ok(Read::Ended),
                Ok(read) => received.extend_from_slice(&buffer[..read]),
                Err(Errno::AGAIN) => return Ok(Read::Blocked),
                Err(Errno::INTR) => (),
                Err(errno) => return Err(errno),
            }
        }
        Ok(Read::Full)
    }
}

/// Why reading stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Read {
    Ended,
    Blocked,
    Full,
}

/// Makes close send a reset.
pub(super) fn reset(socket: &OwnedFd) {
    // If this fails, the socket is closed normally: the connection ends in both cases.
    rustix::net::sockopt::set_socket_linger(socket, Some(Duration::ZERO)).unwrap_or_default();
}
