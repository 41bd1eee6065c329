//! Faults: system calls of a run refused, processes of a run killed before a system call of theirs, and
//! hosts that have run out of something. In the default tier a sample of the calls, in the long one each.

#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    unreachable_pub,
    missing_debug_implementations,
    reason = "a test says what went wrong by ending"
)]

#[path = "../../crates/sandbox/tests/filter/policies.rs"]
mod policies;
#[path = "../lifetime/runtime.rs"]
mod runtime;

mod calls;
mod crew;
mod harmless;
mod kills;
mod scene;
mod shortage;
mod tracer;
