//! One connection, from its first packet to its last: stages, each of which can end it.

use std::net::SocketAddr;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::epoll::EventFlags;
use rustix::io::Errno;
use rustix::net::{SendFlags, Shutdown};

use crate::egress::denials::{Attempt, Protocol, Reason};
use crate::egress::dns::QUERY_BYTES_MAX;
use crate::egress::http_head::HEAD_BYTES_MAX;
use crate::egress::relay::dial::{Reach, Reached, is_connected};
use crate::egress::relay::flow::Flow;
use crate::egress::relay::judge::{self, FIRST_BYTES_MAX, HTTPS_PORT, Judged, Wanted};
use crate::egress::relay::proxy::{self, Heard, Speech, Wish};
use crate::egress::relay::shared::Shared;
use crate::egress::relay::slots::{EDGE, Key, Side, Token};

/// How long the first bytes of a connection may take.
const FIRST_BYTES_PATIENCE: Duration = Duration::from_secs(5);
/// A connection for questions that nobody asks is closed after this.
const QUESTIONS_PATIENCE: Duration = Duration::from_secs(10);
/// How long a port inside may take to answer.
const INSIDE_PATIENCE: Duration = Duration::from_secs(10);
/// How long a client may take to read why it was refused.
const FAREWELL_PATIENCE: Duration = Duration::from_secs(2);
/// Reads of one step where what is read is answered or thrown away.
const READS_A_STEP: usize = 16;
const DNS_PORT: u16 = 53;

/// What is to be done about a connection after a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stepped {
    /// Wait for an event or the deadline.
    Waits,
    /// Step again soon.
    Again,
    /// It is over.
    Over,
}

/// How a connection came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    /// The body dialled whom it wants.
    Dialled,
    /// The body dialled the proxy and has not said yet what it wants.
    Proxy,
    /// It has said it, and has not been answered.
    Asked(Speech),
    /// It was told that the connection stands.
    Answered,
    /// From outside, to a port of the body's.
    Published(u16),
}

#[derive(Debug)]
enum Stage {
    /// Questions for names.
    Questions {
        received: Vec<u8>,
    },
    /// The proxy's client says what it wants.
    Greeting {
        received: Vec<u8>,
        greeted: bool,
    },
    /// The first bytes must name the host; the proxy's connection stands already.
    First {
        received: Vec<u8>,
        far: Option<OwnedFd>,
    },
    /// The host is looked up and dialled.
    Reach {
        received: Vec<u8>,
        limit: Option<u64>,
        reach: Box<Reach>,
    },
    /// A socket inside was asked for.
    Inside {
        id: i32,
        is_v6: bool,
    },
    /// It connects.
    Entering {
        socket: OwnedFd,
        is_v6: bool,
    },
    /// Bytes flow.
    Flow(Box<Flow>),
    /// The last word was said; what still comes is thrown away.
    Farewell,
    Over,
}

/// One connection.
#[derive(Debug)]
pub(super) struct Connection {
    near: OwnedFd,
    way: Way,
    wanted: Wanted,
    port: u16,
    stage: Stage,
    deadline: Option<Instant>,
    /// Whether it waits to be stepped again.
    pub(super) is_queued: bool,
}

/// Where a stage leads.
enum Next {
    /// This stage, until something happens.
    Stay(Stage, Stepped),
    /// Another stage, at once.
    Go(Stage),
    Denied(Reason),
    /// Allowed, and nobody answers outside.
    Unreachable,
    /// Closed as it stands.
    Closed,
    /// Closed with a reset.
    Reset,
}

