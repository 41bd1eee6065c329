//! The body's network namespace with a relay: routes, sockets, capture. The child creates them and
//! sends all sockets to the supervisor, which never enters the namespace.
//!
//! The child's part allocates nothing: the supervisor prepares the netlink messages.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{AddressFamily, Protocol, SocketFlags, SocketType, sockopt};

use crate::error::SandboxError;
use crate::prepare::expect_message;
use crate::steps::{ChildStep, StepError, at, at_index, message};
use filter::bpf::Instruction;
use spec::body_network::{ADDRESS_V4, ADDRESS_V6, PROXY_PORT, QUESTION_PORT, RELAY_PORT};
use spec::network::{Capture, CaptureChoice};
use sys::arena::Arena;
use sys::link::{self, Message};
use sys::namespace::LOOPBACK_INDEX;
use sys::netlink::{self, Batch};
use sys::{packet, socket};

/// Backlog of the relay's listeners: the limit of a new network namespace.
const BACKLOG: i32 = 4_096;
/// Receive buffer for DNS queries or log messages. The host may limit it further
/// (`net.core.rmem_max`); the relay counts drops.
const BUFFER_BYTES: usize = 4 << 20;

/// Configuration of the network namespace.
#[derive(Debug, Clone)]
pub struct NetworkPlan {
    pub routes: Batch,
    /// Without IPv6.
    pub routes_v4_only: Batch,
    pub capture: CapturePlan,
}

/// How connections are redirected to the relay.
#[derive(Debug, Clone)]
pub struct CapturePlan {
    pub wanted: CaptureChoice,
    /// Rules for [`Capture::Tproxy`].
    pub rules: Batch,
    /// Without IPv6.
    pub rules_v4_only: Batch,
    /// Enables the log of refused packets.
    pub log: Batch,
    /// Ports with a listener in [`Capture::AnyIp`].
    pub ports: Vec<u16>,
    /// Filter of [`Capture::AnyIp`] that selects the loopback packets to report, those that reach no
    /// listener.
    pub tap: Vec<Instruction>,
}

/// Sockets of the body's network namespace, all non-blocking.
#[derive(Debug)]
pub struct NetworkSockets {
    pub capture: Capture,
    pub listeners: Vec<OwnedFd>,
    /// Listeners for proxy clients.
    pub proxies: Vec<OwnedFd>,
    /// UDP sockets for DNS queries, which report the destination address.
    pub questions: Vec<OwnedFd>,
    /// Source of reports about refused packets: a netlink socket of NFLOG, or a packet socket.
    pub log: OwnedFd,
}

#[derive(Debug, Clone, Copy)]
struct Messages<'a> {
    bytes: &'a [u8],
    acknowledged: u32,
}

impl<'a> Messages<'a> {
    fn copy(arena: &'a Arena, batch: &Batch) -> Result<Self, Errno> {
        Ok(Self {
            bytes: arena.slice(batch.bytes())?,
            acknowledged: batch.acknowledged(),
        })
    }

    fn send(self, socket: &OwnedFd) -> Result<(), Errno> {
        netlink::exchange(socket, self.bytes, self.acknowledged)
    }
}

#[derive(Debug, Clone, Copy)]
pub(super) struct NetworkSteps<'a> {
    routes: Messages<'a>,
    routes_v4_only: Messages<'a>,
    wanted: CaptureChoice,
    rules: Messages<'a>,
    rules_v4_only: Messages<'a>,
    log: Messages<'a>,
    ports: &'a [u16],
    tap: &'a [Instruction],
}

/// Copies `plan` into the arena. Fails with ENOMEM if the arena is full.
pub(super) fn copy_plan<'a>(
    arena: &'a Arena,
    plan: &NetworkPlan,
) -> Result<&'a NetworkSteps<'a>, Errno> {
    let capture = &plan.capture;
    let steps = NetworkSteps {
        routes: Messages::copy(arena, &plan.routes)?,
        routes_v4_only: Messages::copy(arena, &plan.routes_v4_only)?,
        wanted: capture.wanted,
        rules: Messages::copy(arena, &capture.rules)?,
        rules_v4_only: Messages::copy(arena, &capture.rules_v4_only)?,
        log: Messages::copy(arena, &capture.log)?,
        ports: arena.slice(&capture.ports)?,
        tap: arena.slice(&capture.tap)?,
    };
    arena.slice(&[steps])?.first().ok_or(Errno::NOMEM)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(i32)]
enum Part {
    /// Listeners of one port of [`Capture::AnyIp`].
    Port = 1,
    /// All other sockets, as last message of [`Capture::AnyIp`].
    AnyIp = 2,
    /// All sockets of [`Capture::Tproxy`].
    Tproxy = 3,
}

struct Pair {
    v4: OwnedFd,
    v6: Option<OwnedFd>,
}

