//! Sockets and rules of a relay.

use std::os::fd::{AsRawFd as _, OwnedFd, RawFd};

use crate::allow::Allowlist;
use spec::egress_report::PublishedReport;
use spec::network::Capture;

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

impl Sockets {
    pub(crate) fn descriptors(&self) -> Vec<RawFd> {
        let lists = [&self.listeners, &self.proxies, &self.dns];
        let sockets = lists.into_iter().flatten().chain(&self.log);
        sockets.map(|socket| socket.as_raw_fd()).collect()
    }
}

/// A port of the caller that is forwarded to a port of the body.
#[derive(Debug)]
pub struct Published {
    pub listener: OwnedFd,
    /// The port of the listener.
    pub host_port: u16,
    pub body_port: u16,
}

/// Rules of the relay.
#[derive(Debug, Clone)]
pub struct Rules {
    /// The allowed destinations.
    pub allowed: Allowlist,
    /// Whether a ClientHello with an encrypted inner ClientHello is refused.
    pub refuse_ech: bool,
}

impl Published {
    /// Its report before the first connection.
    #[must_use]
    pub fn report(&self) -> PublishedReport {
        PublishedReport {
            host_port: self.host_port,
            body_port: self.body_port,
            connections: 0,
        }
    }
}
