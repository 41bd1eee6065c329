//! Dials a host outside: looks the name up once, then tries its addresses. Each address is checked before
//! it is dialled.

use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd as _, OwnedFd};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType};

use crate::host::Host;
use crate::relay::address_check::Verdict;
use crate::relay::lookup::{Lookup, LookupResult};
use crate::relay::shared::Shared;
use crate::relay::slots::{EDGE, Token, Watch};
use spec::egress_report::UnreachableCause;
use spec::host_name::HostName;

/// Timeout for the look-up and all addresses together.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum number of addresses of a name that are tried.
const ADDRESSES_MAX: usize = 16;

/// An attempt to connect to a host.
#[derive(Debug)]
pub(super) struct Dial {
    port: u16,
    far: Token,
    state: State,
    until: Instant,
    /// The failure of the last address that was dialled or had no route.
    last: Option<UnreachableCause>,
    /// The first address that must not be dialled.
    refused: Option<IpAddr>,
}

#[derive(Debug)]
enum State {
    /// Waits for the look-up rate limit until `at`.
    RateLimited {
        name: HostName,
        at: Instant,
    },
    LookUp(Lookup),
    /// Untried addresses, the next one last.
    NextAddress(Vec<IpAddr>),
    Connecting {
        socket: OwnedFd,
        until: Instant,
        rest: Vec<IpAddr>,
    },
    Done,
}

/// The current result.
#[derive(Debug)]
pub(super) enum DialResult {
    Pending,
    /// A connection, already registered with epoll.
    Connected(OwnedFd),
    /// The limit of open files is reached.
    NoDescriptor,
    /// No address may be dialled; holds the first one.
    Private(IpAddr),
    Unreachable(UnreachableCause),
}

impl Dial {
    /// Starts the attempt; [`Dial::turn`] continues it. `far` is the token of events of its sockets.
    pub(super) fn start(
        host: &Host,
        port: u16,
        far: Token,
        shared: &mut Shared,
        now: Instant,
    ) -> Self {
        let state = match host {
            Host::Address(address) => State::NextAddress(vec![*address]),
            Host::Name(name) => {
                let addresses = shared.static_addresses(name);
                if addresses.is_empty() {
                    State::RateLimited {
                        name: name.clone(),
                        at: now,
                    }
                } else {
                    State::NextAddress(in_dial_order(addresses))
                }
            }
        };
        Self {
            port,
            far,
            state,
            until: now + TIMEOUT,
            last: None,
            refused: None,
        }
    }

    /// When to call [`Dial::turn`] if no event arrives.
    pub(super) fn deadline(&self) -> Instant {
        match &self.state {
            State::RateLimited { at, .. } => (*at).min(self.until),
            State::LookUp(lookup) => lookup.deadline().min(self.until),
            State::Connecting { until, .. } => *until,
            State::NextAddress(_) | State::Done => self.until,
        }
    }

    /// Advances the attempt as far as possible.
    pub(super) fn turn(&mut self, shared: &mut Shared, now: Instant) -> DialResult {
        loop {
            if self.until <= now {
                return DialResult::Unreachable(match self.state {
                    State::RateLimited { .. } | State::LookUp(_) => UnreachableCause::NoNameServer,
                    State::NextAddress(_) | State::Connecting { .. } | State::Done => {
                        UnreachableCause::TimedOut
                    }
                });
            }
            match std::mem::replace(&mut self.state, State::Done) {
                State::Done => return self.unreachable(),
                State::RateLimited { name, at } if now < at || !shared.lookup_rate.allows(now) => {
                    let at = at.max(shared.lookup_rate.next_second());
                    self.state = State::RateLimited { name, at };
                    return DialResult::Pending;
                }
                State::RateLimited { name, .. } => {
                    let ids = shared.query_ids.next();
                    let watch = shared.watch(self.far);
                    let servers = &shared.settings.servers;
                    self.state = State::LookUp(Lookup::start(name, servers, ids, watch, now));
                }
                State::LookUp(mut lookup) => {
                    let watch = shared.watch(self.far);
                    match lookup.turn(&shared.settings.servers, watch, now) {
                        LookupResult::Pending => {
                            self.state = State::LookUp(lookup);
                            return DialResult::Pending;
                        }
                        LookupResult::Addresses(addresses) => {
                            self.state = State::NextAddress(in_dial_order(addresses));
                        }
                        LookupResult::NoAnswer => {
                            return DialResult::Unreachable(UnreachableCause::NoNameServer);
                        }
                    }
                }
                State::NextAddress(rest) => match self.dial_next(rest, shared, now) {
                    Ok(state) => self.state = state,
                    Err(result) => return result,
                },
                State::Connecting {
                    socket,
                    until,
                    rest,
                } => match is_connected(&socket) {
                    Ok(true) => return DialResult::Connected(socket),
                    Ok(false) if now < until => {
                        self.state = State::Connecting {
                            socket,
                            until,
                            rest,
                        };
                        return DialResult::Pending;
                    }
                    Ok(false) => self.try_next(rest, UnreachableCause::TimedOut),
                    Err(errno) => self.try_next(rest, cause_of(errno)),
                },
            }
        }
    }

    fn try_next(&mut self, rest: Vec<IpAddr>, cause: UnreachableCause) {
        self.last = Some(cause);
        self.state = State::NextAddress(rest);
    }

    fn unreachable(&self) -> DialResult {
        DialResult::Unreachable(self.last.unwrap_or(UnreachableCause::NoAddress))
    }

