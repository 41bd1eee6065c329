//! The life of the supervisor: killed, interrupted, started in unusual states, on a host without resources.

#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    unreachable_pub,
    missing_debug_implementations,
    reason = "a test says what went wrong by ending"
)]

mod aimed;
mod clocks;
mod early;
mod host;
mod idle;
mod killed;
mod missing;
mod odd_starts;
mod rights;
mod runtime;
mod signals;
mod streams;
