//! The clients of Python and TypeScript by their own tests, their documentation, the guide for hosts of agents, and cargo.
#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    unreachable_pub,
    missing_debug_implementations,
    reason = "test code: a failure is a panic, a skip is printed"
)]

mod cargo;
mod documentation;
mod documents;
#[path = "../sandboxes/host.rs"]
#[expect(dead_code, reason = "what the tests of sandboxes need alone")]
mod host;
mod hosts;
mod place;
mod python;
mod typescript;
