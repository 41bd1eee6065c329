//! The host that a body wants to reach. Pure.

use std::fmt;
use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use crate::denials::{Attempt, Protocol};
use spec::denial_reason::DenialReason;
use spec::host_name::HostName;

/// A destination without its port.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Host {
    Name(HostName),
    Address(IpAddr),
}

/// An IPv6 address has no brackets.
impl fmt::Display for Host {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => name.fmt(formatter),
            Self::Address(address) => address.fmt(formatter),
        }
    }
}

impl Host {
    /// A denied attempt to reach this host.
    #[must_use]
    pub fn attempt(&self, protocol: Protocol, port: Option<u16>, reason: DenialReason) -> Attempt {
        let (host, address) = match self {
            Self::Name(name) => (Some(name.to_string()), None),
            Self::Address(address) => (None, Some(*address)),
        };
        Attempt {
            protocol,
            host,
            address,
            port,
            reason,
        }
    }
}
