//! Real programs with real input: packages from the registries, compilers, version control, test
//! harnesses. Every run goes through the program, with the default limits and policy, and the
//! invariants are checked after it.
#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "test code: a failure is a panic, a skip is printed"
)]

mod builds;
mod bundling;
mod harnesses;
mod learn;
mod node;
mod programs;
mod python;
mod suites;
mod ten;
mod toolchains;
