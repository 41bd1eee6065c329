//! Real cgroups and real records of runs on this host: made, limited, killed, removed, collected.
//!
//! Groups are made only beneath a group of our own at the top of each hierarchy.

#![expect(
    clippy::expect_used,
    clippy::unwrap_used,
    reason = "a test says what went wrong by ending"
)]

mod groups;
mod host;
mod leftovers;
mod records;
