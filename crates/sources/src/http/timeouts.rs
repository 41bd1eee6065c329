//! Time-outs and delays.

use std::time::Duration;

/// Time-outs and delays of requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timeouts {
    /// Name lookup, connection and TLS handshake.
    pub connect: Duration,
    /// Until the head of the response is complete.
    pub head: Duration,
    /// Without a byte sent or received.
    pub stall: Duration,
    /// One request with its whole response.
    pub whole: Duration,
    /// Reading a body into memory, from the end of the head.
    pub document: Duration,
    /// Period in which a body must bring `slow_bytes`, so that a trickle cannot last for days.
    pub slow: Duration,
    /// See `slow`; 0 disables the check.
    pub slow_bytes: u64,
    /// Delay before the second attempt; it doubles for each later one.
    pub first_delay: Duration,
    /// Longest `Retry-After` that is honoured.
    pub wait_max: Duration,
    /// Run time of a credential helper.
    pub program: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(10),
            head: Duration::from_secs(30),
            stall: Duration::from_secs(30),
            whole: Duration::from_secs(15 * 60),
            document: Duration::from_secs(2 * 60),
            slow: Duration::from_secs(60),
            slow_bytes: 60 << 10,
            first_delay: Duration::from_millis(500),
            wait_max: Duration::from_secs(30),
            program: Duration::from_secs(30),
        }
    }
}

impl Timeouts {
    /// For bodies of any size: only a stall ends one.
    #[must_use]
    pub(crate) fn of_large_bodies() -> Self {
        Self {
            whole: Duration::from_secs(24 * 60 * 60),
            ..Self::default()
        }
    }
}
