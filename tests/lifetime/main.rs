//! The supervisor's own life: killed, interrupted, started badly, on a host that has run out.

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
mod killed;
mod missing;
mod odd_starts;
mod runtime;
mod signals;
mod streams;
