//! A body reaches only the hosts of its list, whatever it tries. The outside network belongs to the
//! tests (`support::network`); each case runs with both ways of capturing connections.

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
mod learn;
mod lists;
mod names;
mod other_protocols;
mod outside;
mod processes;
mod proxy;
mod publish;
mod resolver;
mod streams;
mod why;
