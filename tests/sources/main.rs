//! Workspace sources in runs: what a body sees of them and may do, who grants them, what is refused
//! before the start, and where they come from.
#![allow(
    clippy::expect_used,
    clippy::panic,
    reason = "test code: a failure is a panic"
)]

#[expect(
    dead_code,
    reason = "the builder of other tests, of which a part is used"
)]
#[path = "../archives/builder.rs"]
mod builder;

mod artifact;
mod endings;
mod grants;
mod host;
mod pulling;
mod refusals;
mod views;
