//! `runner exec` in jobs of a Slurm of the test's own: Debian's packages, one node.

#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::print_stderr,
    clippy::print_stdout,
    unreachable_pub,
    missing_debug_implementations,
    reason = "a test says what went wrong by ending"
)]

mod cluster;
mod documentation;
mod ends;
mod jobs;
