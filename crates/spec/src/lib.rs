//! Types of specifications, requests and reports, without I/O. This crate depends on no other crate of
//! the workspace.
#![forbid(unsafe_code)]

pub mod base64;
pub mod body_network;
pub mod cache_report;
pub mod captured;
pub mod check;
pub mod code_block;
pub mod credential;
pub mod credential_files;
pub mod define;
pub mod denial_reason;
pub mod detection;
pub mod diagnosis;
pub mod did_you_mean;
pub mod digest;
pub mod document;
pub mod egress;
pub mod egress_report;
pub mod host;
pub mod host_config;
pub mod host_name;
pub mod host_policy;
pub mod image;
pub mod image_choice;
pub mod image_report;
pub mod inventory;
pub mod io;
pub mod limits;
pub mod lock;
pub mod manifest;
pub mod mount_target;
pub mod mounts;
pub mod named;
pub mod needs;
pub mod network;
pub mod oci;
pub(crate) mod oci_policy;
pub mod outcome;
pub mod path;
pub mod percent;
pub mod plan_report;
pub mod policy_values;
pub mod preparation;
pub mod preparation_report;
pub mod provider;
pub mod report;
pub mod request;
pub mod run_form;
pub mod runner_block;
pub mod runner_report;
pub mod sandbox_block;
pub mod secret;
pub mod source_built;
pub mod source_report;
pub mod sources_policy;
pub mod syscall_policy;
pub mod tokens;
pub mod typescript;
pub mod ulid;
pub mod units;
pub mod utc;
pub mod workspace_source_report;

#[cfg(test)]
mod published_schemas;
