//! The network of a run, in the report.

use serde::{Deserialize, Serialize};

/// The network of a run.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct EgressReport {
    /// How connections are redirected to the relay.
    pub capture: EgressCapture,
    /// The effective egress list: manifest and `--allow-net`, limited by the host policy.
    pub allowed: Vec<String>,
    /// Reached hosts, in the order in which their first connections ended.
    pub hosts: Vec<HostTraffic>,
    /// Allowed hosts that could not be reached. They are not denials.
    pub unreachable: Vec<UnreachableHost>,
    /// Number of failed attempts that `unreachable` does not list.
    pub unreachable_beyond: u64,
    /// Number of denials that `denials` does not list.
    pub denials_beyond: u64,
    /// Number of DNS queries that were dropped because a buffer was full.
    pub lost_questions: u64,
    /// Number of denied datagrams that are not reported because a buffer was full.
    pub lost_datagrams: u64,
    /// Published ports (`--publish`).
    pub published: Vec<PublishedReport>,
}

/// How connections of the body are redirected to the relay.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum EgressCapture {
    /// By nf_tables: all ports.
    Tproxy,
    /// By listeners: ports 80, 443 and those in the egress list.
    AnyIp,
    /// Not redirected: the body has only its own loopback.
    #[default]
    None,
}

/// Maximum of [`HostTraffic::ports`].
pub const TRAFFIC_PORTS_MAX: usize = 16;

/// Traffic with one host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct HostTraffic {
    /// The name, or the address if the egress list has the address.
    pub host: String,
    /// TCP ports, ascending; at most 16.
    #[serde(default)]
    pub ports: Vec<u16>,
    /// Number of connections.
    pub connections: u64,
    /// Bytes that the host accepted.
    pub sent_bytes: u64,
    /// Bytes of the host that the body accepted.
    pub received_bytes: u64,
}

/// An allowed host that could not be reached.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct UnreachableHost {
    /// The name, or the address if the egress list has the address.
    pub host: String,
    /// TCP port.
    pub port: u16,
    /// The cause for the last tried address.
    pub cause: UnreachableCause,
    /// Number of attempts.
    pub count: u64,
}

/// Why an allowed host could not be reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum UnreachableCause {
    /// Neither the hosts file nor a name server has an address for the name.
    NoAddress,
    /// No name server answered whether the name has an address.
    NoNameServer,
    /// The port is closed: the connection was refused.
    Refused,
    /// This host has no route to the address.
    NoRoute,
    /// The connection timed out.
    TimedOut,
}

impl UnreachableCause {
    /// Describes the cause for messages.
    #[must_use]
    pub fn in_words(self) -> &'static str {
        match self {
            Self::NoAddress => "the name has no address",
            Self::NoNameServer => "no name server gave an answer",
            Self::Refused => "connection refused",
            Self::NoRoute => "no route to its address",
            Self::TimedOut => "no answer in time",
        }
    }
}

/// A published port.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct PublishedReport {
    /// Port on 127.0.0.1 of the host.
    pub host_port: u16,
    /// Port on the body's loopback.
    pub body_port: u16,
    /// Number of connections that were forwarded to the body; a connection that the body did not
    /// accept was reset.
    pub connections: u64,
}
