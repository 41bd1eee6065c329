//! The relay: one event loop for everything that the body's network namespace asks of the outside.
//!
//! The supervisor holds sockets of that namespace (the child made them and handed them over) and
//! sockets of its own. A connection goes through stages, each of which can end it with a denial:
//! its destination is known by name, its port is allowed, its first bytes name the same host
//! (443 and 80), the name has a public address outside, that address is dialled. Then bytes flow.
//! Whatever is denied is closed with a reset.

mod connection;
mod flow;
mod lookup;
mod questions;
mod terms;

pub use terms::{
    Ask, Capture, Outcome, Published, Settings, Sockets, Traffic, UNREACHABLE_MAX, Unreachable,
};

use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::epoll;
use rustix::io::Errno;
use rustix::net::SocketFlags;

use crate::egress::address::{is_public, shares_prefix};
use crate::egress::denials::{Attempt, Protocol, Reason};
use crate::egress::names::Names;
use crate::egress::relay::connection::{Connection, Look};
use crate::egress::relay::questions::Pace;

/// Most connections at once.
pub const CONNECTIONS_MAX: usize = 256;
/// Bytes that are copied at once.
const SCRATCH_BYTES: usize = 256 << 10;
/// Connections that are accepted in one turn.
const ACCEPTS_A_TURN: usize = 64;

impl Settings {
    /// Whether an address may be dialled for a name.
    fn is_dialable(&self, address: IpAddr) -> bool {
        is_public(address)
            || self
                .private_ranges
                .iter()
                .any(|range| shares_prefix(address, range.address, range.prefix_bits))
    }
}

/// Everything that goes wrong without being a denial is counted here and nowhere else.
#[derive(Debug)]
struct Ledger {
    started: Instant,
    outcome: Outcome,
}

impl Ledger {
    fn deny(&mut self, attempt: Attempt, now: Instant) {
        let since = now.saturating_duration_since(self.started);
        let now_ms = u64::try_from(since.as_millis()).unwrap_or(u64::MAX);
        self.outcome.denials.add(attempt, now_ms);
    }

    fn unreachable(&mut self, host: String, port: u16) {
        let list = &mut self.outcome.unreachable;
        match list
            .iter_mut()
            .find(|known| known.host == host && known.port == port)
        {
            Some(known) => known.count += 1,
            None => list.push(Unreachable {
                host,
                port,
                count: 1,
            }),
        }
    }

    fn traffic(&mut self, host: &str, sent: u64, received: u64) {
        let list = &mut self.outcome.traffic;
        match list.iter_mut().find(|known| known.host == host) {
            Some(known) => {
                known.connections += 1;
                known.sent_bytes += sent;
                known.received_bytes += received;
            }
            None => list.push(Traffic {
                host: host.to_owned(),
                connections: 1,
                sent_bytes: sent,
                received_bytes: received,
            }),
        }
    }
}

/// What an event is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Token {
    Listener(usize),
    Questions(usize),
    Connection(usize),
}

impl Token {
    fn number(self) -> u64 {
        let (kind, index) = match self {
            Self::Listener(index) => (0, index),
            Self::Questions(index) => (1, index),
            Self::Connection(index) => (2, index),
        };
        (index as u64) << 2 | kind
    }

    fn of(number: u64) -> Self {
        let index = usize::try_from(number >> 2).unwrap_or(usize::MAX);
        match number & 3 {
            0 => Self::Listener(index),
            1 => Self::Questions(index),
            _ => Self::Connection(index),
        }
    }
}

/// The event loop of one run.
#[derive(Debug)]
pub struct Relay {
    epoll: OwnedFd,
    sockets: Sockets,
    published: Vec<Published>,
    asks: VecDeque<Ask>,
    settings: Settings,
    names: Names,
    ledger: Ledger,
    pace: Pace,
    connections: Vec<Option<Connection>>,
    open: usize,
    /// Connections with more to do although no event will say so.
    again: Vec<usize>,
    accept_again: bool,
    scratch: Vec<u8>,
    ids: u64,
    ended: Option<Instant>,
}

