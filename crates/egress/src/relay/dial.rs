//! Outbound dialling: one look-up of a name for each connection, then a connection to one of the
//! resulting addresses, each checked before it is dialled.

use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd as _, OwnedFd};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType};

use crate::relay::guard::Verdict;
use crate::relay::judge::Wanted;
use crate::relay::lookup::{Found, Lookup};
use crate::relay::shared::Shared;
use crate::relay::slots::{EDGE, Token};
use spec::denial_reason::DenialReason;
use spec::egress_report::UnreachableCause;
use spec::host_name::HostName;

/// Timeout for a look-up and all its addresses together.
const PATIENCE: Duration = Duration::from_secs(10);
/// Maximum number of addresses of a name that are tried.
const ADDRESSES_MAX: usize = 16;

/// An attempt to connect to the requested destination.
#[derive(Debug)]
pub(super) struct Reach {
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
    /// Waits for the look-up rate limit, then looks the name up.
    Ask {
        name: HostName,
        at: Instant,
    },
    LookUp(Lookup),
    /// Untried addresses, the next one last.
    Dial(Vec<IpAddr>),
    Connecting {
        socket: OwnedFd,
        until: Instant,
        rest: Vec<IpAddr>,
    },
    Over,
}

/// The current result.
#[derive(Debug)]
pub(super) enum Reached {
    Waits,
    /// A connection, already registered with epoll.
    Connected(OwnedFd),
    /// No descriptor is available.
    Denied(DenialReason),
    /// No address may be dialled; holds the first one.
    Private(IpAddr),
    Nobody(UnreachableCause),
}

impl Reach {
    /// Starts the attempt; [`Reach::turn`] continues it. `far` is the token of events of its sockets.
    pub(super) fn begin(
        wanted: &Wanted,
        port: u16,
        far: Token,
        shared: &mut Shared,
        now: Instant,
    ) -> Self {
        let state = match wanted {
            Wanted::Address(address) => State::Dial(vec![*address]),
            Wanted::Name(name) => {
                let known = shared.known_addresses(name);
                if known.is_empty() {
                    State::Ask {
                        name: name.clone(),
                        at: now,
                    }
                } else {
                    in_order(known)
                }
            }
        };
        Self {
            port,
            far,
            state,
            until: now + PATIENCE,
            last: None,
            refused: None,
        }
    }

    /// When to call [`Reach::turn`] if no event arrives.
    pub(super) fn deadline(&self) -> Instant {
        match &self.state {
            State::Ask { at, .. } => (*at).min(self.until),
            State::LookUp(lookup) => lookup.deadline().min(self.until),
            State::Connecting { until, .. } => *until,
            State::Dial(_) | State::Over => self.until,
        }
    }

    /// Advances the attempt as far as possible.
    pub(super) fn turn(&mut self, shared: &mut Shared, now: Instant) -> Reached {
        loop {
            if self.until <= now {
                return Reached::Nobody(match self.state {
                    State::Ask { .. } | State::LookUp(_) => UnreachableCause::NoNameServer,
                    State::Dial(_) | State::Connecting { .. } | State::Over => {
                        UnreachableCause::TimedOut
                    }
                });
            }
            match std::mem::replace(&mut self.state, State::Over) {
                State::Over => return self.nobody(),
                State::Ask { name, at } if now < at || !shared.lookups.allows(now) => {
                    let at = at.max(shared.lookups.next());
                    self.state = State::Ask { name, at };
                    return Reached::Waits;
                }
                State::Ask { name, .. } => {
                    let ids = shared.ids.next();
                    let watch = shared.watch(self.far);
                    let servers = &shared.settings.servers;
                    self.state = State::LookUp(Lookup::begin(name, servers, ids, watch, now));
                }
                State::LookUp(mut lookup) => {
                    let watch = shared.watch(self.far);
                    match lookup.turn(&shared.settings.servers, watch, now) {
                        Found::Waits => {
                            self.state = State::LookUp(lookup);
                            return Reached::Waits;
                        }
                        Found::Addresses(addresses) => self.state = in_order(addresses),
                        Found::Nobody => {
                            return Reached::Nobody(UnreachableCause::NoNameServer);
                        }
                    }
                }
                State::Dial(rest) => match self.dial(rest, shared, now) {
                    Ok(state) => self.state = state,
                    Err(reached) => return reached,
                },
                State::Connecting {
                    socket,
                    until,
                    rest,
                } => match is_connected(&socket) {
                    Ok(true) => return Reached::Connected(socket),
                    Ok(false) if now < until => {
                        self.state = State::Connecting {
                            socket,
                            until,
                            rest,
                        };
                        return Reached::Waits;
                    }
                    Ok(false) => self.go_on(rest, UnreachableCause::TimedOut),
                    Err(errno) => self.go_on(rest, cause_of(errno)),
                },
            }
        }
    }

