//! The network of a run, in the report.

use serde::Serialize;

/// The network of a run.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct EgressReport {
    /// How connections were caught.
    pub capture: EgressCapture,
    /// The list that counted: manifest and `--allow-net` together, as the host policy left it.
    pub allowed: Vec<String>,
    /// Hosts that were reached, in the order in which each was first reached.
    pub hosts: Vec<HostTraffic>,
    /// Allowed, and nobody answered outside: no denial.
    pub unreachable: Vec<UnreachableHost>,
    /// How often beyond those that are listed.
    pub unreachable_beyond: u64,
    /// Denials beyond the kinds that `denials` lists.
    pub denials_beyond: u64,
    /// Questions for names that were dropped for want of room. Nothing answered them.
    pub lost_questions: u64,
    /// Datagrams that were denied and could not be told of for want of room.
    pub lost_datagrams: u64,
    /// `--publish`.
    pub published: Vec<PublishedReport>,
}

/// How connections of the body came to the relay.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum EgressCapture {
    /// By nf_tables: every port.
    Tproxy,
    /// By listeners: ports 80 and 443 and those that the list states.
    AnyIp,
    /// Not at all: there is nothing but the body's own loopback.
    #[default]
    None,
}

/// What was exchanged with one host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct HostTraffic {
    /// The name, or the address where that is in the list.
    pub host: String,
    /// Connections that reached it.
    pub connections: u64,
    /// Bytes that it took.
    pub sent_bytes: u64,
    /// Bytes that the body took from it.
    pub received_bytes: u64,
}

/// A host at which nobody answered.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct UnreachableHost {
    /// The name, or the address where that is in the list.
    pub host: String,
    /// The port.
    pub port: u16,
    /// Why, as far as its last address tells.
    pub cause: UnreachableCause,
    /// How often.
    pub count: u64,
}

/// Why nobody answered at a host that is allowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum UnreachableCause {
    /// Neither the hosts file nor a name server has an address for the name.
    NoAddress,
    /// No name server gave an answer that says so or otherwise.
    NoNameServer,
    /// Its address has no open port there.
    Refused,
    /// The runner's host has no way to its address.
    NoRoute,
    /// Nothing came back in time.
    TimedOut,
}

impl UnreachableCause {
    /// Describes it for people.
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
    /// On 127.0.0.1 of the host.
    pub host_port: u16,
    /// On the body's loopback.
    pub body_port: u16,
    /// Connections that were led to the body; one that nothing there took was reset.
    pub connections: u64,
}
