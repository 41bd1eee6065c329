//! Looks one name up outside: both families in parallel, one server after another. Repeats truncated
//! queries over TCP to the same server.

use std::mem::MaybeUninit;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd as _, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::{Timespec, epoll};
use rustix::io::Errno;
use rustix::net::{SendFlags, SocketType};

use crate::address::FAMILIES;
use crate::dns::{DATAGRAM_BYTES_MAX, with_length};
use crate::resolver::answer::{self, Answer, AnswerError};
use crate::socket::{EDGE, Watch, connect, socket_for};
use spec::host_name::HostName;
use spec::parse_permit::ParsePermit;

/// Timeout for one server.
const SERVER_TIMEOUT: Duration = Duration::from_secs(2);
/// How long to wait for one family after the other has returned addresses.
const OTHER_FAMILY_TIMEOUT: Duration = Duration::from_millis(300);
/// How many times each server is queried.
const ROUNDS: usize = 2;
/// Datagrams that are read at once, so that a server that floods does not extend its timeout.
const DATAGRAMS_PER_TURN: usize = 64;
/// Maximum size of a TCP message with its length prefix.
const FRAME_BYTES_MAX: usize = 2 + u16::MAX as usize;

/// A look-up in progress.
#[derive(Debug)]
pub(super) struct Lookup {
    name: HostName,
    ids: [u16; 2],
    /// The answer for each family.
    answers: [Option<Vec<IpAddr>>; 2],
    /// How many servers were queried before the current one.
    attempts: usize,
    channel: Channel,
    deadline: Instant,
}

#[derive(Debug)]
enum Channel {
    /// No query is pending.
    None,
    Datagrams(OwnedFd),
    Stream {
        socket: OwnedFd,
        unsent: Vec<u8>,
        received: Vec<u8>,
    },
}

/// Looks `name` up and waits for the result. Returns its addresses, IPv4 first, none if the name has
/// none; `None` if no server answered before `until`.
///
/// # Errors
/// The errno of epoll(7).
pub fn look_up(
    permit: &ParsePermit,
    name: HostName,
    servers: &[SocketAddr],
    ids: [u16; 2],
    until: Option<Instant>,
) -> Result<Option<Vec<IpAddr>>, Errno> {
    let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    let watch = Watch {
        epoll: &epoll,
        // The only socket: its number is not looked at.
        number: 0,
    };
    let mut lookup = Lookup::start(name, servers, ids, watch, Instant::now());
    loop {
        let now = Instant::now();
        match lookup.turn(permit, servers, watch, now) {
            LookupResult::Addresses(addresses) => return Ok(Some(addresses)),
            LookupResult::NoAnswer => return Ok(None),
            LookupResult::Pending if until.is_some_and(|until| until <= now) => return Ok(None),
            LookupResult::Pending => (),
        }
        let until = until.map_or(lookup.deadline(), |until| until.min(lookup.deadline()));
        let left = Timespec::try_from(until.saturating_duration_since(now)).ok();
        let mut events = [MaybeUninit::uninit(); 1];
        match epoll::wait(&epoll, &mut events, left.as_ref()) {
            Ok(_) | Err(Errno::INTR) => (),
            Err(errno) => return Err(errno),
        }
    }
}

/// The current result.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum LookupResult {
    /// Some answers are missing.
    Pending,
    /// The addresses, IPv4 first; empty if the name does not exist.
    Addresses(Vec<IpAddr>),
    /// No server answered.
    NoAnswer,
}

/// The result of reading from one server. Of several datagrams, the greatest result counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum ServerResult {
    /// No final answer yet.
    Pending,
    Failed,
    Truncated,
}

impl Lookup {
    /// Queries the first server. `ids` must be unpredictable.
    pub(super) fn start(
        name: HostName,
        servers: &[SocketAddr],
        ids: [u16; 2],
        watch: Watch<'_>,
        now: Instant,
    ) -> Self {
        let mut lookup = Self {
            name,
            ids,
            answers: [None, None],
            attempts: 0,
            channel: Channel::None,
            deadline: now,
        };
        lookup.query(servers, watch, now);
        lookup
    }

    /// When to call [`Lookup::turn`] if no event arrives.
    pub(super) fn deadline(&self) -> Instant {
        self.deadline
    }

    /// Reads answers, and queries the next server after a timeout.
    pub(super) fn turn(
        &mut self,
        permit: &ParsePermit,
        servers: &[SocketAddr],
        watch: Watch<'_>,
        now: Instant,
    ) -> LookupResult {
        loop {
            let result = match &mut self.channel {
                Channel::None => ServerResult::Failed,
                Channel::Datagrams(_) => self.read_datagrams(permit, now),
                Channel::Stream { .. } => self.read_stream(permit, now),
            };
            if let [Some(v4), Some(v6)] = &self.answers {
                return LookupResult::Addresses([v4.as_slice(), v6].concat());
            }
            match result {
                ServerResult::Truncated => self.query_over_tcp(servers, watch, now),
                ServerResult::Pending if now < self.deadline => return LookupResult::Pending,
                ServerResult::Pending | ServerResult::Failed => {
                    // The answer of one family is sufficient if the other times out.
                    let addresses: Vec<IpAddr> =
                        self.answers.iter().flatten().flatten().copied().collect();
                    if !addresses.is_empty() {
                        return LookupResult::Addresses(addresses);
                    }
                    self.attempts += 1;
                    if self.attempts >= servers.len() * ROUNDS {
                        return LookupResult::NoAnswer;
                    }
                    self.query(servers, watch, now);
                }
            }
        }
    }

    fn server(&self, servers: &[SocketAddr]) -> Option<SocketAddr> {
        let at = self.attempts.checked_rem(servers.len())?;
        servers.get(at).copied()
    }

