//! Faults: system calls of a run that fail, processes of a run that are killed before a call, and
//! hosts without resources. The default tier tests a sample of the calls, the long one all.

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
