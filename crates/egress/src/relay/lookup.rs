//! Looks one name up outside: both families in parallel, one server after another. Truncated answers are
//! requested again over TCP from the same server.

use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd as _, OwnedFd};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::net::{SendFlags, SocketType};

use crate::relay::dial::socket_for;
use crate::relay::slots::{EDGE, Watch};
use crate::resolver::answer::{self, Answer, AnswerError, Family};
use spec::host_name::HostName;

/// Timeout for one server.
const SERVER_PATIENCE: Duration = Duration::from_secs(2);
/// How long to wait for one family after the other has returned addresses.
const OTHER_FAMILY_PATIENCE: Duration = Duration::from_millis(300);
/// Rounds over all servers.
const ROUNDS: usize = 2;
/// Datagrams that are read at once, so that a server that floods does not extend its timeout.
const DATAGRAMS_A_TURN: usize = 64;
/// Maximum size of a TCP message with its length prefix.
const FRAME_BYTES_MAX: usize = 2 + u16::MAX as usize;

/// A look-up in progress.
#[derive(Debug)]
pub(super) struct Lookup {
    name: HostName,
    ids: [u16; 2],
    answers: [Option<Vec<IpAddr>>; 2],
    asked: usize,
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

/// The current result.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Found {
    /// Some answers are missing.
    Waits,
    /// The addresses, IPv4 first; empty if the name does not exist.
    Addresses(Vec<IpAddr>),
    Nobody,
}

/// The result of reading from one server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Heard {
    /// No final answer yet.
    Waits,
    /// A truncated answer.
    Truncated,
    /// The server failed.
    Failed,
}

const FAMILIES: [Family; 2] = [Family::V4, Family::V6];