impl Relay {
    /// Takes the sockets over.
    ///
    /// # Errors
    /// The errno of epoll_create1(2) or epoll_ctl(2).
    pub fn new(
        sockets: Option<Sockets>,
        published: Vec<Published>,
        settings: Settings,
        now: Instant,
    ) -> Result<Self, Errno> {
        let sockets = sockets.unwrap_or(Sockets {
            capture: Capture::Tproxy,
            listeners: Vec::new(),
            proxies: Vec::new(),
            questions: Vec::new(),
            log: None,
        });
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        for (index, socket) in sockets.listeners.iter().enumerate() {
            watch(&epoll, socket.as_fd(), Token::Listener(index), false)?;
        }
        for (index, socket) in sockets.questions.iter().enumerate() {
            watch(&epoll, socket.as_fd(), Token::Questions(index), false)?;
        }
        Ok(Self {
            epoll,
            sockets,
            published,
            asks: VecDeque::new(),
            settings,
            names: Names::default(),
            ledger: Ledger {
                started: now,
                outcome: Outcome::default(),
            },
            pace: Pace::new(now),
            connections: Vec::new(),
            open: 0,
            again: Vec::new(),
            accept_again: false,
            scratch: vec![0; SCRATCH_BYTES],
            ids: 0,
            ended: None,
        })
    }

