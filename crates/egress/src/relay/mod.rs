//! The relay: one event loop for all outbound traffic of the body's network namespace, and for inbound
//! connections to published ports.
//!
//! The supervisor holds sockets of that namespace (created and passed by the child) and sockets of its
//! own. A connection goes through stages, each of which can end it with a denial: its destination maps to
//! a name, its port is allowed, its first bytes name the same host (443 and 80), the name has a public
//! address outside, that address is dialled. Then bytes are copied. Denied connections are reset; clients
//! of the proxy get a reason.

mod client;
mod connection;
mod dial;
mod entering;
mod flow;
mod guard;
mod judge;
mod ledger;
mod log;
mod lookup;
mod proxy;
mod questions;
mod shared;
mod slots;
mod terms;

pub use terms::{Ask, Outcome, Published, Settings, Sockets, Traffic, Unreachable};

use std::collections::{HashMap, VecDeque};
use std::mem::MaybeUninit;
use std::net::SocketAddr;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::{Timespec, epoll};
use rustix::io::Errno;
use rustix::net::SocketFlags;

use crate::denials::{Attempt, Protocol};
use crate::names::Names;
use crate::relay::connection::{Connection, Stepped};
use crate::relay::flow::Buffers;
use crate::relay::guard::Guard;
use crate::relay::judge::Wanted;
use crate::relay::ledger::Ledger;
use crate::relay::log::Numbers;
use crate::relay::questions::Pace;
use crate::relay::shared::{QuestionIds, Shared};
use crate::relay::slots::{EDGE, Key, LEVEL, Side, Slots, Token};
use spec::denial_reason::DenialReason;
use spec::network::Capture;
use sys::dropped::dropped;

/// Maximum number of concurrent connections of the body; published ports have the same limit of their
/// own.
pub(crate) const CONNECTIONS_MAX: usize = 256;
/// Maximum number of outside look-ups in one second, with two queries each; further look-ups wait. The
/// value exceeds the number of connections, so a body that opens all of them at once does not wait.
const LOOKUPS_A_SECOND: u32 = 500;
/// Connections accepted in one round.
const ACCEPTS_A_ROUND: usize = 64;
/// Maximum number of rounds of one turn; other work of the caller waits for the end of the turn.
const ROUNDS_A_TURN: usize = 8;
/// Maximum number of rounds over one socket during the final drain: far more than its queue holds. A
/// process that survives could fill the queue indefinitely.
const DRAIN_ROUNDS_MAX: u32 = 10_000;
/// Events of one round.
const EVENTS_A_ROUND: usize = 128;
const DNS_PORT: u16 = 53;
/// Pause of accepting after no descriptor was available.
const PAUSE: Duration = Duration::from_millis(100);

/// The event loop of one run.
#[derive(Debug)]
pub struct Relay {
    shared: Shared,
    sockets: Sockets,
    doors: Vec<Door>,
    slots: Slots,
    /// Number of open connections: of the body, and to published ports.
    open: [usize; 2],
    /// Connections with remaining work that cause no event.
    again: Vec<Key>,
    /// No connection has an earlier deadline.
    earliest: Option<Instant>,
    /// Accepting is paused until then.
    paused_until: Option<Instant>,
    /// Whether the events of accepting sockets are enabled.
    listens: bool,
    numbers: Numbers,
    started: Instant,
    has_ended: bool,
}

/// A published port; its listener is closed when the body ends.
#[derive(Debug)]
struct Door {
    listener: Option<OwnedFd>,
    host_port: u16,
    body_port: u16,
    connections: u64,
}

