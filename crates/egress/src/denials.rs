//! Denied attempts, with equal attempts merged into one counted entry. Pure.

use std::collections::HashMap;
use std::fmt;
use std::net::IpAddr;

use spec::denial_reason::DenialReason;

/// Maximum number of distinct entries; further attempts are only counted.
pub(crate) const DISTINCT_MAX: usize = 1_000;

/// The protocol of an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Protocol {
    /// A DNS query.
    Dns,
    Tcp,
    Udp,
    /// An ICMP echo request of either family.
    Icmp,
    Sctp,
    /// A UDP-Lite datagram.
    UdpLite,
    /// Any other protocol, by number.
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

/// One kind of attempt.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Attempt {
    pub protocol: Protocol,
    /// The destination host, escaped, if known.
    pub host: Option<String>,
    /// The destination address, if known.
    pub address: Option<IpAddr>,
    /// The destination port, if known.
    pub port: Option<u16>,
    /// Why it was denied.
    pub reason: DenialReason,
}

/// Count of equal attempts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Seen {
    /// Time of the first attempt, in milliseconds since the start of the body.
    pub first_ms: u64,
    pub count: u64,
}

/// The denials of a run.
#[derive(Debug, Default)]
pub struct Denials {
    order: Vec<(Attempt, Seen)>,
    index: HashMap<Attempt, usize>,
    /// Attempts beyond [`DISTINCT_MAX`] kinds.
    others: u64,
}

impl Denials {
    /// Adds one attempt.
    pub fn add(&mut self, attempt: Attempt, now_ms: u64) {
        if let Some(at) = self.index.get(&attempt) {
            self.order[*at].1.count += 1;
        } else if self.order.len() < DISTINCT_MAX {
            self.index.insert(attempt.clone(), self.order.len());
            let seen = Seen {
                first_ms: now_ms,
                count: 1,
            };
            self.order.push((attempt, seen));
        } else {
            self.others += 1;
        }
    }

    /// The distinct attempts, ordered by first occurrence.
    pub fn kinds(&self) -> impl Iterator<Item = &(Attempt, Seen)> {
        self.order.iter()
    }

    /// Number of attempts that are only counted.
    #[must_use]
    pub fn others(&self) -> u64 {
        self.others
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attempt(port: u16) -> Attempt {
        Attempt {
            protocol: Protocol::Tcp,
            host: None,
            address: None,
            port: Some(port),
            reason: DenialReason::IpLiteral,
        }
    }

    #[test]
    fn the_same_attempt_is_counted_and_the_first_time_is_kept() {
        let mut denials = Denials::default();
        for now_ms in 0..10_000 {
            denials.add(attempt(1), 5 + now_ms);
        }
        denials.add(attempt(2), 7);
        let kinds: Vec<(Option<u16>, u64, u64)> = denials
            .kinds()
            .map(|(attempt, seen)| (attempt.port, seen.first_ms, seen.count))
            .collect();
        assert_eq!(kinds, [(Some(1), 5, 10_000), (Some(2), 7, 1)]);
    }

    #[test]
    fn kinds_beyond_the_cap_are_only_counted() {
        let mut denials = Denials::default();
        for port in 0..2_000 {
            denials.add(attempt(port), 0);
        }
        denials.add(attempt(0), 0);
        assert_eq!(denials.kinds().count(), DISTINCT_MAX);
        assert_eq!(denials.others(), 1_000);
    }
}
