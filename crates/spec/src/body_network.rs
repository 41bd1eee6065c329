//! Addresses and ports of the body's network: those of the supervisor, which the body cannot bind,
//! and the body's own. Synthetic addresses start at 198.18.0.16.

use core::net::{Ipv4Addr, Ipv6Addr};

/// DNS server. Never a synthetic address.
pub const ADDRESS_V4: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 1);
/// IPv6 DNS server and destination of captured connections.
pub const ADDRESS_V6: Ipv6Addr = Ipv6Addr::new(0xfd00, 0x198, 0x18, 0, 0, 0, 0, 1);
/// The body's own address. With loopback addresses only, C libraries with AI_ADDRCONFIG assume that
/// IPv4 is missing.
pub const BODY_V4: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 2);
/// Destination of captured connections. The ports of this module are privileged, so the body cannot
/// bind them.
pub const RELAY_PORT: u16 = 1;
/// The proxy on the body's loopback.
pub const PROXY_PORT: u16 = 3;
/// DNS queries to any server.
pub const QUESTION_PORT: u16 = 53;