    fn go_on(&mut self, rest: Vec<IpAddr>, cause: UnreachableCause) {
        self.last = Some(cause);
        self.state = State::Dial(rest);
    }

    fn nobody(&self) -> Reached {
        Reached::Nobody(self.last.unwrap_or(UnreachableCause::NoAddress))
    }

    /// Checks and dials the next address, independent of the others.
    fn dial(
        &mut self,
        mut rest: Vec<IpAddr>,
        shared: &mut Shared,
        now: Instant,
    ) -> Result<State, Reached> {
        while let Some(address) = rest.pop() {
            match shared.judge_address(address) {
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
            let dialled = connect(SocketAddr::new(address, self.port))
                .and_then(|socket| watch.add(socket.as_fd(), EDGE).map(|()| socket));
            match dialled {
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
                    return Err(Reached::Denied(DenialReason::Limit));
                }
                Err(errno) => self.last = Some(cause_of(errno)),
            }
        }
        match (self.refused, self.last) {
            (Some(address), None) => Err(Reached::Private(address)),
            _ => Err(self.nobody()),
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
fn in_order(addresses: Vec<IpAddr>) -> State {
    let mut rest: Vec<IpAddr> = Vec::new();
    for address in addresses {
        let address = address.to_canonical();
        if !rest.contains(&address) && rest.len() < ADDRESSES_MAX {
            rest.push(address);
        }
    }
    rest.reverse();
    State::Dial(rest)
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

fn connect(to: SocketAddr) -> Result<OwnedFd, Errno> {
    let socket = socket_for(to, SocketType::STREAM)?;
    rustix::net::sockopt::set_tcp_nodelay(&socket, true)?;
    match rustix::net::connect(&socket, &to) {
        Ok(()) | Err(Errno::INPROGRESS) => Ok(socket),
        Err(errno) => Err(errno),
    }
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
    use crate::names::Names;
    use crate::relay::LOOKUPS_A_SECOND;
    use crate::relay::flow::Buffers;
    use crate::relay::ledger::Ledger;
    use crate::relay::questions::Pace;
    use crate::relay::shared::QuestionIds;
    use crate::relay::terms::Settings;
    use rustix::event::epoll;
    use std::net::UdpSocket;

    fn shared(server: SocketAddr, now: Instant) -> Shared {
        Shared {
            epoll: epoll::create(epoll::CreateFlags::CLOEXEC).expect("made"),
            settings: Settings {
                allowed: Allowlist::default(),
                private_ranges: Vec::new(),
                added_hosts: Vec::new(),
                hosts: Vec::new(),
                servers: vec![server],
                refuse_ech: false,
                seed: [0; 16],
            },
            names: Names::default(),
            ledger: Ledger::new(now),
            pace: Pace::new(1, now),
            lookups: Pace::new(LOOKUPS_A_SECOND, now),
            guard: None,
            buffers: Buffers::new(),
            asks: std::collections::VecDeque::new(),
            ids: QuestionIds::new([0; 16]),
            last_ask: 0,
            known: std::collections::HashMap::new(),
        }
    }

    #[test]
    fn a_flood_of_dials_is_no_flood_of_questions_and_whoever_waits_is_served_later() {
        let server = UdpSocket::bind("127.0.0.1:0").expect("bound");
        server.set_nonblocking(true).expect("set");
        let mut now = Instant::now();
        let mut shared = shared(server.local_addr().expect("bound"), now);
        let name = HostName::parse(b"a.com").expect("a name");
        let far = Token::of(6);
        let asked = || {
            let mut message = [0; 512];
            std::iter::from_fn(|| server.recv(&mut message).ok()).count()
        };
        let wanted = Wanted::Name(name);
        let mut waits = None;
        let mut questions = 0;
        for _ in 0..=LOOKUPS_A_SECOND {
            let mut reach = Reach::begin(&wanted, 22, far, &mut shared, now);
            assert!(matches!(reach.turn(&mut shared, now), Reached::Waits));
            questions += asked();
            waits = Some(reach);
        }
        assert_eq!(questions, 2 * LOOKUPS_A_SECOND as usize);
        let mut reach = waits.expect("the last one");
        let at = reach.deadline();
        assert!(now < at && at <= now + Duration::from_secs(1));
        now = at;
        assert!(matches!(reach.turn(&mut shared, now), Reached::Waits));
        assert_eq!(asked(), 2);
    }
}
