//! Denied attempts. Pure.

use std::fmt;
use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use spec::denial_reason::DenialReason;
use spec::merged::Merged;

/// The protocol of an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Protocol {
    Dns,
    Tcp,
    Udp,
    /// An ICMP echo request of either family.
    Icmp,
    Sctp,
    UdpLite,
    Other(u8),
}

/// The form in the report: `tcp`, or the number.
impl fmt::Display for Protocol {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match self {
            Self::Dns => "dns",
            Self::Tcp => "tcp",
            Self::Udp => "udp",
            Self::Icmp => "icmp",
            Self::Sctp => "sctp",
            Self::UdpLite => "udplite",
            Self::Other(number) => return write!(formatter, "{number}"),
        };
        formatter.write_str(name)
    }
}

/// A denied attempt; unknown fields are `None`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Attempt {
    pub protocol: Protocol,
    /// The destination, escaped.
    pub host: Option<String>,
    pub address: Option<IpAddr>,
    pub port: Option<u16>,
    pub reason: DenialReason,
}

/// The denials of a run.
pub type Denials = Merged<Attempt>;
