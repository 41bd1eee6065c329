//! `runner worker`, `submit` and `result` with a real nats-server of the test's own.

#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    unreachable_pub,
    missing_debug_implementations,
    reason = "a test says what went wrong by ending, and how many runs it made"
)]

mod client;
mod credentials;
mod documentation;
mod failures;
mod hostile;
mod many;
mod network;
mod queue;
mod runs;
mod scale;
