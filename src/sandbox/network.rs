//! What is laid out in the body's network namespace when something beyond it may be reached:
//! routes, sockets, capture. The child makes all of it and keeps none of it.
//!
//! The supervisor never enters the namespace: it is handed sockets that live there. Nothing here
//! allocates between the launch and the body: what is sent to the kernel was laid out before.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{AddressFamily, Protocol, SocketFlags, SocketType, sockopt};

use crate::kernel::arena::Arena;
use crate::kernel::link::{self, Message};
use crate::kernel::netlink::{self, Batch};
use crate::kernel::{packet, socket};
use crate::plan::service::{ADDRESS_V4, ADDRESS_V6, PROXY_PORT, QUESTION_PORT, RELAY_PORT};
use crate::sandbox::error::SandboxError;
use crate::sandbox::prepare::expect_message;
use crate::sandbox::steps::{ChildStep, StepError, message};
use crate::spec::bpf::Instruction;
use crate::spec::network::CaptureChoice;

/// Connections that may wait for the relay; the kernel's own limit for a new namespace is as high.
const BACKLOG: i32 = 4_096;
/// Bytes of notices that may wait for the relay, as far as the host allows.
const LOG_BUFFER_BYTES: usize = 4 << 20;
/// The loopback device is the first of every network namespace.
const LOOPBACK_INDEX: u32 = 1;

/// How connections come to the relay.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Capture {
    /// nf_tables leads every connection to one listener.
    Tproxy,
    /// Listeners on every address, at the ports that are known.
    AnyIp,
}

/// What is laid out.
#[derive(Debug, Clone)]
pub struct NetworkPlan {
    /// Routes of IPv4, which make every address the body's own.
    pub routes_v4: Batch,
    /// The same for IPv6, where the host has it.
    pub routes_v6: Batch,
    /// How connections come to the relay.
    pub capture: CapturePlan,
}

/// How connections come to the relay.
#[derive(Debug, Clone)]
pub struct CapturePlan {
    /// Which way is wanted.
    pub wanted: CaptureChoice,
    /// The rules of [`Capture::Tproxy`].
    pub rules: Batch,
    /// The same where the host has no IPv6.
    pub rules_v4_only: Batch,
    /// Asks for what the rules log.
    pub log: Batch,
    /// The ports of [`Capture::AnyIp`].
    pub ports: Vec<u16>,
    /// What of the loopback device's packets no listener gets and is told of.
    pub tap: Vec<Instruction>,
}

/// The sockets of the body's network namespace, all non-blocking.
#[derive(Debug)]
pub struct NetworkSockets {
    /// How connections come to them.
    pub capture: Capture,
    /// Listeners for the body's connections.
    pub listeners: Vec<OwnedFd>,
    /// Listeners for programs that speak to a proxy.
    pub proxies: Vec<OwnedFd>,
    /// Datagram sockets for questions; they tell where each was sent to.
    pub questions: Vec<OwnedFd>,
    /// Tells of what no socket gets: a netlink socket of NFLOG, or a tap.
    pub log: OwnedFd,
}

/// Messages for the kernel.
#[derive(Debug, Clone, Copy)]
struct Messages<'a> {
    bytes: &'a [u8],
    acknowledged: u32,
}

impl<'a> Messages<'a> {
    fn lay_out(arena: &'a Arena, batch: &Batch) -> Result<Self, Errno> {
        Ok(Self {
            bytes: arena.slice(batch.bytes())?,
            acknowledged: batch.acknowledged(),
        })
    }

    fn send(self, socket: &OwnedFd) -> Result<(), Errno> {
        netlink::exchange(socket, self.bytes, self.acknowledged)
    }
}

/// The plan as the child reads it.
#[derive(Debug, Clone, Copy)]
pub(super) struct NetworkSteps<'a> {
    routes_v4: Messages<'a>,
    routes_v6: Messages<'a>,
    wanted: CaptureChoice,
    rules: Messages<'a>,
    rules_v4_only: Messages<'a>,
    log: Messages<'a>,
    ports: &'a [u16],
    tap: &'a [Instruction],
}

