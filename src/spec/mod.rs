//! Pure types: what was asked, and what came out. No I/O, no unsafe, no other room.
#![forbid(unsafe_code)]

pub mod digest;
pub mod host_policy;
pub mod manifest;
pub mod nearest;
pub mod outcome;
pub mod path;
pub mod report;
pub mod request;
pub mod run_form;
pub mod ulid;
pub mod units;
