//! `runner source build` and `push`, end to end: from a directory or a checkout to the contents of
//! the artifact.
#![allow(
    clippy::expect_used,
    clippy::panic,
    reason = "test code: a failure is a panic"
)]

mod artifacts;
mod checkouts;
mod determinism;
mod ending;
mod foreign;
mod hostile;
mod ignoring;
mod left_out;
mod narrowing;
mod sending;
