//! One name, looked up outside: both families at the same time, one server after another.

use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::net::{AddressFamily, SendFlags, SocketFlags, SocketType};

use crate::egress::resolver::answer::{self, Answer, AnswerError, Family};
use crate::spec::host_name::HostName;

/// How long one server is waited for.
const SERVER_PATIENCE: Duration = Duration::from_secs(2);
/// Rounds over all servers.
const ROUNDS: usize = 2;

/// A look-up that is under way.
#[derive(Debug)]
pub(super) struct Lookup {
    name: HostName,
    socket: OwnedFd,
    ids: [u16; 2],
    answers: [Option<Vec<IpAddr>>; 2],
    asked: usize,
    deadline: Instant,
}

/// What came of it so far.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Found {
    /// Not everything has been answered.
    Waits,
    /// The addresses, IPv4 first; none where nobody knows the name.
    Addresses(Vec<IpAddr>),
    /// No server answers.
    Nobody,
}

const FAMILIES: [Family; 2] = [Family::V4, Family::V6];

impl Lookup {
    /// Asks the first server. `ids` must not be guessable.
    ///
    /// # Errors
    /// The errno of socket(2); a server that cannot be reached is passed over.
    pub(super) fn begin(
        name: HostName,
        servers: &[SocketAddr],
        ids: [u16; 2],
        now: Instant,
    ) -> Result<Self, Errno> {
        let mut lookup = Self {
            name,
            socket: socket_to(servers[0])?,
            ids,
            answers: [None, None],
            asked: 0,
            deadline: now,
        };
        lookup.ask(servers, now)?;
        Ok(lookup)
    }

    /// What to wait for: readable.
    pub(super) fn socket(&self) -> &OwnedFd {
        &self.socket
    }

    /// When to call [`Lookup::turn`] though nothing came.
    pub(super) fn deadline(&self) -> Instant {
        self.deadline
    }

    /// Reads what came, and asks the next server where it is time. The socket is another one where
    /// `true` comes with it.
    ///
    /// # Errors
    /// The errno of socket(2).
    pub(super) fn turn(
        &mut self,
        servers: &[SocketAddr],
        now: Instant,
    ) -> Result<(Found, bool), Errno> {
        let mut buffer = [0; answer::DATAGRAM_BYTES_MAX as usize];
        let mut gives_up = now >= self.deadline;
        loop {
            match rustix::io::read(&self.socket, &mut buffer) {
                Ok(bytes) => gives_up |= !self.take(&buffer[..bytes]),
                Err(Errno::AGAIN) => break,
                Err(Errno::INTR) => (),
                // ECONNREFUSED and its like: nobody listens there.
                Err(_) => {
                    gives_up = true;
                    break;
                }
            }
        }
        if let [Some(v4), Some(v6)] = &self.answers {
            return Ok((Found::Addresses([v4.as_slice(), v6].concat()), false));
        }
        if !gives_up {
            return Ok((Found::Waits, false));
        }
        // One family's answer is enough where the other's does not come.
        let known: Vec<IpAddr> = self.answers.iter().flatten().flatten().copied().collect();
        if !known.is_empty() {
            return Ok((Found::Addresses(known), false));
        }
        self.asked += 1;
        if servers.len() * ROUNDS <= self.asked {
            return Ok((Found::Nobody, false));
        }
        self.socket = socket_to(servers[self.asked % servers.len()])?;
        self.ask(servers, now)?;
        Ok((Found::Waits, true))
    }

    fn ask(&mut self, servers: &[SocketAddr], now: Instant) -> Result<(), Errno> {
        let server = servers[self.asked % servers.len()];
        self.deadline = now + SERVER_PATIENCE;
        if rustix::net::connect(&self.socket, &server).is_err() {
            self.deadline = now;
            return Ok(());
        }
        for (family, id) in FAMILIES.into_iter().zip(self.ids) {
            let question = answer::question(id, &self.name, family);
            if rustix::net::send(&self.socket, &question, SendFlags::NOSIGNAL).is_err() {
                self.deadline = now;
            }
        }
        Ok(())
    }

    /// Whether this server may still be waited for.
    fn take(&mut self, message: &[u8]) -> bool {
        for (index, family) in FAMILIES.into_iter().enumerate() {
            match answer::parse(message, self.ids[index], &self.name, family) {
                Ok(Answer::Addresses(addresses)) => self.answers[index] = Some(addresses),
                Ok(Answer::NoName) => self.answers = [Some(Vec::new()), Some(Vec::new())],
                Err(AnswerError::Foreign) => continue,
                // More addresses than a datagram holds: what another server says may fit.
                Ok(Answer::Truncated) | Err(AnswerError::Code(_) | AnswerError::Malformed) => {
                    return false;
                }
            }
            return true;
        }
        true
    }
}

fn socket_to(server: SocketAddr) -> Result<OwnedFd, Errno> {
    let family = match server {
        SocketAddr::V4(_) => AddressFamily::INET,
        SocketAddr::V6(_) => AddressFamily::INET6,
    };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    rustix::net::socket_with(family, SocketType::DGRAM, flags, None)
}