    /// Checks and dials the next address.
    fn dial_next(
        &mut self,
        mut rest: Vec<IpAddr>,
        shared: &mut Shared,
        now: Instant,
    ) -> Result<State, DialResult> {
        while let Some(address) = rest.pop() {
            match shared.check_address(address) {
                Verdict::Private => {
                    self.refused.get_or_insert(address);
                    continue;
                }
                Verdict::NoRoute => {
                    self.last = Some(UnreachableCause::NoRoute);
                    continue;
                }
                Verdict::Dial => (),
            }
            let watch = shared.watch(self.far);
            match connect(SocketAddr::new(address, self.port), watch) {
                Ok(socket) => {
                    let addresses_left = u32::try_from(rest.len()).unwrap_or(u32::MAX);
                    let left = self.until.saturating_duration_since(now);
                    let until = now + left / addresses_left.saturating_add(1);
                    return Ok(State::Connecting {
                        socket,
                        until,
                        rest,
                    });
                }
                Err(Errno::MFILE | Errno::NFILE) => {
                    return Err(DialResult::NoDescriptor);
                }
                Err(errno) => self.last = Some(cause_of(errno)),
            }
        }
        match (self.refused, self.last) {
            (Some(address), None) => Err(DialResult::Private(address)),
            _ => Err(self.unreachable()),
        }
    }
}

/// The cause for an error of connect(2) (tcp(7), ip(7)).
fn cause_of(errno: Errno) -> UnreachableCause {
    match errno {
        Errno::CONNREFUSED | Errno::CONNRESET => UnreachableCause::Refused,
        Errno::TIMEDOUT => UnreachableCause::TimedOut,
        // ENETUNREACH, EHOSTUNREACH; EACCES if a firewall rule of the host forbids it.
        _ => UnreachableCause::NoRoute,
    }
}

/// Without duplicates, in canonical form, the first address last.
fn in_dial_order(addresses: Vec<IpAddr>) -> Vec<IpAddr> {
    let mut rest: Vec<IpAddr> = Vec::new();
    for address in addresses {
        let address = address.to_canonical();
        if !rest.contains(&address) && rest.len() < ADDRESSES_MAX {
            rest.push(address);
        }
    }
    rest.reverse();
    rest
}

/// Whether a non-blocking connect has completed.
///
/// # Errors
/// The errno of the failed connect.
pub(super) fn is_connected(socket: &OwnedFd) -> Result<bool, Errno> {
    rustix::net::sockopt::socket_error(socket)??;
    match rustix::net::getpeername(socket) {
        Ok(peer) => Ok(peer.is_some()),
        Err(Errno::NOTCONN) => Ok(false),
        Err(errno) => Err(errno),
    }
}

/// Starts a TCP connection and registers it with epoll.
pub(super) fn connect(to: SocketAddr, watch: Watch<'_>) -> Result<OwnedFd, Errno> {
    let socket = socket_for(to, SocketType::STREAM)?;
    rustix::net::sockopt::set_tcp_nodelay(&socket, true)?;
    match rustix::net::connect(&socket, &to) {
        Ok(()) | Err(Errno::INPROGRESS) => (),
        Err(errno) => return Err(errno),
    }
    watch.add(socket.as_fd(), EDGE)?;
    Ok(socket)
}

/// A non-blocking socket of the address family of `to`.
pub(super) fn socket_for(to: SocketAddr, kind: SocketType) -> Result<OwnedFd, Errno> {
    let family = match to {
        SocketAddr::V4(_) => AddressFamily::INET,
        SocketAddr::V6(_) => AddressFamily::INET6,
    };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    rustix::net::socket_with(family, kind, flags, None)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::allow::Allowlist;
    use crate::relay::interface::Settings;
    use crate::relay::shared::LOOKUPS_PER_SECOND;
    use std::net::UdpSocket;

    #[test]
    fn look_ups_beyond_the_rate_limit_wait_and_are_then_sent() {
        let server = UdpSocket::bind("127.0.0.1:0").expect("bound");
        server.set_nonblocking(true).expect("set");
        let mut now = Instant::now();
        let settings = Settings {
            allowed: Allowlist::default(),
            private_ranges: Vec::new(),
            added_hosts: Vec::new(),
            hosts: Vec::new(),
            servers: vec![server.local_addr().expect("bound")],
            refuse_ech: false,
            seed: [0; 16],
        };
        let mut shared = Shared::new(settings, None, now).expect("an epoll instance");
        let far = Token::of(6);
        let queries = || {
            let mut message = [0; 512];
            std::iter::from_fn(|| server.recv(&mut message).ok()).count()
        };
        let host = Host::Name(HostName::parse(b"a.com").expect("a name"));
        let mut last = None;
        let mut sent = 0;
        for _ in 0..=LOOKUPS_PER_SECOND {
            let mut dial = Dial::start(&host, 22, far, &mut shared, now);
            assert!(matches!(dial.turn(&mut shared, now), DialResult::Pending));
            sent += queries();
            last = Some(dial);
        }
        assert_eq!(sent, 2 * LOOKUPS_PER_SECOND as usize);
        let mut dial = last.expect("the last one");
        let at = dial.deadline();
        assert!(now < at && at <= now + Duration::from_secs(1));
        now = at;
        assert!(matches!(dial.turn(&mut shared, now), DialResult::Pending));
        assert_eq!(queries(), 2);
    }
}
