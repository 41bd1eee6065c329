//! The packages of `needs`, installed in preparation runs: real apt, npm and pip in a Debian image,
//! with indexes of the tests.
#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "test code: a failure is a panic, a skip is printed"
)]

mod accidents;
mod bundled;
mod host;
mod hostile;
mod index;
mod native;
mod telling;
mod trusted;
