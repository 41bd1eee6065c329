//! Sandboxes that stay: their life, the commands in them, and who may ask their supervisors.

#![allow(
    clippy::expect_used,
    clippy::panic,
    unreachable_pub,
    missing_debug_implementations,
    reason = "a test says what went wrong by ending"
)]

#[path = "../../crates/sandbox/tests/filter/policies.rs"]
#[expect(dead_code, reason = "what the tests of the filter need alone")]
mod policies;
#[path = "../../crates/sandbox/tests/filter/vectors.rs"]
#[expect(dead_code, reason = "what the tests of the filter need alone")]
mod vectors;

mod authority;
mod command_limits;
mod commands;
mod escapes;
mod files;
mod forward;
mod host;
mod idle;
mod kill;
mod killed;
mod labels;
mod limits;
mod logs;
mod manifests;
mod paused;
mod records;
mod snapshots;
mod terminal;
mod timeouts;
mod unresponsive;
mod update;
mod watch;

/// How the attempts of `escapes` become commands: `runner sandbox exec`.
const COMMANDS_OF_ESCAPES: &str = "verbs";