impl Lookup {
    /// Queries the first server. `ids` must be unpredictable.
    pub(super) fn begin(
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
            asked: 0,
            channel: Channel::None,
            deadline: now,
        };
        lookup.ask(servers, watch, now);
        lookup
    }

    /// When to call [`Lookup::turn`] if no event arrives.
    pub(super) fn deadline(&self) -> Instant {
        self.deadline
    }

    /// Reads answers, and queries the next server after a timeout.
    pub(super) fn turn(&mut self, servers: &[SocketAddr], watch: Watch<'_>, now: Instant) -> Found {
        loop {
            let heard = match &mut self.channel {
                Channel::None => Heard::Failed,
                Channel::Datagrams(_) => self.hear_datagrams(now),
                Channel::Stream { .. } => self.hear_stream(now),
            };
            if let [Some(v4), Some(v6)] = &self.answers {
                return Found::Addresses([v4.as_slice(), v6].concat());
            }
            match heard {
                Heard::Truncated => self.ask_over_stream(servers, watch, now),
                Heard::Waits if now < self.deadline => return Found::Waits,
                Heard::Waits | Heard::Failed => {
                    // The answer of one family is sufficient if the other times out.
                    let known: Vec<IpAddr> =
                        self.answers.iter().flatten().flatten().copied().collect();
                    if !known.is_empty() {
                        return Found::Addresses(known);
                    }
                    self.asked += 1;
                    if servers.len() * ROUNDS <= self.asked {
                        return Found::Nobody;
                    }
                    self.ask(servers, watch, now);
                }
            }
        }
    }

    fn server(&self, servers: &[SocketAddr]) -> Option<SocketAddr> {
        let at = self.asked.checked_rem(servers.len())?;
        servers.get(at).copied()
    }

    /// A server that cannot be queried has failed: the next turn continues with the next one.
    fn ask(&mut self, servers: &[SocketAddr], watch: Watch<'_>, now: Instant) {
        self.deadline = now + SERVER_PATIENCE;
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
        for question in self.questions() {
            rustix::net::send(&socket, &question, SendFlags::NOSIGNAL)?;
        }
        Ok(socket)
    }

    /// The queries without an answer.
    fn questions(&self) -> Vec<Vec<u8>> {
        FAMILIES
            .into_iter()
            .zip(self.ids)
            .zip(&self.answers)
            .filter(|(_, answered)| answered.is_none())
            .map(|((family, id), _)| answer::question(id, &self.name, family))
            .collect()
    }

    fn ask_over_stream(&mut self, servers: &[SocketAddr], watch: Watch<'_>, now: Instant) {
        let mut unsent = Vec::new();
        for question in self.questions() {
            // A query has at most 300 bytes.
            let length = u16::try_from(question.len()).unwrap_or(0);
            unsent.extend_from_slice(&length.to_be_bytes());
            unsent.extend_from_slice(&question);
        }
        let server = self.server(servers);
        let socket = server.map(|server| -> Result<OwnedFd, Errno> {
            let socket = socket_for(server, SocketType::STREAM)?;
            match rustix::net::connect(&socket, &server) {
                Ok(()) | Err(Errno::INPROGRESS) => (),
                Err(errno) => return Err(errno),
            }
            watch.add(socket.as_fd(), EDGE)?;
            Ok(socket)
        });
        self.deadline = now + SERVER_PATIENCE;
        self.channel = match socket {
            Some(Ok(socket)) => Channel::Stream {
                socket,
                unsent,
                received: Vec::new(),
            },
            Some(Err(_)) | None => Channel::None,
        };
    }

    fn hear_datagrams(&mut self, now: Instant) -> Heard {
        let mut buffer = [0; answer::DATAGRAM_BYTES_MAX as usize];
        let mut heard = Heard::Waits;
        for _ in 0..DATAGRAMS_A_TURN {
            let Channel::Datagrams(socket) = &self.channel else {
                break;
            };
            match rustix::io::read(socket, &mut buffer) {
                Ok(bytes) => match self.take(buffer.get(..bytes).unwrap_or(&buffer), now) {
                    Heard::Waits => (),
                    Heard::Truncated => heard = Heard::Truncated,
                    Heard::Failed if heard == Heard::Waits => heard = Heard::Failed,
                    Heard::Failed => (),
                },
                Err(Errno::AGAIN) => break,
                Err(Errno::INTR) => (),
                // ECONNREFUSED and similar errors: no server listens there.
                Err(_) => return Heard::Failed,
            }
        }
        heard
    }

    fn hear_stream(&mut self, now: Instant) -> Heard {
        let Channel::Stream {
            socket,
            unsent,
            received,
        } = &mut self.channel
        else {
            return Heard::Failed;
        };
        while !unsent.is_empty() {
            match rustix::net::send(&*socket, unsent, SendFlags::NOSIGNAL) {
                Ok(sent) => drop(unsent.drain(..sent.min(unsent.len()))),
                // Not connected yet, or full.
                Err(Errno::AGAIN | Errno::NOTCONN) => return Heard::Waits,
                Err(Errno::INTR) => (),
                Err(_) => return Heard::Failed,
            }
        }
        let mut buffer = [0; 4_096];
        let ended = loop {
            // At most two answers are read.
            if 2 * FRAME_BYTES_MAX <= received.len() {
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
            failed |= self.take(message, now) != Heard::Waits;
            rest = after;
        }
        all.drain(..all.len() - rest.len());
        if let Channel::Stream { received, .. } = &mut self.channel {
            *received = all;
        }
        if failed { Heard::Failed } else { Heard::Waits }
    }

    fn take(&mut self, message: &[u8], now: Instant) -> Heard {
        for ((family, id), answered) in FAMILIES.into_iter().zip(self.ids).zip(&mut self.answers) {
            match answer::parse(message, id, &self.name, family) {
                Ok(Answer::Addresses(addresses)) => {
                    if !addresses.is_empty() {
                        self.deadline = self.deadline.min(now + OTHER_FAMILY_PATIENCE);
                    }
                    *answered = Some(addresses);
                    return Heard::Waits;
                }
                Ok(Answer::NoName) => {
                    // Only for this family: some servers return NXDOMAIN for names without IPv6
                    // addresses.
                    *answered = Some(Vec::new());
                    return Heard::Waits;
                }
                Ok(Answer::Truncated) => return Heard::Truncated,
                Err(AnswerError::Code(_) | AnswerError::Malformed) => return Heard::Failed,
                Err(AnswerError::Foreign) => (),
            }
        }
        Heard::Waits
    }
}
