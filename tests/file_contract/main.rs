//! The file contract: what is staged and synced, and that nothing else on the host changes.
//!
//! Ordinary directories replace the writable space. Each case ends with a check of a canary tree
//! outside both: same bytes, modes, owners, times, link counts and attributes.

#![expect(
    clippy::expect_used,
    clippy::panic,
    clippy::print_stderr,
    reason = "a test that cannot prepare its case, or must skip it, has to say so loudly"
)]

mod accidents;
mod ground;
mod staging;
mod syncing;
mod trees;
