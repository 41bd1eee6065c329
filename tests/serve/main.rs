//! `runner serve`: the HTTP API, asked by curl.

#![allow(
    clippy::expect_used,
    clippy::panic,
    unreachable_pub,
    missing_debug_implementations,
    reason = "a test says what went wrong by ending"
)]

#[path = "../sandboxes/host.rs"]
#[expect(dead_code, reason = "what the tests of sandboxes need alone")]
mod host;

mod access;
mod api;
mod commands;
mod document;
mod documentation;
mod files;
mod killed;
mod limits;
mod sandboxes;
mod systemd;
mod terminals;
mod watch;