    /// A server that cannot be queried has failed: the next turn continues with the next one.
    fn query(&mut self, servers: &[SocketAddr], watch: Watch<'_>, now: Instant) {
        self.deadline = now + SERVER_TIMEOUT;
        self.channel = match self.server(servers).map(|server| self.send(server, watch)) {
            Some(Ok(socket)) => Channel::Datagrams(socket),
            Some(Err(_)) | None => Channel::None,
        };
        if matches!(self.channel, Channel::None) {
            self.deadline = now;
        }
    }

    fn send(&self, server: SocketAddr, watch: Watch<'_>) -> Result<OwnedFd, Errno> {
        let socket = socket_for(server, SocketType::DGRAM)?;
        rustix::net::connect(&socket, &server)?;
        watch.add(socket.as_fd(), EDGE)?;
        for query in self.pending_queries() {
            rustix::net::send(&socket, &query, SendFlags::NOSIGNAL)?;
        }
        Ok(socket)
    }

    /// The queries without an answer.
    fn pending_queries(&self) -> Vec<Vec<u8>> {
        FAMILIES
            .into_iter()
            .zip(self.ids)
            .zip(&self.answers)
            .filter(|(_, answer)| answer.is_none())
            .map(|((family, id), _)| answer::query(id, &self.name, family))
            .collect()
    }

    fn query_over_tcp(&mut self, servers: &[SocketAddr], watch: Watch<'_>, now: Instant) {
        self.deadline = now + SERVER_TIMEOUT;
        let server = self.server(servers);
        self.channel = match server.map(|server| connect(server, watch)) {
            Some(Ok(socket)) => Channel::Stream {
                socket,
                unsent: self
                    .pending_queries()
                    .iter()
                    .flat_map(|query| with_length(query))
                    .collect(),
                received: Vec::new(),
            },
            Some(Err(_)) | None => Channel::None,
        };
    }

    fn read_datagrams(&mut self, permit: &ParsePermit, now: Instant) -> ServerResult {
        let mut buffer = [0; DATAGRAM_BYTES_MAX as usize];
        let mut result = ServerResult::Pending;
        for _ in 0..DATAGRAMS_PER_TURN {
            let Channel::Datagrams(socket) = &self.channel else {
                break;
            };
            match rustix::io::read(socket, &mut buffer) {
                Ok(bytes) => {
                    let message = buffer.get(..bytes).unwrap_or(&buffer);
                    result = result.max(self.take(permit, message, now));
                }
                Err(Errno::AGAIN) => break,
                Err(Errno::INTR) => (),
                // ECONNREFUSED and similar errors: no server listens there.
                Err(_) => return ServerResult::Failed,
            }
        }
        result
    }

    fn read_stream(&mut self, permit: &ParsePermit, now: Instant) -> ServerResult {
        let Channel::Stream {
            socket,
            unsent,
            received,
        } = &mut self.channel
        else {
            return ServerResult::Failed;
        };
        while !unsent.is_empty() {
            match rustix::net::send(&*socket, unsent, SendFlags::NOSIGNAL) {
                Ok(sent) => drop(unsent.drain(..sent.min(unsent.len()))),
                // Not connected yet, or full.
                Err(Errno::AGAIN | Errno::NOTCONN) => return ServerResult::Pending,
                Err(Errno::INTR) => (),
                Err(_) => return ServerResult::Failed,
            }
        }
        let mut buffer = [0; 4_096];
        let ended = loop {
            // At most two answers are read.
            if received.len() >= 2 * FRAME_BYTES_MAX {
                break true;
            }
            match rustix::io::read(&*socket, &mut buffer) {
                Ok(0) => break true,
                Ok(bytes) => received.extend_from_slice(buffer.get(..bytes).unwrap_or(&buffer)),
                Err(Errno::AGAIN) => break false,
                Err(Errno::INTR) => (),
                Err(_) => break true,
            }
        };
        let mut all = std::mem::take(received);
        let mut rest = all.as_slice();
        let mut failed = ended;
        while let Some((length, after)) = rest.split_first_chunk::<2>() {
            let length = usize::from(u16::from_be_bytes(*length));
            let Some((message, after)) = after.split_at_checked(length) else {
                break;
            };
            // Truncated over TCP too: this server cannot answer.
            failed |= self.take(permit, message, now) != ServerResult::Pending;
            rest = after;
        }
        all.drain(..all.len() - rest.len());
        if let Channel::Stream { received, .. } = &mut self.channel {
            *received = all;
        }
        if failed {
            ServerResult::Failed
        } else {
            ServerResult::Pending
        }
    }

    fn take(&mut self, permit: &ParsePermit, message: &[u8], now: Instant) -> ServerResult {
        #[cfg(feature = "planted-bugs")]
        confinement::planted::trigger("resolver", message);
        for ((family, id), answer) in FAMILIES.into_iter().zip(self.ids).zip(&mut self.answers) {
            match answer::parse(permit, message, id, &self.name, family) {
                Ok(Answer::Addresses(addresses)) => {
                    if !addresses.is_empty() {
                        self.deadline = self.deadline.min(now + OTHER_FAMILY_TIMEOUT);
                    }
                    *answer = Some(addresses);
                    return ServerResult::Pending;
                }
                Ok(Answer::NoName) => {
                    // Only for this family: some servers return NXDOMAIN for names without IPv6
                    // addresses.
                    *answer = Some(Vec::new());
                    return ServerResult::Pending;
                }
                Ok(Answer::Truncated) => return ServerResult::Truncated,
                Err(AnswerError::Code(_) | AnswerError::Malformed) => return ServerResult::Failed,
                Err(AnswerError::Foreign) => (),
            }
        }
        ServerResult::Pending
    }
}
