//! Workspace sources in runs: what a body sees of them and may do, who grants them, what is refused
//! before the start, and where they come from.
#![allow(
    clippy::expect_used,
    clippy::panic,
    reason = "test code: a failure is a panic"
)]

mod artifact;
mod endings;
mod grants;
mod host;
mod pulling;
mod refusals;
mod sandboxes;
mod views;
