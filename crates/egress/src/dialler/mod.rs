//! The supervisor's side of the relay. The relay and the resolver are processes without rights, which may
//! be taken over by what they parse: each of their messages is checked, and a malformed one ends them.
//!
//! The relay asks for a connection to a host. The allowlist is compared again, the name looked up by the
//! resolver, each address checked, and the connected socket passed.

mod address_check;
mod dial;
mod outside;

use std::collections::{BTreeMap, VecDeque};
use std::mem::MaybeUninit;
use std::net::IpAddr;
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::{Timespec, epoll};
use rustix::io::Errno;

use crate::allow::Allowlist;
use crate::dialler::dial::{Dial, DialResult};
use crate::dialler::outside::Outside;
use crate::link::{self, DialReply, Link, Received, Reply, Request, Resolved};
use crate::outcome::{OUTCOME_BYTES_MAX, Outcome};
use crate::relay::{CONNECTIONS_MAX, Published, Relay, Rules, Sockets};
use crate::resolver::ResolverProcess;
use confinement::Role;
use spec::egress_report::PublishedReport;
use spec::host_name::HostName;
use spec::sources_policy::IpRange;
use sys::worker::{Answer, Worker, WorkerError, WorkerLimits};

/// Numbers of the links' events. Dials have their keys.
const RELAY: u64 = u64::MAX;
const RESOLVER: u64 = u64::MAX - 1;
const EVENTS_PER_ROUND: usize = 128;
/// Maximum number of messages received from one process in one turn.
const MESSAGES_PER_TURN: usize = 256;
/// How long the relay may take to count what is left in its sockets. A test waits for one that was taken over.
const FINISH_TIMEOUT: Duration =
    Duration::from_secs(if cfg!(feature = "planted-bugs") { 1 } else { 5 });
/// The relay's own limit is 32 MiB; the rest is for its records.
const RELAY_LIMITS: WorkerLimits = WorkerLimits {
    time: None,
    memory_bytes: 128 << 20,
    file_bytes: 0,
    answer_bytes: OUTCOME_BYTES_MAX,
};

/// Settings for the decisions about connections.
#[derive(Debug, Clone, Default)]
pub struct Settings {
    /// The allowed destinations.
    pub allowed: Allowlist,
    /// Non-public addresses that may be dialled. An address of the host itself is opened only by an entry
    /// for exactly this address.
    pub private_ranges: Vec<IpRange>,
    /// Addresses of names that take precedence over all other sources.
    pub added_hosts: Vec<(HostName, IpAddr)>,
    /// The host's `hosts` file.
    pub hosts: Vec<u8>,
    /// Whether a ClientHello with an encrypted inner ClientHello is refused.
    pub refuse_ech: bool,
}

/// A request for a socket of the body's namespace that is connected, or connecting, to `port` on the
/// loopback of the namespace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConnectRequest {
    /// The id that the answer must carry.
    pub id: i32,
    /// Connect to ::1 instead of 127.0.0.1.
    pub is_v6: bool,
    pub port: u16,
}

/// The network of a run failed in part.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NetworkFailure {
    #[error(
        "the process that relays connections ended before the run: from then on the body had no \
         network, and its connections are not in this report"
    )]
    Ended,
    #[error(
        "the process that relays connections sent what it may not send, and was ended: from then on the \
         body had no network, and its connections are not in this report"
    )]
    Malformed,
    #[error("the process that relays connections gave no account: they are not in this report")]
    NoOutcome,
    #[error("the process that queries name servers ended before the run: later look-ups failed")]
    Resolver,
}

/// Parses a message of the resolver, as the supervisor receives it: the id of the query and, if a name
/// server answered, the addresses. `None`: no resolver sends it.
#[must_use]
pub fn read_resolver_answer(message: &[u8]) -> Option<(u64, Option<Vec<IpAddr>>)> {
    let resolved = link::parse::<Resolved>(message).filter(Resolved::is_genuine)?;
    Some((resolved.id, resolved.addresses))
}

