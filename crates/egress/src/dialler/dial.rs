//! Dials a host outside: looks the name up once, then tries its addresses. Each address is checked before
//! it is dialled.

use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use rustix::io::Errno;

use crate::dialler::address_check::Verdict;
use crate::dialler::outside::Outside;
use crate::host::Host;
use crate::resolver::in_dial_order;
use crate::socket::{connect, is_connected};
use spec::egress_report::UnreachableCause;
use spec::host_name::HostName;

/// Timeout for the look-up and all addresses together.
const TIMEOUT: Duration = Duration::from_secs(10);

/// An attempt to connect to a host.
#[derive(Debug)]
pub(super) struct Dial {
    /// The number of its events and look-up.
    key: u64,
    port: u16,
    state: State,
    started: Instant,
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
    /// Waits for the resolver.
    LookUp,
    /// No name server answered.
    NoAnswer,
    /// Untried addresses, the next one last.
    NextAddress(Vec<IpAddr>),
    Connecting {
        socket: OwnedFd,
        until: Instant,
        rest: Vec<IpAddr>,
    },
    Done,
}

/// The result.
#[derive(Debug)]
pub(super) enum DialResult {
    /// A connection, registered with epoll.
    Connected(OwnedFd),
    /// The limit of open files is reached.
    NoDescriptor,
    /// No address may be dialled; holds the first one.
    Private(IpAddr),
    Unreachable(UnreachableCause),
}

impl Dial {
    /// Starts the attempt; [`Dial::turn`] continues it.
    pub(super) fn start(
        key: u64,
        host: &Host,
        port: u16,
        outside: &mut Outside,
        now: Instant,
    ) -> Self {
        let state = match host {
            Host::Address(address) => State::NextAddress(vec![*address]),
            Host::Name(name) => {
                let addresses = outside.static_addresses(name);
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
            key,
            port,
            state,
            started: now,
            until: now + TIMEOUT,
            last: None,
            refused: None,
        }
    }

    /// When to call [`Dial::turn`] if no event arrives.
    pub(super) fn deadline(&self) -> Instant {
        match &self.state {
            // At once.
            State::NoAnswer => self.started,
            State::RateLimited { at, .. } => (*at).min(self.until),
            State::Connecting { until, .. } => *until,
            State::LookUp | State::NextAddress(_) | State::Done => self.until,
        }
    }

    /// Takes the answer of the resolver, which may be taken over; `None` if no name server answered.
    /// [`Dial::turn`] checks each address.
    pub(super) fn take_addresses(&mut self, addresses: Option<Vec<IpAddr>>) {
        if matches!(self.state, State::LookUp) {
            self.state = match addresses {
                Some(addresses) => State::NextAddress(in_dial_order(addresses)),
                None => State::NoAnswer,
            };
        }
    }

    /// Advances the attempt as far as possible. `None`: it is not finished.
    pub(super) fn turn(&mut self, outside: &mut Outside, now: Instant) -> Option<DialResult> {
        loop {
            if self.until <= now {
                return Some(DialResult::Unreachable(match self.state {
                    State::RateLimited { .. } | State::LookUp | State::NoAnswer => {
                        UnreachableCause::NoNameServer
                    }
                    State::NextAddress(_) | State::Connecting { .. } | State::Done => {
                        UnreachableCause::TimedOut
                    }
                }));
            }
            match std::mem::replace(&mut self.state, State::Done) {
                State::Done => return Some(self.unreachable()),
                State::RateLimited { name, at } if now < at || !outside.lookup_rate.allows(now) => {
                    let at = at.max(outside.lookup_rate.next_second());
                    self.state = State::RateLimited { name, at };
                    return None;
                }
                State::RateLimited { name, .. } => {
                    self.state = if outside.look_up(self.key, name) {
                        State::LookUp
                    } else {
                        State::NoAnswer
                    };
                }
                State::LookUp => {
                    self.state = State::LookUp;
                    return None;
                }
                State::NoAnswer => {
                    return Some(DialResult::Unreachable(UnreachableCause::NoNameServer));
                }
                State::NextAddress(rest) => match self.dial_next(rest, outside, now) {
                    Ok(state) => self.state = state,
                    Err(result) => return Some(result),
                },
                State::Connecting {
                    socket,
                    until,
                    rest,
                } => match is_connected(&socket) {
                    Ok(true) => return Some(DialResult::Connected(socket)),
                    Ok(false) if now < until => {
                        self.state = State::Connecting {
                            socket,
                            until,
                            rest,
                        };
                        return None;
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
        outside: &mut Outside,
        now: Instant,
    ) -> Result<State, DialResult> {
        while let Some(address) = rest.pop() {
            match outside.check_address(address) {
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
            let watch = outside.watch(self.key);
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dialler::outside::LOOKUPS_PER_SECOND;
    use rustix::net::RecvFlags;

    #[test]
    fn look_ups_beyond_the_rate_limit_wait_and_are_then_sent() {
        let mut now = Instant::now();
        let (here, resolver) = sys::link::pair().expect("a pair");
        let mut outside = Outside::new(Default::default(), Some(here), now).expect("epoll");
        let queries = || {
            let mut message = [0; 512];
            let receive = || rustix::net::recv(&resolver, &mut message, RecvFlags::DONTWAIT).ok();
            std::iter::from_fn(receive).count()
        };
        let host = Host::Name(HostName::parse(b"a.com").expect("a name"));
        let mut last = None;
        let mut sent = 0;
        for key in 0..=u64::from(LOOKUPS_PER_SECOND) {
            let mut dial = Dial::start(key, &host, 22, &mut outside, now);
            assert!(dial.turn(&mut outside, now).is_none());
            sent += queries();
            last = Some(dial);
        }
        assert_eq!(sent, LOOKUPS_PER_SECOND as usize);
        let mut dial = last.expect("the last one");
        let at = dial.deadline();
        assert!(now < at && at <= now + Duration::from_secs(1));
        now = at;
        assert!(dial.turn(&mut outside, now).is_none());
        assert_eq!(queries(), 1);
    }
}
