//! Real programs and real servers: each program reaches the allowed host over http and https, and
//! fails at once with its own error at a denied one.
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