impl Relay {
    /// Takes ownership of the sockets. Without sockets of the body, only published ports are served.
    ///
    /// # Errors
    /// The errno of epoll_create1(2), epoll_ctl(2), or of socket(2) for the route queries.
    pub fn new(
        sockets: Option<Sockets>,
        published: Vec<Published>,
        settings: Settings,
        now: Instant,
    ) -> Result<Self, Errno> {
        let guard = match &sockets {
            Some(_) => Some(Guard::new(settings.private_ranges.clone())?),
            None => None,
        };
        let shared = Shared {
            epoll: epoll::create(epoll::CreateFlags::CLOEXEC)?,
            ids: QuestionIds::new(settings.seed),
            settings,
            names: Names::default(),
            ledger: Ledger::new(now),
            pace: Pace::new(questions::QUESTIONS_A_SECOND, now),
            lookups: Pace::new(LOOKUPS_A_SECOND, now),
            guard,
            buffers: Buffers::new(),
            asks: VecDeque::new(),
            last_ask: 0,
            known: HashMap::new(),
        };
        let relay = Self {
            shared,
            sockets: sockets.unwrap_or(Sockets {
                capture: Capture::Tproxy,
                listeners: Vec::new(),
                proxies: Vec::new(),
                questions: Vec::new(),
                log: None,
            }),
            doors: published.into_iter().map(Door::from).collect(),
            slots: Slots::default(),
            open: [0, 0],
            again: Vec::new(),
            earliest: None,
            paused_until: None,
            listens: true,
            numbers: Numbers::default(),
            started: now,
            has_ended: false,
        };
        for (token, socket) in relay.accepting() {
            relay.shared.watch(token).add(socket.as_fd(), LEVEL)?;
        }
        for (socket, place) in relay.sockets.questions.iter().zip(0..) {
            let watch = relay.shared.watch(Token::Questions(place));
            watch.add(socket.as_fd(), LEVEL)?;
        }
        if let Some(log) = &relay.sockets.log {
            relay.shared.watch(Token::Log).add(log.as_fd(), LEVEL)?;
        }
        Ok(relay)
    }

