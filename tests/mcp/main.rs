//! `runner mcp` and `runner serve --mcp`: its tools through a client of the protocol, the life of its sandbox, hostile calls and
//! bodies, and the clients of the protocol that exist.

#![allow(
    clippy::expect_used,
    clippy::panic,
    unreachable_pub,
    missing_debug_implementations,
    reason = "a test says what went wrong by ending"
)]

#[path = "../serve/api.rs"]
#[expect(dead_code, reason = "what the tests of the HTTP API need alone")]
mod api;
#[path = "../sandboxes/host.rs"]
#[expect(dead_code, reason = "what the tests of sandboxes need alone")]
mod host;

mod bundles;
mod client;
mod clients;
mod conformance;
mod documentation;
mod hostile;
mod http;
mod lifetime;
mod long;
mod sessions;
mod strangers;
mod tools;
