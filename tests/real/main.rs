//! Real programs on real input, as a person would run them: packages from the registries, compilers,
//! version control, test harnesses. Every run goes through the program and is followed by the
//! invariants, under the default limits and the default policy.
#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "test code: a failure is a panic, a skip is printed"
)]

mod builds;
mod bundling;
mod harnesses;
mod node;
mod programs;
mod python;
mod suites;
mod ten;
mod toolchains;