    /// Readable when [`Relay::turn`] has something to do.
    #[must_use]
    pub fn as_fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }

    /// When to call [`Relay::turn`] though nothing became readable.
    #[must_use]
    pub fn deadline(&self) -> Option<Instant> {
        if !self.again.is_empty() || self.accept_again {
            return Some(self.ledger.started);
        }
        self.connections
            .iter()
            .flatten()
            .filter_map(Connection::deadline)
            .min()
    }

    /// Does what there is to do, and never waits.
    ///
    /// # Errors
    /// The errno of epoll_wait(2). What goes wrong with one connection ends that one only.
    pub fn turn(&mut self, now: Instant) -> Result<(), Errno> {
        let mut events = Vec::with_capacity(256);
        let at_once = rustix::event::Timespec::default();
        match epoll::wait(
            &self.epoll,
            rustix::buffer::spare_capacity(&mut events),
            Some(&at_once),
        ) {
            Ok(_) | Err(Errno::INTR) => (),
            Err(errno) => return Err(errno),
        }
        let mut touched = std::mem::take(&mut self.again);
        for event in events {
            match Token::of(event.data.u64()) {
                Token::Listener(_) => self.accept_again = true,
                Token::Questions(index) => self.answer_questions(index, now),
                Token::Connection(index) => touched.push(index),
            }
        }
        for (index, connection) in self.connections.iter().enumerate() {
            let due = connection
                .as_ref()
                .and_then(Connection::deadline)
                .is_some_and(|deadline| deadline <= now);
            if due {
                touched.push(index);
            }
        }
        touched.sort_unstable();
        touched.dedup();
        for index in touched {
            self.step(index, now);
        }
        if std::mem::take(&mut self.accept_again) {
            self.accept(now);
        }
        Ok(())
    }

    /// The next socket of the body's namespace that is needed; to be asked for after each
    /// [`Relay::turn`] and [`Relay::answered`], until there is none.
    pub fn next_ask(&mut self) -> Option<Ask> {
        self.asks.pop_front()
    }

    /// The answer to an [`Ask`]: the socket, connected or about to be, or why there is none.
    pub fn answered(&mut self, id: i32, socket: Result<OwnedFd, Errno>, now: Instant) {
        drop((id, socket, now, &self.published));
    }

    /// No process of the body's is left: what it has sent is still forwarded.
    pub fn body_has_ended(&mut self, now: Instant) {
        self.ended = Some(now);
    }

    /// Whether everything is forwarded that the body had sent when it ended.
    #[must_use]
    pub fn is_settled(&self) -> bool {
        self.ended.is_some() && self.open == 0
    }

    /// Closes everything that belongs to the namespace: one descriptor left open would keep it.
    #[must_use]
    pub fn finish(mut self, now: Instant) -> Outcome {
        for index in 0..self.connections.len() {
            if let Some(connection) = self.connections[index].take() {
                connection.end(&mut self.ledger, now);
            }
        }
        self.ledger.outcome
    }

    fn accept(&mut self, now: Instant) {
        for index in 0..self.sockets.listeners.len() {
            for _ in 0..ACCEPTS_A_TURN {
                let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
                match rustix::net::accept_with(&self.sockets.listeners[index], flags) {
                    Ok(body) => self.take(body, now),
                    Err(Errno::AGAIN) => break,
                    // The connection is gone, or there is no descriptor for it: the next turn.
                    Err(_) => {
                        self.accept_again = false;
                        break;
                    }
                }
            }
        }
    }

    /// A new connection of the body's.
    fn take(&mut self, body: OwnedFd, now: Instant) {
        let dialled = rustix::net::getsockname(&body).and_then(SocketAddr::try_from);
        let Ok(dialled) = dialled else {
            connection::reset(&body);
            return;
        };
        if CONNECTIONS_MAX <= self.open {
            self.deny(dialled, None, Reason::Limit, now);
            connection::reset(&body);
            return;
        }
        let look = Look {
            settings: &self.settings,
            names: &mut self.names,
            ledger: &mut self.ledger,
            pace: &mut self.pace,
        };
        let Some(connection) = Connection::begin(body, dialled, look, now) else {
            return;
        };
        let index = match self.connections.iter().position(Option::is_none) {
            Some(index) => index,
            None => {
                self.connections.push(None);
                self.connections.len() - 1
            }
        };
        if watch(
            &self.epoll,
            connection.body(),
            Token::Connection(index),
            true,
        )
        .is_err()
        {
            connection.end(&mut self.ledger, now);
            return;
        }
        self.connections[index] = Some(connection);
        self.open += 1;
        self.step(index, now);
    }

    fn step(&mut self, index: usize, now: Instant) {
        let Some(Some(connection)) = self.connections.get_mut(index) else {
            return;
        };
        self.ids += 1;
        let ids = question_ids(&self.settings.seed, self.ids);
        let look = Look {
            settings: &self.settings,
            names: &mut self.names,
            ledger: &mut self.ledger,
            pace: &mut self.pace,
        };
        let token = Token::Connection(index);
        let stepped = connection.step(look, &mut self.scratch, ids, now, &mut |socket| {
            watch(&self.epoll, socket, token, true)
        });
        match stepped {
            connection::Stepped::Waits => (),
            connection::Stepped::Again => self.again.push(index),
            connection::Stepped::Over => {
                if let Some(connection) = self.connections[index].take() {
                    connection.end(&mut self.ledger, now);
                }
                self.open -= 1;
            }
        }
    }

    fn deny(&mut self, dialled: SocketAddr, host: Option<String>, reason: Reason, now: Instant) {
        self.ledger.deny(
            Attempt {
                protocol: Protocol::Tcp,
                host,
                address: Some(dialled.ip()),
                port: Some(dialled.port()),
                reason,
            },
            now,
        );
    }
}

/// Two ids that nobody outside can guess: from the seed and a number that is used once.
fn question_ids(seed: &[u8; 16], number: u64) -> [u16; 2] {
    use sha2::Digest as _;
    let digest = sha2::Sha256::new()
        .chain_update(seed)
        .chain_update(number.to_be_bytes())
        .finalize();
    [
        u16::from_be_bytes([digest[0], digest[1]]),
        u16::from_be_bytes([digest[2], digest[3]]),
    ]
}

/// Edge-triggered where the socket is always drained until it would block.
fn watch(epoll: &OwnedFd, socket: BorrowedFd<'_>, token: Token, both: bool) -> Result<(), Errno> {
    let flags = if both {
        epoll::EventFlags::IN
            | epoll::EventFlags::OUT
            | epoll::EventFlags::RDHUP
            | epoll::EventFlags::ET
    } else {
        epoll::EventFlags::IN
    };
    let data = epoll::EventData::new_u64(token.number());
    epoll::add(epoll, socket, data, flags)
}

/// How long the first bytes of a connection may take.
const FIRST_BYTES_PATIENCE: Duration = Duration::from_secs(5);
/// How long dialling may take, all addresses together.
const DIAL_PATIENCE: Duration = Duration::from_secs(10);
