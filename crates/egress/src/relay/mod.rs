//! The relay: one event loop for all outbound traffic of the body's network namespace, and for inbound
//! connections to published ports. It runs in a process without rights, because it parses what the body
//! sends.
//!
//! It holds sockets of that namespace (created and passed by the child) and the listeners of published
//! ports. A connection goes through stages, each of which can end it with a denial: its destination maps
//! to a name, its port is allowed, its first bytes name the same host (443 and 80), the supervisor dials
//! the name ([`crate::dialler`]) and passes the socket. Then bytes are copied. Denied connections are
//! reset; clients of the proxy get a reason.

mod connection;
pub(crate) mod dns_queries;
mod flow;
mod host_check;
mod interface;
mod ledger;
mod log;
mod proxy;
mod proxy_client;
mod published;
mod replies;
mod shared;
mod slots;

pub use interface::{Published, Rules, Sockets};

use std::mem::MaybeUninit;
use std::net::SocketAddr;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::{Timespec, epoll};
use rustix::io::Errno;
use rustix::net::SocketFlags;

use crate::denials::Protocol;
use crate::link::Request;
use crate::relay::connection::{Connection, Step};
use crate::relay::log::SequenceNumbers;
use crate::relay::shared::Shared;
use crate::relay::slots::{Key, Side, Slots, Token};
use crate::socket::{EDGE, LEVEL, wait};
use spec::body_network::QUESTION_PORT;
use spec::denial_reason::DenialReason;
use spec::network::Capture;
use spec::parse_permit::ParsePermit;
use sys::dropped::dropped;

/// Maximum number of concurrent connections of the body. Connections to published ports have a separate
/// limit of the same size.
pub(crate) const CONNECTIONS_MAX: usize = 256;
/// Maximum number of concurrent connections whose buffers the kernel may grow to several MiB: that
/// memory counts against the host, not against the body.
const LARGE_BUFFERS_MAX: usize = 4;
/// Maximum number of connections accepted in one round.
const ACCEPTS_PER_ROUND: usize = 64;
/// Maximum number of rounds of one turn; other work of the caller waits for the end of the turn.
const ROUNDS_PER_TURN: usize = 8;
/// Maximum number of rounds over one socket during the final drain: far more than its queue holds. A
/// surviving process could fill the queue indefinitely.
const DRAIN_ROUNDS_MAX: u32 = 10_000;
/// Maximum number of events in one round.
const EVENTS_PER_ROUND: usize = 128;
/// Pause of accepting after the limit of open files was reached.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// The event loop of one run.
#[derive(Debug)]
pub struct Relay {
    shared: Shared,
    sockets: Sockets,
    /// The listeners of published ports; closed when the body ends.
    published: Vec<OwnedFd>,
    slots: Slots,
    /// Number of open connections: of the body, and to published ports.
    open: [usize; 2],
    /// Connections with remaining work that causes no event.
    queue: Vec<Key>,
    /// No connection has an earlier deadline.
    earliest_deadline: Option<Instant>,
    /// Accepting is paused until then.
    paused_until: Option<Instant>,
    /// Whether the events of accepting sockets are enabled.
    is_accepting: bool,
    sequence_numbers: SequenceNumbers,
    started: Instant,
    has_body_ended: bool,
    /// Whether the supervisor knows that everything is forwarded.
    has_told_drained: bool,
}

impl Relay {
    /// Takes ownership of the sockets. Without sockets of the body, only published ports are served.
    /// `link` leads to the supervisor.
    ///
    /// # Errors
    /// The errno of epoll_create1(2) or epoll_ctl(2).
    pub fn new(
        permit: ParsePermit,
        sockets: Option<Sockets>,
        published: Vec<Published>,
        rules: Rules,
        link: OwnedFd,
        now: Instant,
    ) -> Result<Self, Errno> {
        let mut relay = Self {
            shared: Shared::new(permit, rules, link, now)?,
            sockets: sockets.unwrap_or(Sockets {
                capture: Capture::Tproxy,
                listeners: Vec::new(),
                proxies: Vec::new(),
                dns: Vec::new(),
                log: None,
            }),
            published: Vec::new(),
            slots: Slots::default(),
            open: [0, 0],
            queue: Vec::new(),
            earliest_deadline: None,
            paused_until: None,
            is_accepting: true,
            sequence_numbers: SequenceNumbers::default(),
            started: now,
            has_body_ended: false,
            has_told_drained: false,
        };
        for port in published {
            let published = &mut relay.shared.ledger.outcome.report.published;
            published.push(port.report());
            relay.published.push(port.listener);
        }
        for (token, socket) in relay.accepting() {
            relay.shared.watch(token).add(socket.as_fd(), LEVEL)?;
        }
        for (socket, index) in relay.sockets.dns.iter().zip(0..) {
            let watch = relay.shared.watch(Token::Dns(index));
            watch.add(socket.as_fd(), LEVEL)?;
        }
        if let Some(log) = &relay.sockets.log {
            relay.shared.watch(Token::Log).add(log.as_fd(), LEVEL)?;
        }
        Ok(relay)
    }

