//! The parsers of what a body and the outside send, judged by established parsers: with the corpus,
//! and with bytes that are generated.
//!
//! `corpus/` has one folder for each of `properties/`. Files that are named after a program are what
//! it sent; the others were made. `scripts/fuzz` starts from the same files.

#![allow(
    clippy::expect_used,
    clippy::panic,
    reason = "test code: a failure is a panic"
)]

mod generated;
mod properties;
mod recorded;
