//! `runner bundle`, end to end: a workspace, and the resulting bundle.
#![allow(
    clippy::expect_used,
    clippy::panic,
    reason = "test code: a failure is a panic"
)]

mod determinism;
mod left_out;
mod links;
mod locks;
mod manifests;
mod outputs;
mod references;
mod sizes;
mod sources;