    /// Serves until the supervisor closes the link. Returns the outcome.
    pub(crate) fn run(mut self) -> Result<Vec<u8>, Errno> {
        while !self.shared.is_ending {
            wait(self.as_fd(), self.deadline())?;
            self.turn(Instant::now())?;
        }
        Ok(self.finish(Instant::now()))
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
        if !self.queue.is_empty() {
            return Some(self.started);
        }
        let deadlines = [self.earliest_deadline, self.paused_until];
        deadlines.into_iter().flatten().min()
    }

    /// Does all pending work without blocking.
    ///
    /// # Errors
    /// The errno of epoll_wait(2). An error of one connection ends only that connection.
    pub fn turn(&mut self, now: Instant) -> Result<(), Errno> {
        self.shared.buffers.begin_turn();
        let mut room = [const { MaybeUninit::uninit() }; EVENTS_PER_ROUND];
        for _ in 0..ROUNDS_PER_TURN {
            let at_once = Timespec::default();
            let (events, _) = match epoll::wait(&self.shared.epoll, &mut room, Some(&at_once)) {
                Ok(events) => events,
                Err(Errno::INTR) => continue,
                Err(errno) => return Err(errno),
            };
            let is_idle = events.is_empty() && self.queue.is_empty();
            let queue = std::mem::take(&mut self.queue);
            for event in events {
                self.handle(event, now);
            }
            let mut queue = queue.into_iter();
            while !self.shared.buffers.is_spent()
                && let Some(key) = queue.next()
            {
                if let Some(connection) = self.slots.get(key) {
                    connection.is_queued = false;
                }
                self.step(key, now);
            }
            // Connections that had no step go before those that had one.
            self.queue.splice(..0, queue);
            if is_idle || self.shared.buffers.is_spent() {
                break;
            }
        }
        self.resume_after_pause(now)?;
        self.step_late_connections(now);
        if self.is_drained() && !std::mem::replace(&mut self.has_told_drained, true) {
            self.shared.send(&Request::Drained);
        }
        Ok(())
    }

    fn handle(&mut self, event: &epoll::Event, now: Instant) {
        let token = Token::of(event.data.u64());
        match token {
            Token::Listener(_) | Token::Proxy(_) | Token::Published(_) => {
                self.accept(token, now);
            }
            // If more queries are available, the next round reports the socket again.
            Token::Dns(index) => drop(self.answer_datagrams(index, now)),
            Token::Log => drop(self.read_log(now)),
            Token::Link => self.take_replies(now),
            Token::Connection(key, side) => {
                if let Some(connection) = self.slots.get(key) {
                    let flags = event.flags;
                    connection.record_event(side, flags);
                }
                if self.shared.buffers.is_spent() {
                    self.enqueue(key);
                } else {
                    self.step(key, now);
                }
            }
        }
    }

    fn step(&mut self, key: Key, now: Instant) {
        let Some(connection) = self.slots.get(key) else {
            return;
        };
        match connection.step(&mut self.shared, now) {
            Step::Done => self.close(key),
            Step::Again => self.enqueue(key),
            Step::Wait => {
                if let Some(deadline) = connection.deadline() {
                    let earliest = self.earliest_deadline.unwrap_or(deadline);
                    self.earliest_deadline = Some(earliest.min(deadline));
                }
            }
        }
    }

    fn enqueue(&mut self, key: Key) {
        if let Some(connection) = self.slots.get(key)
            && !std::mem::replace(&mut connection.is_queued, true)
        {
            self.queue.push(key);
        }
    }

    fn close(&mut self, key: Key) {
        if let Some(connection) = self.slots.remove(key) {
            let open = &mut self.open[usize::from(connection.is_published())];
            *open = open.saturating_sub(1);
            connection.end(&mut self.shared);
        }
    }

    /// The connections to which `condition` applies.
    fn keys(&self, condition: impl Fn(&Connection) -> bool) -> Vec<Key> {
        let connections = self.slots.iter();
        connections
            .filter(|(_, connection)| condition(connection))
            .map(|(key, _)| key)
            .collect()
    }

    /// Iterates over all connections only if one of them may be past its deadline.
    fn step_late_connections(&mut self, now: Instant) {
        if self.earliest_deadline.is_none_or(|earliest| now < earliest) {
            return;
        }
        let is_late = |connection: &Connection| connection.deadline().is_some_and(|at| at <= now);
        for key in self.keys(is_late) {
            self.step(key, now);
        }
        let connections = self.slots.iter();
        self.earliest_deadline = connections
            .filter_map(|(_, connection)| connection.deadline())
            .min();
    }

    /// All processes of the body have ended: data that they sent is still forwarded, and no inbound
    /// connection is accepted.
    fn body_has_ended(&mut self, now: Instant) {
        self.has_body_ended = true;
        self.published.clear();
        for key in self.keys(|connection| connection.pending_request().is_some()) {
            self.close(key);
        }
        self.drain(now);
    }

