//! Faults: every system call of a run refused once, every process of a run killed at each of its
//! system calls, and hosts that have run out of something.

#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    unreachable_pub,
    missing_debug_implementations,
    reason = "a test says what went wrong by ending"
)]

#[path = "../lifetime/runtime.rs"]
mod runtime;
#[path = "../support/mod.rs"]
mod support;

mod calls;
mod crew;
mod harmless;
mod kills;
mod scene;
mod shortage;
mod tracer;
