//! The relay over real sockets, in three networks of the test: the body's, the host's where the
//! relay runs, and one outside.
#![expect(
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "test code: a failure is a panic, a skip is printed"
)]

mod decisions;
mod floods;
mod flows;
mod forged;
mod ground;
mod lookups;
mod outside;
mod proxy;
mod published;
