//! Real cgroups and run records on this host: created, limited, killed, removed, collected.
//!
//! Groups are created only below one group of the tests in each hierarchy.

#![expect(
    clippy::expect_used,
    clippy::unwrap_used,
    reason = "a test says what went wrong by ending"
)]

mod groups;
mod host;
mod leftovers;
mod records;
