//! Time-outs and delays.

use std::time::Duration;

/// Time-outs and delays of requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timeouts {
    /// Limit of the name lookup, and of connecting with the TLS handshake.
    pub connect: Duration,
    /// Limit until the head of the response is complete.
    pub head: Duration,
    /// Limit without a byte sent or received.
    pub stall: Duration,
    /// Limit of a request with its whole response.
    pub whole: Duration,
    /// Limit of reading a body into memory, from the end of the head.
    pub document: Duration,
    /// Period in which `slow_bytes` of a body must arrive, so that a slow server cannot keep a
    /// download open for days.
    pub slow: Duration,
    /// See `slow`; 0 disables the check.
    pub slow_bytes: u64,
    /// Delay before the second attempt; it doubles for each later one.
    pub first_delay: Duration,
    /// Longest `Retry-After` that is honoured.
    pub wait_max: Duration,
    /// Limit of the run time of a credential helper.
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
    /// Time-outs for bodies of any size: `stall` and `slow` end a transfer, `whole` is a day.
    #[must_use]
    pub(crate) fn of_large_bodies() -> Self {
        Self {
            whole: Duration::from_secs(24 * 60 * 60),
            ..Self::default()
        }
    }
}
