//! Who a body reaches: only whom the list names, whatever the body tries. The outside is the tests'
//! own (`support::network`); each case is run with both ways of capturing connections.

#![allow(
    unreachable_pub,
    clippy::expect_used,
    clippy::panic,
    reason = "test code: a failure is a panic"
)]

#[macro_use]
mod runs;

mod addresses;
mod captures;
mod closed;
mod confinement;
mod first_bytes;
mod flood;
mod lists;
mod names;
mod other_protocols;
mod outside;
mod proxy;
mod publish;
mod resolver;
mod streams;
