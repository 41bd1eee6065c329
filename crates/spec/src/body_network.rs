//! Addresses and ports inside the body's network: where the supervisor answers, which nothing of
//! the body's can have, and what is the body's own. Names get others, from 198.18.0.16 on.

use core::net::{Ipv4Addr, Ipv6Addr};

/// Answers questions for names, and is never a name's own address.
pub const ADDRESS_V4: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 1);
/// The same for IPv6: captured connections are led there.
pub const ADDRESS_V6: Ipv6Addr = Ipv6Addr::new(0xfd00, 0x198, 0x18, 0, 0, 0, 0, 1);
/// The body's own, beside its loopback addresses: without one that is no loopback address, a C
/// library that is asked for what this host can use (AI_ADDRCONFIG) takes IPv4 for missing.
pub const BODY_V4: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 2);
/// Where captured connections are led. Privileged, as all ports here: the body cannot sit there.
pub const RELAY_PORT: u16 = 1;
/// The proxy on the body's own loopback, for programs that want one.
pub const PROXY_PORT: u16 = 3;
/// Questions for names, whatever server the body asks.
pub const QUESTION_PORT: u16 = 53;
