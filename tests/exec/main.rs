//! `runner exec`, end to end: the program with a bundle, and the ten invariants after each case.
#![allow(
    clippy::expect_used,
    clippy::panic,
    reason = "test code: a failure is a panic"
)]

mod archives;
mod attacks;
mod destinations;
mod documents;
mod environment;
mod forms;
mod grants;
mod inputs;
mod keeping;
mod manifests;
mod network;
mod outputs;
mod places;
mod reader;
mod reports;
mod streams;
mod taken_places;
mod views;

/// The digest as the report writes it.
fn sha256(bytes: &[u8]) -> String {
    spec::digest::Digest::of(bytes).to_string()
}
