//! How long somebody is waited for.

use std::time::Duration;

/// How long the service is waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Patience {
    /// For the addresses of a host, and for a connection with TLS on it.
    pub connect: Duration,
    /// For the head of an answer.
    pub head: Duration,
    /// While nothing is sent or received.
    pub stall: Duration,
    /// For one request with its whole answer.
    pub whole: Duration,
    /// For the body of an answer that is held in memory, from its head on.
    pub document: Duration,
    /// A body that was waited for this long is given up where fewer than `slow_bytes` came of it
    /// meanwhile: a byte now and then keeps nobody for days.
    pub slow: Duration,
    /// See `slow`; 0: however slowly it comes.
    pub slow_bytes: u64,
    /// Before the second try; twice as long before each later one.
    pub first_delay: Duration,
    /// What the service may ask for (`Retry-After`) at most before another try is made.
    pub wait_max: Duration,
    /// For a program that has credentials.
    pub program: Duration,
}

impl Default for Patience {
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

impl Patience {
    /// For bodies of any size: only a standstill ends one, not how long it takes.
    #[must_use]
    pub(crate) fn of_large_bodies() -> Self {
        Self {
            whole: Duration::from_secs(24 * 60 * 60),
            ..Self::default()
        }
    }
}