    /// Readable when [`Relay::turn`] has work.
    #[must_use]
    pub fn as_fd(&self) -> BorrowedFd<'_> {
        self.shared.epoll.as_fd()
    }

    /// When to call [`Relay::turn`] if the descriptor does not become readable; a time in the past if
    /// work is pending.
    #[must_use]
    pub fn deadline(&self) -> Option<Instant> {
        if !self.again.is_empty() {
            return Some(self.started);
        }
        match (self.earliest, self.paused_until) {
            (Some(one), Some(other)) => Some(one.min(other)),
            (one, other) => one.or(other),
        }
    }

    /// Does all pending work without blocking.
    ///
    /// # Errors
    /// The errno of epoll_wait(2). An error of one connection ends only that connection.
    pub fn turn(&mut self, now: Instant) -> Result<(), Errno> {
        self.shared.buffers.begin_turn();
        let mut room = [const { MaybeUninit::uninit() }; EVENTS_A_ROUND];
        for _ in 0..ROUNDS_A_TURN {
            let at_once = Timespec::default();
            let (events, _) = match epoll::wait(&self.shared.epoll, &mut room, Some(&at_once)) {
                Ok(events) => events,
                Err(Errno::INTR) => continue,
                Err(errno) => return Err(errno),
            };
            let idle = events.is_empty() && self.again.is_empty();
            let again = std::mem::take(&mut self.again);
            for event in events {
                self.take(event, now);
            }
            let mut again = again.into_iter();
            while !self.shared.buffers.is_spent()
                && let Some(key) = again.next()
            {
                if let Some(connection) = self.slots.get(key) {
                    connection.is_queued = false;
                }
                self.step(key, now);
            }
            // Connections without a turn go before those that had one.
            self.again.splice(..0, again);
            if idle || self.shared.buffers.is_spent() {
                break;
            }
        }
        self.resume_after_pause(now)?;
        self.step_those_that_are_late(now);
        Ok(())
    }

    fn take(&mut self, event: &epoll::Event, now: Instant) {
        let token = Token::of(event.data.u64());
        match token {
            Token::Listener(_) | Token::Proxy(_) | Token::Published(_) => {
                self.accept(token, now);
            }
            // If more queries are available, the next round reports the socket again.
            Token::Questions(index) => drop(self.answer_questions(index, now)),
            Token::Log => drop(self.read_log(now)),
            Token::Connection(key, side) => {
                if let Some(connection) = self.slots.get(key) {
                    let flags = event.flags;
                    connection.note(side, flags);
                    if !self.shared.buffers.is_spent() {
                        self.step(key, now);
                    } else if !std::mem::replace(&mut connection.is_queued, true) {
                        self.again.push(key);
                    }
                }
            }
        }
    }

    fn step(&mut self, key: Key, now: Instant) {
        let Some(connection) = self.slots.get(key) else {
            return;
        };
        match connection.step(&mut self.shared, key, now) {
            Stepped::Over => self.close(key),
            Stepped::Again => {
                if !std::mem::replace(&mut connection.is_queued, true) {
                    self.again.push(key);
                }
            }
            Stepped::Waits => {
                if let Some(deadline) = connection.deadline() {
                    self.earliest = Some(self.earliest.map_or(deadline, |at| at.min(deadline)));
                }
            }
        }
    }

    fn close(&mut self, key: Key) {
        if let Some(connection) = self.slots.remove(key) {
            let open = &mut self.open[usize::from(connection.is_published())];
            *open = open.saturating_sub(1);
            connection.end(&mut self.shared);
        }
    }

    /// Iterates over all connections only if one of them may be past its deadline.
    fn step_those_that_are_late(&mut self, now: Instant) {
        if self.earliest.is_none_or(|earliest| now < earliest) {
            return;
        }
        let late: Vec<Key> = self
            .slots
            .iter()
            .filter(|(_, connection)| connection.deadline().is_some_and(|at| at <= now))
            .map(|(key, _)| key)
            .collect();
        for key in late {
            self.step(key, now);
        }
        let deadlines = self.slots.iter();
        self.earliest = deadlines
            .filter_map(|(_, connection)| connection.deadline())
            .min();
    }

    /// The next request for a socket of the body's namespace. Call after each [`Relay::turn`] and
    /// [`Relay::answered`] until it returns `None`.
    pub fn next_ask(&mut self) -> Option<Ask> {
        self.shared.asks.pop_front()
    }

    /// Takes the answer to an [`Ask`]: the socket, connected or connecting, or the errno.
    pub fn answered(&mut self, id: i32, socket: Result<OwnedFd, Errno>, now: Instant) {
        let waiting = self
            .slots
            .iter()
            .find(|(_, connection)| connection.waits_for() == Some(id))
            .map(|(key, _)| key);
        // No match: the client has disconnected or timed out, and the socket is closed.
        if let Some(key) = waiting
            && let Some(connection) = self.slots.get(key)
        {
            connection.let_in(socket, &mut self.shared, key);
            self.step(key, now);
        }
    }

    /// All processes of the body have ended: data that they sent is still forwarded, and no inbound
    /// connection is accepted.
    pub fn body_has_ended(&mut self, now: Instant) {
        self.has_ended = true;
        self.shared.asks.clear();
        for door in &mut self.doors {
            door.listener = None;
        }
        let waiting: Vec<Key> = self
            .slots
            .iter()
            .filter(|(_, connection)| connection.waits_for().is_some())
            .map(|(key, _)| key)
            .collect();
        for key in waiting {
            self.close(key);
        }
        self.drain(now);
    }

    /// Drains the queues of the body's sockets; nothing is added to them any more.
    fn drain(&mut self, now: Instant) {
        let tokens: Vec<Token> = self.accepting().map(|(token, _)| token).collect();
        for token in tokens {
            let mut rounds = 0..DRAIN_ROUNDS_MAX;
            // A pause ends the loop: no descriptor is available for the remaining connections.
            while self.paused_until.is_none() && rounds.next().is_some() && self.accept(token, now)
            {
            }
        }
        let questions = u32::try_from(self.sockets.questions.len()).unwrap_or(0);
        for index in 0..questions {
            let mut rounds = 0..DRAIN_ROUNDS_MAX;
            while rounds.next().is_some() && self.answer_questions(index, now) {}
        }
        let mut rounds = 0..DRAIN_ROUNDS_MAX;
        while rounds.next().is_some() && self.read_log(now) {}
    }

    /// Whether all data that the body had sent before it ended is forwarded.
    #[must_use]
    pub fn is_settled(&self) -> bool {
        let mut connections = self.slots.iter();
        self.has_ended && connections.all(|(_, connection)| connection.is_settled())
    }

    /// Closes all sockets of the namespace: an open descriptor would keep it alive.
    #[must_use]
    pub fn finish(mut self, now: Instant) -> Outcome {
        self.drain(now);
        let all: Vec<Key> = self.slots.iter().map(|(key, _)| key).collect();
        for key in all {
            self.close(key);
        }
        let mut outcome = self.shared.ledger.outcome;
        // If the kernel does not return a drop count, the sequence numbers remain as the source.
        let lost = |socket: &OwnedFd| u64::from(dropped(socket).unwrap_or(0));
        outcome.lost_questions = self.sockets.questions.iter().map(lost).sum();
        let logs = self.sockets.log.iter();
        outcome.lost_datagrams = logs.map(lost).sum::<u64>().max(self.numbers.missing());
        outcome.published = self
            .doors
            .iter()
            .map(|door| (door.host_port, door.body_port, door.connections))
            .collect();
        outcome
    }

    /// All accepting sockets.
    fn accepting(&self) -> impl Iterator<Item = (Token, &OwnedFd)> {
        let listeners = self.sockets.listeners.iter().zip(0..);
        let proxies = self.sockets.proxies.iter().zip(0..);
        let doors = self.doors.iter().zip(0..);
        listeners
            .map(|(socket, place)| (Token::Listener(place), socket))
            .chain(proxies.map(|(socket, place)| (Token::Proxy(place), socket)))
            .chain(doors.filter_map(|(door, place)| {
                Some((Token::Published(place), door.listener.as_ref()?))
            }))
    }

    fn listener(&self, token: Token) -> Option<&OwnedFd> {
        match token {
            Token::Listener(place) => self.sockets.listeners.get(place as usize),
            Token::Proxy(place) => self.sockets.proxies.get(place as usize),
            Token::Published(place) => self.doors.get(place as usize)?.listener.as_ref(),
            Token::Questions(_) | Token::Log | Token::Connection(..) => None,
        }
    }

    /// Returns whether more connections may be pending.
    fn accept(&mut self, token: Token, now: Instant) -> bool {
        for _ in 0..ACCEPTS_A_ROUND {
            let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
            let Some(listener) = self.listener(token) else {
                return false;
            };
            match rustix::net::accept_with(listener, flags) {
                Ok(near) => self.admit(token, near, now),
                Err(Errno::AGAIN) => return false,
                // The connection has already been aborted.
                Err(Errno::INTR | Errno::CONNABORTED | Errno::PROTO) => (),
                // No descriptor or memory: the pending connection would cause an event again immediately.
                Err(_) => {
                    self.paused_until = Some(now + PAUSE);
                    return false;
                }
            }
        }
        true
    }

    /// Disables the events of accepting sockets during a pause and enables them afterwards.
    fn resume_after_pause(&mut self, now: Instant) -> Result<(), Errno> {
        if self.paused_until.is_some_and(|until| until <= now) {
            self.paused_until = None;
        }
        let listens = self.paused_until.is_none();
        if listens != std::mem::replace(&mut self.listens, listens) {
            let when = if listens {
                LEVEL
            } else {
                epoll::EventFlags::empty()
            };
            for (token, socket) in self.accepting() {
                self.shared.watch(token).change(socket.as_fd(), when)?;
            }
        }
        Ok(())
    }

    fn admit(&mut self, token: Token, near: OwnedFd, now: Instant) {
        let own_end = rustix::net::getsockname(&near).and_then(SocketAddr::try_from);
        let Ok(own_end) = own_end else {
            connection::reset(&near);
            return;
        };
        let is_published = matches!(token, Token::Published(_));
        let is_full = CONNECTIONS_MAX <= self.open[usize::from(is_published)];
        if is_full {
            connection::reset(&near);
            if !is_published {
                self.deny_for_want_of_room(own_end, now);
            }
            return;
        }
        let connection = match token {
            Token::Proxy(_) => Connection::of_proxy(near, own_end, now),
            Token::Published(place) => {
                let Some(door) = self.doors.get_mut(place as usize) else {
                    return;
                };
                door.connections += 1;
                Connection::published(near, own_end, door.body_port, &mut self.shared, now)
            }
            _ => match Connection::dialled(near, own_end, &mut self.shared, now) {
                Some(connection) => connection,
                None => return,
            },
        };
        self.open[usize::from(is_published)] += 1;
        let key = self.slots.insert(connection);
        let watched = self.slots.get(key).map(|connection| {
            let near = Token::Connection(key, Side::Near);
            self.shared.watch(near).add(connection.near(), EDGE)
        });
        match watched {
            Some(Ok(())) => self.step(key, now),
            Some(Err(_)) | None => self.close(key),
        }
    }

    fn deny_for_want_of_room(&mut self, dialled: SocketAddr, now: Instant) {
        let wanted = Wanted::at(dialled.ip(), &self.shared.names);
        let port = dialled.port();
        // A destination that is denied anyway keeps its usual denial reason.
        let refusal = wanted
            .refusal(port, &self.shared.settings.allowed)
            .filter(|_| port != DNS_PORT && !dialled.ip().is_loopback());
        let (host, address) = match wanted {
            Wanted::Name(name) => (Some(name.to_string()), None),
            Wanted::Address(address) => (None, Some(address)),
        };
        let attempt = Attempt {
            protocol: Protocol::Tcp,
            host,
            address,
            port: Some(port),
            reason: refusal.unwrap_or(DenialReason::Limit),
        };
        self.shared.deny(attempt, now);
    }
}

impl From<Published> for Door {
    fn from(published: Published) -> Self {
        let Published {
            listener,
            host_port,
            body_port,
        } = published;
        Self {
            listener: Some(listener),
            host_port,
            body_port,
            connections: 0,
        }
    }
}