/// Lays `plan` out in the arena.
///
/// # Errors
/// ENOMEM when the arena is full.
pub(super) fn lay_out<'a>(
    arena: &'a Arena,
    plan: &NetworkPlan,
) -> Result<&'a NetworkSteps<'a>, Errno> {
    let capture = &plan.capture;
    let steps = NetworkSteps {
        routes_v4: Messages::lay_out(arena, &plan.routes_v4)?,
        routes_v6: Messages::lay_out(arena, &plan.routes_v6)?,
        wanted: capture.wanted,
        rules: Messages::lay_out(arena, &capture.rules)?,
        rules_v4_only: Messages::lay_out(arena, &capture.rules_v4_only)?,
        log: Messages::lay_out(arena, &capture.log)?,
        ports: arena.slice(&capture.ports)?,
        tap: arena.slice(&capture.tap)?,
    };
    let placed = arena.slice(&[steps])?;
    placed.first().ok_or(Errno::NOMEM)
}

/// What a message of the hand-over carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(i32)]
enum Part {
    Proxies = 1,
    Questions = 2,
    Listeners = 3,
    /// Ends the hand-over, and says how connections come.
    Log = 4,
}

const TPROXY: i32 = 1;
const ANY_IP: i32 = 2;

fn at(step: ChildStep) -> impl Fn(Errno) -> StepError {
    move |errno| StepError {
        step,
        index: 0,
        errno,
    }
}

/// Lays everything out, hands it over and keeps nothing. In the child, which has all capabilities
/// over its namespaces still.
pub(super) fn set_up(steps: &NetworkSteps<'_>, link: BorrowedFd<'_>) -> Result<(), StepError> {
    let routing = netlink::open(None).map_err(at(ChildStep::Routes))?;
    steps
        .routes_v4
        .send(&routing)
        .map_err(at(ChildStep::Routes))?;
    let own_v4 = SocketAddr::from((Ipv4Addr::LOCALHOST, PROXY_PORT));
    let proxy_v4 = listener(own_v4, false).map_err(at(ChildStep::Proxies))?;
    let own_v6 = SocketAddr::from((Ipv6Addr::LOCALHOST, PROXY_PORT));
    // IPv6 is there where its loopback address is.
    let proxy_v6 = match listener(own_v6, false) {
        Ok(proxy) => Some(proxy),
        Err(Errno::AFNOSUPPORT | Errno::ADDRNOTAVAIL) => None,
        Err(errno) => return Err(at(ChildStep::Proxies)(errno)),
    };
    let has_v6 = proxy_v6.is_some();
    hand_over(link, Part::Proxies, 0, &proxy_v4, proxy_v6.as_ref())?;
    drop((proxy_v4, proxy_v6));
    if has_v6 {
        steps
            .routes_v6
            .send(&routing)
            .map_err(at(ChildStep::Routes))?;
    }
    drop(routing);
    let [any_v4, any_v6] = at_any_address(QUESTION_PORT);
    let v4 = questions(any_v4).map_err(at(ChildStep::Questions))?;
    let v6 = match has_v6 {
        true => Some(questions(any_v6).map_err(at(ChildStep::Questions))?),
        false => None,
    };
    hand_over(link, Part::Questions, 0, &v4, v6.as_ref())?;
    drop((v4, v6));
    match steps.wanted {
        CaptureChoice::Tproxy => capture_all(steps, has_v6, link),
        CaptureChoice::AnyIp => capture_ports(steps, has_v6, link),
        // Only the kernel can say: a missing module is loaded for whoever asks for it.
        CaptureChoice::Auto => match capture_all(steps, has_v6, link) {
            Err(StepError {
                step: ChildStep::Log | ChildStep::CaptureRules,
                ..
            }) => capture_ports(steps, has_v6, link),
            other => other,
        },
    }
}

/// One listener for each family, to which the rules lead every connection.
fn capture_all(
    steps: &NetworkSteps<'_>,
    has_v6: bool,
    link: BorrowedFd<'_>,
) -> Result<(), StepError> {
    let protocol = Some(rustix::net::netlink::NETFILTER);
    let log = netlink::open(protocol).map_err(at(ChildStep::Log))?;
    // A host that allows less is no reason to stop: what is lost is counted.
    sockopt::set_socket_recv_buffer_size(&log, LOG_BUFFER_BYTES).map_err(at(ChildStep::Log))?;
    // Before the rules: nothing is refused without being told.
    steps.log.send(&log).map_err(at(ChildStep::Log))?;
    rustix::io::ioctl_fionbio(&log, true).map_err(at(ChildStep::Log))?;
    let relay_v4 = SocketAddr::from((ADDRESS_V4, RELAY_PORT));
    let v4 = listener(relay_v4, true).map_err(at(ChildStep::Listeners))?;
    let relay_v6 = SocketAddr::from((ADDRESS_V6, RELAY_PORT));
    let v6 = match has_v6 {
        true => Some(listener(relay_v6, true).map_err(at(ChildStep::Listeners))?),
        false => None,
    };
    let tables = netlink::open(protocol).map_err(at(ChildStep::CaptureRules))?;
    let rules = if has_v6 {
        steps.rules
    } else {
        steps.rules_v4_only
    };
    rules.send(&tables).map_err(at(ChildStep::CaptureRules))?;
    hand_over(link, Part::Listeners, 0, &v4, v6.as_ref())?;
    hand_over(link, Part::Log, TPROXY, &log, None)
}

