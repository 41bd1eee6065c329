//! Real programs, as they come, against real servers, through the allowlist: each reaches the host
//! that is allowed, over http and https, and fails at once and in its own words at one that is not.
#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "test code: a failure is a panic, a skip is printed"
)]

mod allowlist;
mod languages;
mod package_clients;
mod published;
mod servers;
mod web_clients;
