//! Very many runs: one after the other, at once, and killed at random moments. Afterwards everything
//! that a run takes of the host is back where it was.
//!
//! Each test starts a harness: this program again, as a process of its own, with a runtime
//! directory, a temporary directory, a cache and groups that nobody else has, so that what is
//! counted is its own. It prints a line `endurance: …` for other programs to read.

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