    /// Drains the queues of the body's sockets; nothing is added to them any more.
    fn drain(&mut self, now: Instant) {
        let tokens: Vec<Token> = self.accepting().map(|(token, _)| token).collect();
        for token in tokens {
            // A pause ends the loop: no descriptor is available for the remaining connections.
            self.drain_while(|relay| relay.paused_until.is_none() && relay.accept(token, now));
        }
        let dns_sockets = u32::try_from(self.sockets.dns.len()).unwrap_or(0);
        for index in 0..dns_sockets {
            self.drain_while(|relay| relay.answer_datagrams(index, now));
        }
        self.drain_while(|relay| relay.read_log(now));
    }

    fn drain_while(&mut self, mut has_more: impl FnMut(&mut Self) -> bool) {
        for _ in 0..DRAIN_ROUNDS_MAX {
            if !has_more(self) {
                return;
            }
        }
    }

    /// Whether all data that the body had sent before it ended is forwarded.
    fn is_drained(&self) -> bool {
        let mut connections = self.slots.iter();
        self.has_body_ended && connections.all(|(_, connection)| connection.is_drained())
    }

    /// Closes all sockets and returns the outcome, for [`crate::dialler::Dialler::read_outcome`].
    #[must_use]
    pub fn finish(mut self, now: Instant) -> Vec<u8> {
        self.drain(now);
        for key in self.keys(|_| true) {
            self.close(key);
        }
        let mut outcome = self.shared.ledger.outcome;
        // The sequence numbers replace a drop count that the kernel does not return.
        let lost = |socket: &OwnedFd| u64::from(dropped(socket).unwrap_or(0));
        let report = &mut outcome.report;
        report.denials_beyond = outcome.denials.unlisted();
        report.lost_questions = self.sockets.dns.iter().map(lost).sum();
        let logs = self.sockets.log.iter();
        report.lost_datagrams = logs
            .map(lost)
            .sum::<u64>()
            .max(self.sequence_numbers.missing());
        outcome.write()
    }

    /// All accepting sockets.
    fn accepting(&self) -> impl Iterator<Item = (Token, &OwnedFd)> {
        let listeners = self.sockets.listeners.iter().zip(0..);
        let proxies = self.sockets.proxies.iter().zip(0..);
        let published = self.published.iter().zip(0..);
        listeners
            .map(|(socket, index)| (Token::Listener(index), socket))
            .chain(proxies.map(|(socket, index)| (Token::Proxy(index), socket)))
            .chain(published.map(|(socket, index)| (Token::Published(index), socket)))
    }

    fn listener(&self, token: Token) -> Option<&OwnedFd> {
        match token {
            Token::Listener(index) => self.sockets.listeners.get(index as usize),
            Token::Proxy(index) => self.sockets.proxies.get(index as usize),
            Token::Published(index) => self.published.get(index as usize),
            Token::Dns(_) | Token::Log | Token::Link | Token::Connection(..) => None,
        }
    }

    /// Accepts connections. Returns whether more may be pending.
    fn accept(&mut self, token: Token, now: Instant) -> bool {
        for _ in 0..ACCEPTS_PER_ROUND {
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
                    self.paused_until = Some(now + ACCEPT_PAUSE);
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
        let is_accepting = self.paused_until.is_none();
        if is_accepting != std::mem::replace(&mut self.is_accepting, is_accepting) {
            let when = if is_accepting {
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
        if self.open[usize::from(is_published)] >= CONNECTIONS_MAX {
            connection::reset(&near);
            if !is_published {
                self.deny_beyond_limit(own_end, now);
            }
            return;
        }
        let mut connection = match token {
            Token::Proxy(_) => Connection::to_proxy(near, own_end, now),
            Token::Published(index) => {
                let published = &mut self.shared.ledger.outcome.report.published;
                let Some(report) = published.get_mut(index as usize) else {
                    return;
                };
                report.connections += 1;
                let port = report.body_port;
                Connection::published(near, own_end, port, &mut self.shared, now)
            }
            _ => match Connection::dialled(near, own_end, &mut self.shared, now) {
                Some(connection) => connection,
                None => return,
            },
        };
        let open = &mut self.open[usize::from(is_published)];
        connection.has_small_buffers = *open >= LARGE_BUFFERS_MAX;
        *open += 1;
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

    fn deny_beyond_limit(&mut self, dialled: SocketAddr, now: Instant) {
        let host = self.shared.names.host_at(dialled.ip());
        let port = dialled.port();
        // A destination that is denied anyway keeps its usual denial reason.
        let allowed = &self.shared.rules.allowed;
        let denial = allowed
            .denial(&host, port)
            .filter(|_| port != QUESTION_PORT && !dialled.ip().is_loopback());
        let reason = denial.unwrap_or(DenialReason::Limit);
        let attempt = host.attempt(Protocol::Tcp, Some(port), reason);
        self.shared.ledger.add_denial(attempt, now);
    }
}
