//! Sockets, settings and outcome of a relay.

use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;

use crate::allow::Allowlist;
use crate::denials::Denials;
use spec::egress_report::EgressReport;
use spec::host_name::HostName;
use spec::network::Capture;
use spec::sources_policy::IpRange;

/// The sockets of the body's network namespace, all non-blocking.
#[derive(Debug)]
pub struct Sockets {
    /// How the body's connections reach the listeners.
    pub capture: Capture,
    /// Listeners whose accepted connections have the dialled address as local address.
    pub listeners: Vec<OwnedFd>,
    /// Listeners of the compatibility proxy.
    pub proxies: Vec<OwnedFd>,
    /// Datagram sockets that receive all DNS queries with their destination address, and may send from
    /// that address.
    pub dns: Vec<OwnedFd>,
    /// Reports all other packets of the body. [`Capture::Tproxy`]: a netlink socket of NFLOG, one packet
    /// per message, with sequence numbers. [`Capture::AnyIp`]: a packet socket of type SOCK_DGRAM, so
    /// that data starts with the IP header, with a filter for incoming packets only (the loopback device
    /// delivers both directions).
    pub log: Option<OwnedFd>,
}

/// A port of the caller that is forwarded to a port of the body.
#[derive(Debug)]
pub struct Published {
    pub listener: OwnedFd,
    /// The port of the listener.
    pub host_port: u16,
    pub body_port: u16,
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

/// Settings for the decisions of the relay.
#[derive(Debug, Clone)]
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
    /// The host's name servers.
    pub servers: Vec<SocketAddr>,
    /// Whether a ClientHello with an encrypted inner ClientHello is refused.
    pub refuse_ech: bool,
    /// Seed of DNS query ids: 16 unpredictable bytes.
    pub seed: [u8; 16],
}

/// The outcome of a run's connections.
#[derive(Debug, Default)]
pub struct Outcome {
    pub denials: Denials,
    /// Without [`EgressReport::capture`] and [`EgressReport::allowed`].
    pub report: EgressReport,
}

/// Maximum number of distinct entries of [`EgressReport::unreachable`].
pub(crate) const UNREACHABLE_MAX: usize = 1_000;