impl Pair {
    fn make(
        has_v6: bool,
        [v4, v6]: [SocketAddr; 2],
        make: impl Fn(SocketAddr) -> Result<OwnedFd, Errno>,
    ) -> Result<Self, Errno> {
        Ok(Self {
            v4: make(v4)?,
            v6: if has_v6 { Some(make(v6)?) } else { None },
        })
    }
}

struct Common {
    proxies: Pair,
    questions: Pair,
}

impl Common {
    fn has_v6(&self) -> bool {
        self.proxies.v6.is_some()
    }
}

/// Child: sets up the network and sends all sockets to the supervisor. Needs all capabilities over
/// its namespaces.
pub(super) fn set_up(steps: &NetworkSteps<'_>, link: BorrowedFd<'_>) -> Result<(), StepError> {
    let common = open_common(steps)?;
    match steps.wanted {
        CaptureChoice::Tproxy => capture_all(steps, &common, link),
        CaptureChoice::AnyIp => capture_ports(steps, &common, link),
        // The kernel loads a missing module on demand, so only an attempt shows support.
        CaptureChoice::Auto => match capture_all(steps, &common, link) {
            Err(StepError {
                step: ChildStep::Log | ChildStep::CaptureRules,
                ..
            }) => capture_ports(steps, &common, link),
            other => other,
        },
    }
}

fn open_common(steps: &NetworkSteps<'_>) -> Result<Common, StepError> {
    let proxy_v4 = SocketAddr::from((Ipv4Addr::LOCALHOST, PROXY_PORT));
    let proxy_v6 = SocketAddr::from((Ipv6Addr::LOCALHOST, PROXY_PORT));
    let v4 = listener(proxy_v4).map_err(at(ChildStep::Proxies))?;
    // IPv6 is available if its loopback address is.
    let v6 = match listener(proxy_v6) {
        Ok(proxy) => Some(proxy),
        Err(Errno::AFNOSUPPORT | Errno::ADDRNOTAVAIL) => None,
        Err(errno) => return Err(at(ChildStep::Proxies)(errno)),
    };
    let routes = if v6.is_some() {
        steps.routes
    } else {
        steps.routes_v4_only
    };
    netlink::open(None)
        .and_then(|routing| routes.send(&routing))
        .map_err(at(ChildStep::Routes))?;
    let any = at_any_address(QUESTION_PORT);
    let questions = Pair::make(v6.is_some(), any, questions).map_err(at(ChildStep::DnsSockets))?;
    Ok(Common {
        proxies: Pair { v4, v6 },
        questions,
    })
}

/// One listener per family; rules redirect every connection to it.
fn capture_all(
    steps: &NetworkSteps<'_>,
    common: &Common,
    link: BorrowedFd<'_>,
) -> Result<(), StepError> {
    let protocol = Some(rustix::net::netlink::NETFILTER);
    let log = netlink::open(protocol).map_err(at(ChildStep::Log))?;
    sockopt::set_socket_recv_buffer_size(&log, BUFFER_BYTES).map_err(at(ChildStep::Log))?;
    // Before the rules, so that the kernel logs every refusal.
    steps.log.send(&log).map_err(at(ChildStep::Log))?;
    rustix::io::ioctl_fionbio(&log, true).map_err(at(ChildStep::Log))?;
    let relay = [
        SocketAddr::from((ADDRESS_V4, RELAY_PORT)),
        SocketAddr::from((ADDRESS_V6, RELAY_PORT)),
    ];
    let listeners = Pair::make(common.has_v6(), relay, transparent_listener)
        .map_err(at(ChildStep::Listeners))?;
    let rules = if common.has_v6() {
        steps.rules
    } else {
        steps.rules_v4_only
    };
    let tables = netlink::open(protocol).map_err(at(ChildStep::CaptureRules))?;
    rules.send(&tables).map_err(at(ChildStep::CaptureRules))?;
    let Common { proxies, questions } = common;
    let pairs = [Some(proxies), Some(questions), Some(&listeners)];
    send_sockets(link, Part::Tproxy, pairs, Some(&log))
}

/// One listener for each known port, and a packet socket for the others.
fn capture_ports(
    steps: &NetworkSteps<'_>,
    common: &Common,
    link: BorrowedFd<'_>,
) -> Result<(), StepError> {
    let tap = packet::tap(LOOPBACK_INDEX, steps.tap).map_err(at(ChildStep::Tap))?;
    sockopt::set_socket_recv_buffer_size(&tap, BUFFER_BYTES).map_err(at(ChildStep::Tap))?;
    for (index, port) in (0..).zip(steps.ports) {
        let any = at_any_address(*port);
        let listeners = Pair::make(common.has_v6(), any, listener)
            .map_err(at_index(ChildStep::PortListener, index))?;
        send_sockets(link, Part::Port, [Some(&listeners), None, None], None)?;
    }
    let Common { proxies, questions } = common;
    let pairs = [Some(proxies), Some(questions), None];
    send_sockets(link, Part::AnyIp, pairs, Some(&tap))
}

