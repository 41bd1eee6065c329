//! Pure types: what was asked, and what came out. No I/O, no unsafe, no other room.
#![forbid(unsafe_code)]

pub mod bpf;
pub mod captured;
pub mod check;
pub mod code_block;
pub(crate) mod credential;
pub mod define;
pub mod demonstration;
pub mod diagnosis;
pub mod did_you_mean;
pub mod digest;
pub mod document;
pub mod egress;
pub mod host;
pub mod host_policy;
pub mod image;
pub mod io;
pub mod lock;
pub mod manifest;
pub mod mount_target;
pub mod mounts;
pub mod needs;
pub mod outcome;
pub mod path;
pub mod plan_report;
pub mod policy_values;
pub mod provider;
pub mod report;
pub mod request;
pub mod run_form;
pub mod runner_block;
pub mod sandbox_block;
pub mod sources_policy;
pub mod tokens;
pub mod ulid;
pub mod units;
