//! Addresses and ports of the body's network: those of the supervisor, which the body cannot use,
//! and the body's own. Names get addresses from 198.18.0.16 on.

use core::net::{Ipv4Addr, Ipv6Addr};

/// DNS server. Never the address of a name.
pub const ADDRESS_V4: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 1);
/// IPv6 DNS server and destination of captured connections.
pub const ADDRESS_V6: Ipv6Addr = Ipv6Addr::new(0xfd00, 0x198, 0x18, 0, 0, 0, 0, 1);
/// The body's own address. Without one besides loopback, C libraries with AI_ADDRCONFIG assume that
/// IPv4 is missing.
pub const BODY_V4: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 2);
/// Destination of captured connections. All ports here are privileged, so the body cannot bind
/// them.
pub const RELAY_PORT: u16 = 1;
/// The proxy on the body's loopback.
pub const PROXY_PORT: u16 = 3;
/// DNS queries to any server.
pub const QUESTION_PORT: u16 = 53;
