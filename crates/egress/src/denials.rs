//! Denied attempts, with equal attempts merged into one counted entry. Pure.

use std::collections::HashMap;
use std::fmt;
use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use spec::denial_reason::DenialReason;

/// Maximum number of distinct attempts; further ones are only counted.
pub(crate) const DISTINCT_MAX: usize = 1_000;

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

/// Equal attempts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Occurrences {
    /// Time of the first attempt, in milliseconds since the start of the body.
    pub first_ms: u64,
    pub count: u64,
}

/// The denials of a run.
#[derive(Debug, Default)]
pub struct Denials {
    /// By first occurrence.
    distinct: Vec<(Attempt, Occurrences)>,
    /// Indexes of `distinct`.
    index: HashMap<Attempt, usize>,
    /// Attempts beyond [`DISTINCT_MAX`].
    unlisted: u64,
}

impl Denials {
    /// Adds one attempt.
    pub fn add(&mut self, attempt: Attempt, now_ms: u64) {
        if let Some(at) = self.index.get(&attempt) {
            self.distinct[*at].1.count += 1;
        } else if self.distinct.len() < DISTINCT_MAX {
            self.index.insert(attempt.clone(), self.distinct.len());
            let first = Occurrences {
                first_ms: now_ms,
                count: 1,
            };
            self.distinct.push((attempt, first));
        } else {
            self.unlisted += 1;
        }
    }

    /// Restores what [`Denials::distinct`] and [`Denials::unlisted`] return. `None` if two attempts are
    /// equal or one did not occur.
    pub(crate) fn restore(distinct: Vec<(Attempt, Occurrences)>, unlisted: u64) -> Option<Self> {
        let attempts = distinct.iter().map(|(attempt, _)| attempt.clone());
        let index: HashMap<Attempt, usize> = attempts.zip(0..).collect();
        let did_occur = distinct.iter().all(|(_, equal)| equal.count > 0);
        (did_occur && index.len() == distinct.len()).then_some(Self {
            distinct,
            index,
            unlisted,
        })
    }

    /// The distinct attempts, ordered by first occurrence.
    pub fn distinct(&self) -> impl Iterator<Item = &(Attempt, Occurrences)> {
        self.distinct.iter()
    }

    /// Number of attempts that are only counted.
    #[must_use]
    pub fn unlisted(&self) -> u64 {
        self.unlisted
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
    fn equal_attempts_are_counted_with_the_time_of_the_first() {
        let mut denials = Denials::default();
        for now_ms in 0..10_000 {
            denials.add(attempt(1), 5 + now_ms);
        }
        denials.add(attempt(2), 7);
        let distinct: Vec<(Option<u16>, u64, u64)> = denials
            .distinct()
            .map(|(attempt, equal)| (attempt.port, equal.first_ms, equal.count))
            .collect();
        assert_eq!(distinct, [(Some(1), 5, 10_000), (Some(2), 7, 1)]);
    }

    #[test]
    fn attempts_beyond_the_limit_are_only_counted() {
        let mut denials = Denials::default();
        for port in 0..2_000 {
            denials.add(attempt(port), 0);
        }
        denials.add(attempt(0), 0);
        assert_eq!(denials.distinct().count(), DISTINCT_MAX);
        assert_eq!(denials.unlisted(), 1_000);
    }
}
