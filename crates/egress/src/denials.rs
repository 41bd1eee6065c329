//! What was denied, merged: the same attempt a thousand times is one entry that counts. Pure.

use std::collections::HashMap;
use std::fmt;
use std::net::IpAddr;

use spec::denial_reason::DenialReason;

/// Most entries that are kept apart; what comes after is only counted.
pub(crate) const DISTINCT_MAX: usize = 1_000;

/// What was tried.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Protocol {
    /// A question for a name.
    Dns,
    Tcp,
    Udp,
    /// An echo request, of either family.
    Icmp,
    Sctp,
    /// A datagram of another kind.
    UdpLite,
    /// Anything else, by its number.
    Other(u8),
}

/// As the report has it: `tcp`, or the number.
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
    /// To whom, escaped, where a name is known.
    pub host: Option<String>,
    /// To which address, where one is known.
    pub address: Option<IpAddr>,
    /// At which port, where one is known.
    pub port: Option<u16>,
    /// Why it was denied.
    pub reason: DenialReason,
}

/// Attempts of one kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Seen {
    /// When the first was seen, in milliseconds since the body was started.
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

    /// The kinds in the order in which each was first seen.
    pub fn kinds(&self) -> impl Iterator<Item = &(Attempt, Seen)> {
        self.order.iter()
    }

    /// Attempts that are only counted.
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
