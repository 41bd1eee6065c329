//! Many runs: sequential, concurrent, and killed at random times. Afterwards all resources of the
//! host are back where they were.
//!
//! Each test starts a harness: this program in a separate process, with its own runtime directory,
//! temporary directory, cache and groups, so that the counts are its own. It prints a line
//! `endurance: …` for other programs.

#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    unreachable_pub,
    missing_debug_implementations,
    reason = "a test says what went wrong by ending"
)]

mod at_once;
mod flat;
mod harness;
mod in_a_row;
mod killed;
mod sandboxes;
mod served;
