//! `runner serve --api e2b`: the SDKs of E2B, unmodified, and clients that are up to no good.

#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    unreachable_pub,
    missing_debug_implementations,
    reason = "a test says what went wrong by ending"
)]

#[path = "../serve/api.rs"]
#[expect(dead_code, reason = "what the tests of the other API need alone")]
mod api;
#[path = "../sandboxes/host.rs"]
#[expect(dead_code, reason = "what the tests of sandboxes need alone")]
mod host;

mod documentation;
mod hostile;
mod sdks;
mod service;