impl Connection {
    /// What the body dialled itself. `None`: denied already, and reset.
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
            connection.deny(shared, reason, now);
            reset(&connection.near);
            return None;
        }
        connection.stage = Stage::First {
            received,
            far: None,
        };
        Some(connection)
    }

    /// A client of the proxy.
    pub(super) fn of_proxy(near: OwnedFd, dialled: SocketAddr, now: Instant) -> Self {
        Self {
            near,
            way: Way::Proxy,
            wanted: Wanted::Address(dialled.ip()),
            port: dialled.port(),
            stage: Stage::Greeting {
                received: Vec::new(),
                greeted: false,
            },
            deadline: Some(now + FIRST_BYTES_PATIENCE),
            is_queued: false,
        }
    }

    /// A connection from outside to `port` of the body's.
    pub(super) fn published(
        near: OwnedFd,
        caller: SocketAddr,
        port: u16,
        shared: &mut Shared,
        now: Instant,
    ) -> Self {
        Self {
            near,
            way: Way::Published(port),
            wanted: Wanted::Address(caller.ip()),
            port,
            stage: Stage::Inside {
                id: shared.ask(port, false),
                is_v6: false,
            },
            deadline: Some(now + INSIDE_PATIENCE),
            is_queued: false,
        }
    }

    pub(super) fn near(&self) -> BorrowedFd<'_> {
        self.near.as_fd()
    }

    pub(super) fn is_published(&self) -> bool {
        matches!(self.way, Way::Published(_))
    }

    /// When to step it though nothing happened.
    pub(super) fn deadline(&self) -> Option<Instant> {
        match &self.stage {
            Stage::Reach { reach, .. } => Some(reach.deadline()),
            _ => self.deadline,
        }
    }

    /// Whether nothing is on its way that the body had sent when it ended.
    pub(super) fn is_settled(&self) -> bool {
        let body = if self.is_published() {
            Side::Far
        } else {
            Side::Near
        };
        match &self.stage {
            Stage::Flow(flow) => flow.is_drained(body),
            Stage::Over => true,
            _ => self.is_published(),
        }
    }

    /// Notes what an event says.
    pub(super) fn note(&mut self, side: Side, events: EventFlags) {
        // Every other stage tries what it waits for.
        if let Stage::Flow(flow) = &mut self.stage {
            flow.note(side, events);
        }
    }

    /// Takes note of what flowed, and closes.
    pub(super) fn end(self, shared: &mut Shared) {
        if let Stage::Flow(flow) = self.stage {
            if flow.is_broken() {
                reset(&self.near);
                reset(flow.far());
            }
            let (sent, received) = flow.end(&mut shared.buffers);
            if !matches!(self.way, Way::Published(_)) {
                shared.ledger.traffic(self.wanted.shown(), sent, received);
            }
        }
    }

    fn deny(&self, shared: &mut Shared, reason: Reason, now: Instant) {
        let (host, address) = match &self.wanted {
            Wanted::Name(name) => (Some(name.to_string()), None),
            Wanted::Address(address) => (None, Some(*address)),
        };
        self.deny_as(host, address, shared, reason, now);
    }

    fn deny_as(
        &self,
        host: Option<String>,
        address: Option<std::net::IpAddr>,
        shared: &mut Shared,
        reason: Reason,
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

    /// Goes as far as it can.
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

    /// `None`: on with the next stage.
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
            Next::Denied(reason) => {
                self.deny(shared, reason, now);
                self.asked()
                    .map(|speech| proxy::denied(speech, &self.wanted.shown(), self.port, reason))
            }
            Next::Unreachable => {
                let host = self.wanted.shown();
                let answer = self
                    .asked()
                    .map(|speech| proxy::unreachable(speech, &host, self.port));
                shared.ledger.unreachable(host, self.port);
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

    fn is_late(&self, now: Instant) -> bool {
        self.deadline.is_some_and(|deadline| deadline <= now)
    }

    /// Messages with their length in two bytes before each (RFC 7766).
    fn questions(&mut self, mut received: Vec<u8>, shared: &mut Shared, now: Instant) -> Next {
        for _ in 0..READS_A_STEP {
            let Ok(read) = self.read_more(&mut received, 2 + QUERY_BYTES_MAX) else {
                return Next::Closed;
            };
            let mut rest = received.as_slice();
            while let Some((length, after)) = rest.split_first_chunk::<2>() {
                let length = usize::from(u16::from_be_bytes(*length));
                if QUERY_BYTES_MAX < length {
                    return Next::Reset;
                }
                let Some((message, after)) = after.split_at_checked(length) else {
                    break;
                };
                if let Some(answer) = shared.answer(message, now) {
                    let length = u16::try_from(answer.len()).unwrap_or(0);
                    let framed = [&length.to_be_bytes(), answer.as_slice()].concat();
                    // Answers are short and the body asked: a full buffer is its own doing.
                    if !self.say(&framed) {
                        return Next::Reset;
                    }
                }
                rest = after;
                self.deadline = Some(now + QUESTIONS_PATIENCE);
            }
            received.drain(..received.len() - rest.len());
            match read {
                Read::Ended => return Next::Closed,
                Read::Blocked if self.is_late(now) => return Next::Closed,
                Read::Blocked => {
                    return Next::Stay(Stage::Questions { received }, Stepped::Waits);
                }
                Read::Full => (),
            }
        }
        Next::Stay(Stage::Questions { received }, Stepped::Again)
    }

    /// What a client of the proxy wants.
    fn greeting(
        &mut self,
        mut received: Vec<u8>,
        mut greeted: bool,
        shared: &mut Shared,
        key: Key,
        now: Instant,
    ) -> Next {
        let Ok(read) = self.read_more(&mut received, HEAD_BYTES_MAX) else {
            return Next::Closed;
        };
        loop {
            match proxy::hear(&received, greeted) {
                Heard::More if read != Read::Blocked || self.is_late(now) => return Next::Reset,
                Heard::More => {
                    return Next::Stay(Stage::Greeting { received, greeted }, Stepped::Waits);
                }
                Heard::Greeting(used) => {
                    received.drain(..used);
                    greeted = true;
                    if !self.say(&proxy::SOCKS_METHOD) {
                        return Next::Reset;
                    }
                }
                Heard::Refused(answer) => return Next::Go(self.say_farewell(&answer, now)),
                Heard::Wish(wish) => return self.wish(wish, shared, key, now),
            }
        }
    }

    fn wish(&mut self, wish: Wish, shared: &mut Shared, key: Key, now: Instant) -> Next {
        let Wish {
            speech,
            wanted,
            port,
            first,
            limit,
        } = wish;
        self.way = Way::Asked(speech);
        self.port = port;
        let refused = match wanted {
            Ok(Wanted::Address(address)) => {
                self.wanted = Wanted::at(address, &shared.names);
                None
            }
            Ok(wanted) => {
                self.wanted = wanted;
                None
            }
            Err(bytes) => Some((proxy::shown(&bytes), Reason::NameNotAllowed)),
        };
        let refused = match refused {
            Some(refused) => Some(refused),
            None => match self.wanted.refusal(port, &shared.settings.allowed) {
                Some(reason) => return Next::Denied(reason),
                // As a transparent connection to 443 that does not speak TLS.
                None if speech == Speech::Request && port == HTTPS_PORT => {
                    return Next::Denied(Reason::NotTls);
                }
                None => shared.admit(&self.wanted).err(),
            },
        };
        if let Some((host, reason)) = refused {
            let answer = proxy::denied(speech, &host, port, reason);
            self.deny_as(Some(host), None, shared, reason, now);
            return Next::Go(self.say_farewell(&answer, now));
        }
        self.begin_reach(first, limit, shared, key, now)
    }

    fn begin_reach(
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

    /// The bytes that say to whom the body speaks, where the port is one where they do.
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
            Reached::Nobody => Next::Unreachable,
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

    fn begin_flow(&mut self, far: OwnedFd, first: Vec<u8>, limit: Option<u64>) -> Next {
        self.deadline = None;
        // What one side wrote at once is not held back here.
        if rustix::net::sockopt::set_tcp_nodelay(&self.near, true).is_err() {
            return Next::Reset;
        }
        Next::Go(Stage::Flow(Box::new(Flow::new(far, first, limit))))
    }

    /// The id of the socket inside that is waited for.
    pub(super) fn waits_for(&self) -> Option<i32> {
        match self.stage {
            Stage::Inside { id, .. } => Some(id),
            _ => None,
        }
    }

    /// The socket inside, or why there is none; the connection is stepped afterwards.
    pub(super) fn let_in(&mut self, socket: Result<OwnedFd, Errno>, shared: &mut Shared, key: Key) {
        let Stage::Inside { is_v6, .. } = self.stage else {
            return;
        };
        let far = Token::Connection(key, Side::Far);
        let watched = socket.and_then(|socket| {
            rustix::io::ioctl_fionbio(&socket, true)?;
            rustix::net::sockopt::set_tcp_nodelay(&socket, true)?;
            shared.watch(far).add(socket.as_fd(), EDGE)?;
            Ok(socket)
        });
        self.stage = match watched {
            Ok(socket) => Stage::Entering { socket, is_v6 },
            Err(_) => self.other_family(is_v6, shared),
        };
    }

    /// The body may listen on ::1 alone.
    fn other_family(&mut self, is_v6: bool, shared: &mut Shared) -> Stage {
        match self.way {
            Way::Published(port) if !is_v6 => Stage::Inside {
                id: shared.ask(port, true),
                is_v6: true,
            },
            _ => {
                reset(&self.near);
                Stage::Over
            }
        }
    }

    fn enter(&mut self, socket: OwnedFd, is_v6: bool, shared: &mut Shared, now: Instant) -> Next {
        match is_connected(&socket) {
            Ok(true) => self.begin_flow(socket, Vec::new(), None),
            Ok(false) if self.is_late(now) => Next::Reset,
            Ok(false) => Next::Stay(Stage::Entering { socket, is_v6 }, Stepped::Waits),
            Err(_) => Next::Go(self.other_family(is_v6, shared)),
        }
    }

    /// Says the last word. What the client still sends is read, since closing before that would
    /// take the word back.
    fn say_farewell(&mut self, answer: &[u8], now: Instant) -> Stage {
        let said = self.say(answer)
            && matches!(
                rustix::net::shutdown(&self.near, Shutdown::Write),
                Ok(()) | Err(Errno::NOTCONN)
            );
        if !said {
            reset(&self.near);
            return Stage::Over;
        }
        self.deadline = Some(now + FAREWELL_PATIENCE);
        Stage::Farewell
    }

    fn farewell(&mut self, shared: &mut Shared, now: Instant) -> Next {
        if self.is_late(now) {
            return Next::Closed;
        }
        for _ in 0..READS_A_STEP {
            match rustix::io::read(&self.near, &mut *shared.buffers.scratch) {
                Ok(0) => return Next::Closed,
                Ok(_) | Err(Errno::INTR) => (),
                Err(Errno::AGAIN) => return Next::Stay(Stage::Farewell, Stepped::Waits),
                Err(_) => return Next::Closed,
            }
        }
        Next::Stay(Stage::Farewell, Stepped::Again)
    }

    /// Whether all of it was taken. Only for what is short and expected.
    fn say(&self, bytes: &[u8]) -> bool {
        bytes.is_empty()
            || rustix::net::send(&self.near, bytes, SendFlags::NOSIGNAL) == Ok(bytes.len())
    }

    /// Reads until it would block or `bytes_max` are there.
    fn read_more(&self, received: &mut Vec<u8>, bytes_max: usize) -> Result<Read, Errno> {
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

/// Why no more was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Read {
    Ended,
    Blocked,
    Full,
}

/// Closing sends a reset from now on.
pub(super) fn reset(socket: &OwnedFd) {
    // Where it fails an ordinary close is left: the connection is over in either way.
    rustix::net::sockopt::set_socket_linger(socket, Some(Duration::ZERO)).unwrap_or_default();
}
