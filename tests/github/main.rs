//! `github` sources from a real HTTP server on loopback with real repositories.

#![expect(
    clippy::expect_used,
    clippy::panic,
    unreachable_pub,
    reason = "test code: a failure is a panic"
)]

mod archives;
mod bundle;
mod cache;
mod failures;
mod references;
mod service;
mod token;
