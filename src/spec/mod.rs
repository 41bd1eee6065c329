//! Pure types: what was asked, and what came out. No I/O, no unsafe, no other room.
#![forbid(unsafe_code)]

pub mod bpf;
pub mod digest;
pub mod manifest;
pub mod outcome;
pub mod path;
pub mod report;
pub mod request;
pub mod run_form;
pub mod units;