/// The supervisor's side of a run's network.
#[derive(Debug)]
pub struct Dialler {
    outside: Outside,
    /// `None`: the relay has failed.
    relay: Option<Link>,
    dials: BTreeMap<u64, Open>,
    last_key: u64,
    /// Ids of the requests for a socket inside, and those that the caller has not taken yet.
    inside: Vec<i32>,
    connect_requests: VecDeque<ConnectRequest>,
    published: Vec<PublishedReport>,
    allowed: Allowlist,
    has_body_ended: bool,
    is_drained: bool,
    failure: Option<NetworkFailure>,
    /// The processes. They end with this.
    relay_worker: Option<Worker>,
    _resolver_worker: Option<Worker>,
}

/// A dial and the id of its request.
#[derive(Debug)]
struct Open {
    id: i32,
    dial: Dial,
}

impl Dialler {
    /// Starts the relay in a process of its own, which takes the sockets. Without sockets of the body,
    /// only published ports are served. Without a resolver, names have static addresses only.
    ///
    /// # Errors
    /// The errno of socketpair(2), pipe2(2), fork(2), epoll_create1(2), epoll_ctl(2), or of socket(2)
    /// for the route queries.
    pub fn start(
        sockets: Option<Sockets>,
        published: Vec<Published>,
        settings: Settings,
        resolver: Option<ResolverProcess>,
        now: Instant,
    ) -> Result<Self, Errno> {
        let (link, child_end) = sys::link::pair()?;
        let mut keep = vec![child_end.as_raw_fd()];
        keep.extend(sockets.iter().flat_map(Sockets::descriptors));
        keep.extend(published.iter().map(|port| port.listener.as_raw_fd()));
        let ports = published.iter().map(Published::report).collect();
        let rules = Rules {
            allowed: settings.allowed.clone(),
            refuse_ech: settings.refuse_ech,
        };
        let run = move |permit, _answer: &Answer<'_>| {
            let relay = Relay::new(permit, sockets, published, rules, child_end, Instant::now());
            relay.and_then(Relay::run).unwrap_or_default()
        };
        let confine = |keep: &[_]| {
            sys::process::request_short_slice();
            Role::Relay.enter(keep)
        };
        let relay_worker = Worker::start(RELAY_LIMITS, &keep, confine, run)?;
        let (resolver_worker, resolver) = resolver
            .map(|process| (process.worker, process.link))
            .unzip();
        Ok(Self {
            relay_worker: Some(relay_worker),
            _resolver_worker: resolver_worker,
            ..Self::new(link, resolver, ports, settings, now)?
        })
    }

    /// The side of the supervisor alone: `relay` and `resolver` lead to a [`Relay`] and a
    /// [`crate::resolver::Resolver`].
    ///
    /// # Errors
    /// As [`Dialler::start`].
    pub fn new(
        relay: OwnedFd,
        resolver: Option<OwnedFd>,
        published: Vec<PublishedReport>,
        settings: Settings,
        now: Instant,
    ) -> Result<Self, Errno> {
        let allowed = settings.allowed.clone();
        let outside = Outside::new(settings, resolver, now)?;
        Ok(Self {
            relay: Some(Link::new(relay, outside.watch(RELAY))?),
            outside,
            dials: BTreeMap::new(),
            last_key: 0,
            inside: Vec::new(),
            connect_requests: VecDeque::new(),
            published,
            allowed,
            has_body_ended: false,
            is_drained: false,
            failure: None,
            relay_worker: None,
            _resolver_worker: None,
        })
    }

    /// Readable when [`Dialler::turn`] has work.
    #[must_use]
    pub fn as_fd(&self) -> BorrowedFd<'_> {
        self.outside.epoll.as_fd()
    }

    /// When to call [`Dialler::turn`] if the descriptor does not become readable.
    #[must_use]
    pub fn deadline(&self) -> Option<Instant> {
        self.dials.values().map(|open| open.dial.deadline()).min()
    }

    /// Does all pending work without blocking.
    ///
    /// # Errors
    /// The errno of epoll_wait(2). A failure of the relay ends only the network.
    pub fn turn(&mut self, now: Instant) -> Result<(), Errno> {
        let mut room = [const { MaybeUninit::uninit() }; EVENTS_PER_ROUND];
        let at_once = Timespec::default();
        let (events, _) = match epoll::wait(&self.outside.epoll, &mut room, Some(&at_once)) {
            Ok(events) => events,
            Err(Errno::INTR) => return Ok(()),
            Err(errno) => return Err(errno),
        };
        for event in events {
            match event.data.u64() {
                RELAY => self.serve_relay(now),
                RESOLVER => self.take_resolved(now),
                key => self.step(key, now),
            }
        }
        if self.outside.has_resolver_failed {
            let open = self.dials.values_mut();
            open.for_each(|open| open.dial.take_addresses(None));
        }
        let dials = self.dials.iter();
        let late = dials.filter(|(_, open)| open.dial.deadline() <= now);
        let late: Vec<u64> = late.map(|(key, _)| *key).collect();
        for key in late {
            self.step(key, now);
        }
        Ok(())
    }

    fn serve_relay(&mut self, now: Instant) {
        for _ in 0..MESSAGES_PER_TURN {
            let Some(relay) = &mut self.relay else {
                return;
            };
            if relay.flush(self.outside.watch(RELAY)).is_err() {
                return self.fail(NetworkFailure::Ended);
            }
            // A relay that does not take its replies gets no further ones.
            if relay.has_unsent() {
                return;
            }
            match relay.receive::<Request>() {
                Received::Message(request, _) => {
                    if !self.take_request(request, now) {
                        self.fail(NetworkFailure::Malformed);
                    }
                }
                Received::Nothing => return,
                Received::End => self.fail(NetworkFailure::Ended),
                Received::Malformed => self.fail(NetworkFailure::Malformed),
            }
        }
    }

    /// Returns whether the relay may send it.
    fn take_request(&mut self, request: Request, now: Instant) -> bool {
        match request {
            Request::Dial { id, host, port } => {
                let is_new = self.dials.values().all(|open| open.id != id);
                if !is_new
                    || self.dials.len() >= CONNECTIONS_MAX
                    || !self.outside.allows(&host, port)
                {
                    return false;
                }
                self.last_key += 1;
                let key = self.last_key;
                let dial = Dial::start(key, &host, port, &mut self.outside, now);
                self.dials.insert(key, Open { id, dial });
                self.step(key, now);
                true
            }
            Request::Inside { id, is_v6, port } => {
                let is_published = self.published.iter().any(|known| known.body_port == port);
                if !is_published || self.inside.contains(&id) {
                    return false;
                }
                self.inside.push(id);
                // The relay has given up earlier ones if there are so many.
                if self.has_body_ended || self.inside.len() > CONNECTIONS_MAX {
                    self.take_socket(id, Err(Errno::CONNREFUSED));
                } else {
                    let request = ConnectRequest { id, is_v6, port };
                    self.connect_requests.push_back(request);
                }
                true
            }
            Request::Drained => {
                self.is_drained = true;
                self.has_body_ended
            }
        }
    }

    fn take_resolved(&mut self, now: Instant) {
        for _ in 0..MESSAGES_PER_TURN {
            let Some(resolved) = self.outside.next_resolved() else {
                break;
            };
            // No match: the dial has timed out.
            if let Some(open) = self.dials.get_mut(&resolved.id) {
                open.dial.take_addresses(resolved.addresses);
                self.step(resolved.id, now);
            }
        }
    }

    fn step(&mut self, key: u64, now: Instant) {
        // An event of a finished dial.
        let Some(open) = self.dials.get_mut(&key) else {
            return;
        };
        let id = open.id;
        let Some(result) = open.dial.turn(&mut self.outside, now) else {
            return;
        };
        self.dials.remove(&key);
        let (result, socket) = match result {
            // The copy of the relay would keep the socket registered.
            DialResult::Connected(socket) => match epoll::delete(&self.outside.epoll, &socket) {
                Ok(()) => (DialReply::Connected, Some(socket)),
                Err(_) => (DialReply::NoDescriptor, None),
            },
            DialResult::NoDescriptor => (DialReply::NoDescriptor, None),
            DialResult::Private(address) => (DialReply::Private(address), None),
            DialResult::Unreachable(cause) => (DialReply::Unreachable(cause), None),
        };
        self.reply(Reply::Dialled { id, result }, socket);
    }

    fn reply(&mut self, reply: Reply, socket: Option<OwnedFd>) {
        if let Some(relay) = &mut self.relay
            && relay
                .send(&reply, socket, self.outside.watch(RELAY))
                .is_err()
        {
            self.fail(NetworkFailure::Ended);
        }
    }

    /// Ends the relay. The run goes on without a network.
    fn fail(&mut self, failure: NetworkFailure) {
        self.failure.get_or_insert(failure);
        self.relay = None;
        self.relay_worker = None;
        self.dials.clear();
        self.inside.clear();
        self.connect_requests.clear();
    }

    /// The next request for a socket of the body's namespace. Call after each [`Dialler::turn`] until it
    /// returns `None`.
    pub fn next_connect_request(&mut self) -> Option<ConnectRequest> {
        self.connect_requests.pop_front()
    }

    /// Takes the answer to a [`ConnectRequest`]: the socket, connected or connecting, or the errno.
    pub fn take_socket(&mut self, id: i32, socket: Result<OwnedFd, Errno>) {
        if let Some(at) = self.inside.iter().position(|known| *known == id) {
            self.inside.swap_remove(at);
            self.reply(Reply::Inside { id }, socket.ok());
        }
    }

    /// All processes of the body have ended: data that they sent is still forwarded, and no inbound
    /// connection is accepted.
    pub fn body_has_ended(&mut self) {
        self.has_body_ended = true;
        self.connect_requests.clear();
        self.inside.clear();
        self.reply(Reply::BodyHasEnded, None);
    }

    /// Whether all data that the body had sent before it ended is forwarded.
    #[must_use]
    pub fn is_drained(&self) -> bool {
        self.relay.is_none() || self.is_drained
    }

    /// Ends the processes. Returns what the relay counted, and what failed.
    #[must_use]
    pub fn finish(mut self) -> (Outcome, Vec<NetworkFailure>) {
        // Its end makes the relay finish.
        self.relay = None;
        let worker = self.relay_worker.take();
        let answer = worker.map(|worker| worker.finish(FINISH_TIMEOUT, OUTCOME_BYTES_MAX));
        let outcome = match (self.failure, answer) {
            (Some(failure), _) => Err(failure),
            (None, Some(Ok(bytes))) => self.read_outcome(&bytes),
            (None, Some(Err(WorkerError::Exited))) => Err(NetworkFailure::Ended),
            (None, Some(Err(_)) | None) => Err(NetworkFailure::NoOutcome),
        };
        let has_failed = self.outside.has_resolver_failed;
        let resolver = has_failed.then_some(NetworkFailure::Resolver);
        match outcome {
            Ok(outcome) => (outcome, resolver.into_iter().collect()),
            Err(failure) => {
                let mut outcome = Outcome::default();
                outcome.report.published = self.published;
                (
                    outcome,
                    [Some(failure), resolver].into_iter().flatten().collect(),
                )
            }
        }
    }

    /// Reads what [`Relay::finish`] wrote, which may be forged.
    ///
    /// # Errors
    /// [`NetworkFailure::NoOutcome`].
    pub fn read_outcome(&self, bytes: &[u8]) -> Result<Outcome, NetworkFailure> {
        let outcome = Outcome::read(bytes, &self.allowed, &self.published);
        outcome.ok_or(NetworkFailure::NoOutcome)
    }

    /// What failed so far.
    #[must_use]
    pub fn failure(&self) -> Option<NetworkFailure> {
        self.failure
    }
}