/// A listener for each port that is known, and a tap for what goes to others.
fn capture_ports(
    steps: &NetworkSteps<'_>,
    has_v6: bool,
    link: BorrowedFd<'_>,
) -> Result<(), StepError> {
    let tap = packet::tap(LOOPBACK_INDEX, steps.tap).map_err(at(ChildStep::Tap))?;
    sockopt::set_socket_recv_buffer_size(&tap, LOG_BUFFER_BYTES).map_err(at(ChildStep::Tap))?;
    for (index, port) in (0..).zip(steps.ports) {
        let failed = |errno| StepError {
            step: ChildStep::PortListener,
            index,
            errno,
        };
        let [any_v4, any_v6] = at_any_address(*port);
        let v4 = listener(any_v4, false).map_err(failed)?;
        let v6 = match has_v6 {
            true => Some(listener(any_v6, false).map_err(failed)?),
            false => None,
        };
        hand_over(link, Part::Listeners, 0, &v4, v6.as_ref())?;
    }
    hand_over(link, Part::Log, ANY_IP, &tap, None)
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
            // The other family has a socket of its own.
            sockopt::set_ipv6_v6only(&socket, true)?;
            Ok(socket)
        }
    }
}

fn listener(address: SocketAddr, is_transparent: bool) -> Result<OwnedFd, Errno> {
    let listener = new_socket(address, SocketType::STREAM)?;
    match address {
        SocketAddr::V4(_) if is_transparent => socket::set_transparent_v4(&listener)?,
        SocketAddr::V6(_) if is_transparent => socket::set_transparent_v6(&listener)?,
        _ => (),
    }
    rustix::net::bind(&listener, &address)?;
    rustix::net::listen(&listener, BACKLOG)?;
    Ok(listener)
}

fn questions(address: SocketAddr) -> Result<OwnedFd, Errno> {
    let questions = new_socket(address, SocketType::DGRAM)?;
    match address {
        SocketAddr::V4(_) => socket::set_packet_info_v4(&questions)?,
        SocketAddr::V6(_) => socket::set_packet_info_v6(&questions)?,
    }
    rustix::net::bind(&questions, &address)?;
    Ok(questions)
}

fn hand_over(
    link: BorrowedFd<'_>,
    part: Part,
    capture: i32,
    v4: &OwnedFd,
    v6: Option<&OwnedFd>,
) -> Result<(), StepError> {
    let message = Message {
        kind: message::NETWORK,
        values: [part as i32, capture, 0],
    };
    let sent = match v6 {
        Some(v6) => link::send(link, message, &[v4.as_fd(), v6.as_fd()]),
        None => link::send(link, message, &[v4.as_fd()]),
    };
    sent.map_err(at(ChildStep::HandOver))
}

/// Takes what [`set_up`] hands over.
///
/// # Errors
/// [`SandboxError`]; then the body does not run.
pub(super) fn take_over(
    link: BorrowedFd<'_>,
    describe: &dyn Fn(ChildStep, usize) -> String,
) -> Result<NetworkSockets, SandboxError> {
    let act = "lay out the network";
    let (mut listeners, mut proxies, mut questions) = (Vec::new(), Vec::new(), Vec::new());
    loop {
        let (Message { values, .. }, received) =
            expect_message(link, message::NETWORK, act, describe)?;
        let [part, capture, _] = values;
        let mut sockets = received.into_iter().flatten();
        if part == Part::Proxies as i32 {
            proxies.extend(sockets);
        } else if part == Part::Questions as i32 {
            questions.extend(sockets);
        } else if part == Part::Listeners as i32 {
            listeners.extend(sockets);
        } else {
            let log = sockets.next().ok_or(SandboxError::ChildGone { act })?;
            let capture = match capture {
                TPROXY => Capture::Tproxy,
                _ => Capture::AnyIp,
            };
            return Ok(NetworkSockets {
                capture,
                listeners,
                proxies,
                questions,
                log,
            });
        }
    }
}
