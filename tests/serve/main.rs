//! `runner serve`: the HTTP API, asked by curl.

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

#[path = "../sandboxes/escapes.rs"]
mod escapes;
#[path = "../sandboxes/host.rs"]
#[expect(dead_code, reason = "what the tests of sandboxes need alone")]
mod host;

mod access;
mod api;
mod commands;
mod delay;
mod document;
mod documentation;
mod files;
mod hostile;
mod killed;
mod limits;
mod nginx;
mod ports;
mod runs;
mod runs_hostile;
mod sandboxes;
mod systemd;
mod terminals;
mod totals;
mod unread;
mod watch;

/// How the attempts of `escapes` become commands: through the API of a server of their own.
const COMMANDS_OF_ESCAPES: &str = "api";
