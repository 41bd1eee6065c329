//! Bodies that use too much of a resource: which limit holds, and how the report distinguishes the cases.
//!
//! Each case holds with cgroups and without. Without them the limits are weaker: the cases say how,
//! and the report has to say so too.

#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    unreachable_pub,
    missing_debug_implementations,
    reason = "a test says what went wrong by ending"
)]

mod back_end;
mod deadlines;
mod disk;
mod endings;
mod leftovers;
mod memory;
mod output;
mod processes;
mod words;
