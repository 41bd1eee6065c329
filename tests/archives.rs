//! Hostile, damaged and valid archives for the reader of bundles: catalogue group A.
//!
//! Archives are made byte by byte, by the system's `tar`, or by Python's `tarfile`. After each one
//! a canary tree beside the target must be unchanged.

#![expect(
    clippy::expect_used,
    clippy::panic,
    reason = "support code of tests stops at the first surprise"
)]

#[path = "archives/ahead.rs"]
mod ahead;
#[path = "archives/arena.rs"]
mod arena;
#[path = "archives/corpus.rs"]
mod corpus;
#[path = "archives/directories.rs"]
mod directories;
#[path = "archives/headers.rs"]
mod headers;
#[path = "archives/hostile.rs"]
mod hostile;
#[path = "archives/limits.rs"]
mod limits;
#[path = "archives/links.rs"]
mod links;
#[path = "archives/modes.rs"]
mod modes;
#[path = "archives/names.rs"]
mod names;
#[path = "archives/properties.rs"]
mod properties;
#[path = "archives/real.rs"]
mod real;
#[path = "archives/rules.rs"]
mod rules;
#[path = "archives/snapshots.rs"]
mod snapshots;
#[path = "archives/streams.rs"]
mod streams;
#[path = "archives/targets.rs"]
mod targets;
