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
            first_delay: Duration::from_millis(500),
            wait_max: Duration::from_secs(30),
            program: Duration::from_secs(30),
        }
    }
}

impl Patience {
    /// For bodies of any size: only a standstill ends one, not how long it takes.
    #[must_use]
    pub fn of_large_bodies() -> Self {
        Self {
            whole: Duration::from_secs(24 * 60 * 60),
            ..Self::default()
        }
    }
}