fn at_any_address(port: u16) -> [SocketAddr; 2] {
    [
        SocketAddr::from((Ipv4Addr::UNSPECIFIED, port)),
        SocketAddr::from((Ipv6Addr::UNSPECIFIED, port)),
    ]
}

fn new_socket(address: SocketAddr, kind: SocketType) -> Result<OwnedFd, Errno> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let protocol: Option<Protocol> = None;
    match address {
        SocketAddr::V4(_) => rustix::net::socket_with(AddressFamily::INET, kind, flags, protocol),
        SocketAddr::V6(_) => {
            let socket = rustix::net::socket_with(AddressFamily::INET6, kind, flags, protocol)?;
            if address.ip().is_unspecified() {
                // IPv4 has a separate socket.
                sockopt::set_ipv6_v6only(&socket, true)?;
            }
            Ok(socket)
        }
    }
}

fn listener(address: SocketAddr) -> Result<OwnedFd, Errno> {
    listen(new_socket(address, SocketType::STREAM)?, address)
}

fn transparent_listener(address: SocketAddr) -> Result<OwnedFd, Errno> {
    let listener = new_socket(address, SocketType::STREAM)?;
    match address {
        SocketAddr::V4(_) => socket::set_transparent_v4(&listener)?,
        SocketAddr::V6(_) => socket::set_transparent_v6(&listener)?,
    }
    listen(listener, address)
}

fn listen(listener: OwnedFd, address: SocketAddr) -> Result<OwnedFd, Errno> {
    rustix::net::bind(&listener, &address)?;
    rustix::net::listen(&listener, BACKLOG)?;
    Ok(listener)
}

fn questions(address: SocketAddr) -> Result<OwnedFd, Errno> {
    let questions = new_socket(address, SocketType::DGRAM)?;
    sockopt::set_socket_recv_buffer_size(&questions, BUFFER_BYTES)?;
    match address {
        SocketAddr::V4(_) => socket::set_packet_info_v4(&questions)?,
        SocketAddr::V6(_) => {
            socket::set_packet_info_v6(&questions)?;
            // The source of an answer is the destination of its query. Without this option IPv6
            // refuses foreign source addresses.
            socket::set_free_source_v6(&questions)?;
        }
    }
    rustix::net::bind(&questions, &address)?;
    Ok(questions)
}

fn send_sockets(
    link: BorrowedFd<'_>,
    part: Part,
    pairs: [Option<&Pair>; 3],
    log: Option<&OwnedFd>,
) -> Result<(), StepError> {
    let mut descriptors = [link; 7];
    let mut count = 0;
    let sockets = pairs.iter().flatten().flat_map(|pair| {
        let Pair { v4, v6 } = pair;
        [Some(v4), v6.as_ref()]
    });
    for (descriptor, socket) in descriptors.iter_mut().zip(sockets.chain([log]).flatten()) {
        *descriptor = socket.as_fd();
        count += 1;
    }
    let per_pair = pairs
        .iter()
        .flatten()
        .next()
        .map_or(0, |pair| 1 + i32::from(pair.v6.is_some()));
    let message = Message::with(message::NETWORK, [part as i32, per_pair, 0]);
    link::send(link, message, &descriptors[..count]).map_err(at(ChildStep::SendSockets))
}

/// Receives the sockets of [`set_up`]. On failure the body does not run.
pub(super) fn receive_sockets(
    link: BorrowedFd<'_>,
    describe: &dyn Fn(ChildStep, usize) -> String,
) -> Result<NetworkSockets, SandboxError> {
    let act = "set up the network";
    let mut listeners = Vec::new();
    loop {
        let (Message { values, .. }, received) =
            expect_message(link, message::NETWORK, act, describe)?;
        let [part, per_pair, _] = values;
        let per_pair = usize::try_from(per_pair).unwrap_or(0);
        let mut sockets = received.into_iter().flatten();
        if part == Part::Port as i32 {
            listeners.extend(sockets);
            continue;
        }
        let proxies = sockets.by_ref().take(per_pair).collect();
        let questions = sockets.by_ref().take(per_pair).collect();
        let capture = if part == Part::Tproxy as i32 {
            listeners.extend(sockets.by_ref().take(per_pair));
            Capture::Tproxy
        } else {
            Capture::AnyIp
        };
        let log = sockets.next().ok_or(SandboxError::ChildGone { act })?;
        return Ok(NetworkSockets {
            capture,
            listeners,
            proxies,
            questions,
            log,
        });
    }
}
