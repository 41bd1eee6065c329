//! Decides what a run does, without effects. Host facts are arguments.
#![forbid(unsafe_code)]

pub(crate) mod access;
pub mod doctor;
pub mod environment;
pub mod grants;
pub(crate) mod learning;
pub mod limits;
pub(crate) mod node_permission;
pub mod preparation;
pub(crate) mod resolved_form;
pub mod sources;
pub mod syscall_policy;
