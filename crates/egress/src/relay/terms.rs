//! What a relay is given, what it decides by, and what it tells in the end.

use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;

use crate::allow::Allowlist;
use crate::denials::Denials;
use spec::egress_report::UnreachableCause;
use spec::host_name::HostName;
use spec::network::Capture;
use spec::sources_policy::IpRange;

/// The sockets of the body's network namespace, all of them non-blocking.
#[derive(Debug)]
pub struct Sockets {
    /// What made the listeners get the body's connections.
    pub capture: Capture,
    /// Listeners whose connections name their destination as their own end.
    pub listeners: Vec<OwnedFd>,
    /// Listeners of the compatibility proxy.
    pub proxies: Vec<OwnedFd>,
    /// Datagram sockets that get every question for a name, say where it was sent to, and may
    /// answer from there.
    pub questions: Vec<OwnedFd>,
    /// What else the body sends. [`Capture::Tproxy`]: a netlink socket of NFLOG, one packet a
    /// message, with sequence numbers. [`Capture::AnyIp`]: a packet socket of the kind
    /// SOCK_DGRAM, so that what is read starts with the IP header, which passes what comes in and
    /// not what goes out (the loopback device shows both).
    pub log: Option<OwnedFd>,
}

/// A port of the caller's that leads to a port of the body's.
#[derive(Debug)]
pub struct Published {
    pub listener: OwnedFd,
    /// The port that it listens on.
    pub host_port: u16,
    pub body_port: u16,
}

/// A socket of the body's namespace that the relay needs: connected, or about to be, to `port` of
/// the namespace's loopback.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ask {
    /// What the answer must name.
    pub id: i32,
    /// ::1 and not 127.0.0.1.
    pub is_v6: bool,
    pub port: u16,
}

/// What the relay decides by.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Who may be reached.
    pub allowed: Allowlist,
    /// Addresses that are not public and may nevertheless be dialled. One of the host's own is
    /// opened only by an entry that is exactly this address.
    pub private_ranges: Vec<IpRange>,
    /// Addresses of names that go before every other source.
    pub added_hosts: Vec<(HostName, IpAddr)>,
    /// The host's `hosts` file.
    pub hosts: Vec<u8>,
    /// The host's name servers.
    pub servers: Vec<SocketAddr>,
    /// Whether a ClientHello with an encrypted one inside is refused.
    pub refuse_ech: bool,
    /// Where ids of questions come from: 16 unguessable bytes.
    pub seed: [u8; 16],
}

/// Allowed, and nobody answered outside.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unreachable {
    /// The name, or the address where that was allowed.
    pub host: String,
    pub port: u16,
    /// Why, as far as the last address tells.
    pub cause: UnreachableCause,
    pub count: u64,
}

/// What was exchanged with one host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Traffic {
    /// The name, or the address where that was allowed.
    pub host: String,
    /// Connections that reached it.
    pub connections: u64,
    /// Bytes that it took.
    pub sent_bytes: u64,
    /// Bytes that came from it and that the body took.
    pub received_bytes: u64,
}

/// What came of a run's connections.
#[derive(Debug, Default)]
pub struct Outcome {
    pub denials: Denials,
    /// Whom nobody answered for, at most `UNREACHABLE_MAX`.
    pub unreachable: Vec<Unreachable>,
    /// How often beyond those.
    pub unreachable_beyond: u64,
    /// By host, in the order in which each was first reached.
    pub traffic: Vec<Traffic>,
    /// Questions for names that the kernel dropped for want of room.
    pub lost_questions: u64,
    /// Packets that were denied and that the kernel had no room to tell of.
    pub lost_datagrams: u64,
    /// For each published port: the caller's, the body's, how many connections.
    pub published: Vec<(u16, u16, u64)>,
}

/// Most hosts, ports and causes of [`Outcome::unreachable`].
pub(crate) const UNREACHABLE_MAX: usize = 1_000;
