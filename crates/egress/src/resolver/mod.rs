//! Resolves allowed names outside of the sandbox. Does not use getaddrinfo(3), whose NSS modules a
//! static program cannot load.
//!
//! Queries the name servers of the host's `/etc/resolv.conf`, once for each address family, in a process
//! without rights. Names are fully qualified: search lists are not used.

pub mod answer;
pub mod hosts;
mod lookup;
pub mod servers;

pub use lookup::look_up;

use std::collections::HashMap;
use std::mem::MaybeUninit;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd};
use std::time::Instant;

use rustix::event::{Timespec, epoll};
use rustix::io::Errno;

use crate::link::{Link, Query, Received, Resolved};
use crate::resolver::lookup::{Lookup, LookupResult};
use crate::socket::{Watch, wait};
use confinement::Role;
use spec::parse_permit::ParsePermit;
use sys::worker::{Answer, Worker, WorkerLimits};

/// Maximum number of addresses of a name that are tried.
pub(crate) const ADDRESSES_MAX: usize = 16;
const LIMITS: WorkerLimits = WorkerLimits {
    time: None,
    memory_bytes: 64 << 20,
    file_bytes: 0,
    answer_bytes: 0,
};
/// The number of the link's events. Look-ups have their ids.
const LINK: u64 = u64::MAX;
const EVENTS_PER_ROUND: usize = 64;

/// The process that queries the name servers. It ends with this.
#[derive(Debug)]
pub struct ResolverProcess {
    pub(crate) worker: Worker,
    pub(crate) link: OwnedFd,
}

impl ResolverProcess {
    /// Starts it. `seed` makes the ids of its queries unpredictable. The process has a copy of the
    /// memory of this one, so start it before values of secrets are there.
    ///
    /// # Errors
    /// The errno of socketpair(2), pipe2(2) or fork(2).
    pub fn start(servers: Vec<SocketAddr>, seed: [u8; 16]) -> Result<Self, Errno> {
        let (link, child_end) = sys::link::pair()?;
        let keep = [child_end.as_raw_fd()];
        let run = move |permit, _answer: &Answer<'_>| {
            Resolver::new(permit, child_end, servers, seed)
                .and_then(Resolver::run)
                .unwrap_or_default();
            Vec::new()
        };
        let confine = |keep: &[_]| Role::Resolver.enter(keep);
        let worker = Worker::start(LIMITS, &keep, confine, run)?;
        Ok(Self { worker, link })
    }
}

/// The event loop of that process.
#[derive(Debug)]
pub struct Resolver {
    permit: ParsePermit,
    epoll: OwnedFd,
    link: Link,
    servers: Vec<SocketAddr>,
    query_ids: QueryIds,
    lookups: HashMap<u64, Lookup>,
    has_ended: bool,
}

impl Resolver {
    /// `link` leads to the supervisor.
    ///
    /// # Errors
    /// The errno of epoll_create1(2) or epoll_ctl(2).
    pub fn new(
        permit: ParsePermit,
        link: OwnedFd,
        servers: Vec<SocketAddr>,
        seed: [u8; 16],
    ) -> Result<Self, Errno> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let watch = Watch {
            epoll: &epoll,
            number: LINK,
        };
        Ok(Self {
            permit,
            link: Link::new(link, watch)?,
            epoll,
            servers,
            query_ids: QueryIds { seed, used: 0 },
            lookups: HashMap::new(),
            has_ended: false,
        })
    }

    fn run(mut self) -> Result<(), Errno> {
        while !self.has_ended {
            wait(self.epoll.as_fd(), self.deadline())?;
            self.turn(Instant::now())?;
        }
        Ok(())
    }

    /// Readable when [`Resolver::turn`] has work.
    #[must_use]
    pub fn as_fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }

    fn deadline(&self) -> Option<Instant> {
        self.lookups.values().map(Lookup::deadline).min()
    }

    /// Does all pending work without blocking.
    ///
    /// # Errors
    /// The errno of epoll_wait(2), or of sendmsg(2) if the supervisor has ended.
    pub fn turn(&mut self, now: Instant) -> Result<(), Errno> {
        let mut room = [const { MaybeUninit::uninit() }; EVENTS_PER_ROUND];
        let at_once = Timespec::default();
        let (events, _) = match epoll::wait(&self.epoll, &mut room, Some(&at_once)) {
            Ok(events) => events,
            Err(Errno::INTR) => return Ok(()),
            Err(errno) => return Err(errno),
        };
        for event in events {
            match event.data.u64() {
                LINK => self.receive(now)?,
                id => self.step(id, now)?,
            }
        }
        let lookups = self.lookups.iter();
        let late = lookups.filter(|(_, lookup)| lookup.deadline() <= now);
        let late: Vec<u64> = late.map(|(id, _)| *id).collect();
        for id in late {
            self.step(id, now)?;
        }
        Ok(())
    }

    fn receive(&mut self, now: Instant) -> Result<(), Errno> {
        let watch = Watch {
            epoll: &self.epoll,
            number: LINK,
        };
        self.link.flush(watch)?;
        match self.link.receive::<Query>() {
            Received::Message(Query { id, name }, _) => {
                let watch = Watch {
                    epoll: &self.epoll,
                    number: id,
                };
                let ids = self.query_ids.next();
                let lookup = Lookup::start(name, &self.servers, ids, watch, now);
                self.lookups.insert(id, lookup);
                self.step(id, now)?;
            }
            Received::Nothing => (),
            Received::End | Received::Malformed => self.has_ended = true,
        }
        Ok(())
    }

    fn step(&mut self, id: u64, now: Instant) -> Result<(), Errno> {
        let watch = |number| Watch {
            epoll: &self.epoll,
            number,
        };
        // An event of a finished look-up.
        let Some(lookup) = self.lookups.get_mut(&id) else {
            return Ok(());
        };
        let addresses = match lookup.turn(&self.permit, &self.servers, watch(id), now) {
            LookupResult::Pending => return Ok(()),
            LookupResult::Addresses(addresses) => {
                let mut addresses = in_dial_order(addresses);
                addresses.reverse();
                Some(addresses)
            }
            LookupResult::NoAnswer => None,
        };
        let resolved = Resolved { id, addresses };
        self.link.send(&resolved, None, watch(LINK))?;
        self.lookups.remove(&id);
        Ok(())
    }
}

/// Without duplicates, in canonical form, the first address last.
pub(crate) fn in_dial_order(addresses: Vec<IpAddr>) -> Vec<IpAddr> {
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

/// Unpredictable DNS query ids, derived from a seed and a counter.
#[derive(Debug)]
struct QueryIds {
    seed: [u8; 16],
    used: u64,
}

impl QueryIds {
    fn next(&mut self) -> [u16; 2] {
        use sha2::Digest as _;
        self.used += 1;
        let digest = sha2::Sha256::new()
            .chain_update(self.seed)
            .chain_update(self.used.to_be_bytes())
            .finalize();
        [
            u16::from_be_bytes([digest[0], digest[1]]),
            u16::from_be_bytes([digest[2], digest[3]]),
        ]
    }
}
