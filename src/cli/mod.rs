//! The command line: the only room that touches standard output, the environment and exit codes.
//!
//! [`args`] is what the user typed, [`request`] what the program needs, [`config`] what the host
//! says, [`dispatch`] one call per verb, [`mod@print`] the only place that writes.
#![forbid(unsafe_code)]

pub mod args;
pub mod bundle;
pub(crate) mod bundle_flags;
mod bundle_list;
pub mod cache;
pub mod check;
pub mod config;
pub mod demo;
pub mod dispatch;
mod docker;
pub mod doctor;
pub mod environment;
pub(crate) mod exit_code;
pub(crate) mod fast_args;
pub mod found;
pub mod gc;
mod help;
mod images;
pub(crate) mod limit_flags;
mod log;
mod network;
pub mod plan;
pub(crate) mod plan_text;
pub mod print;
mod report_file;
pub(crate) mod report_target;
pub mod request;
pub mod schema;
pub mod signal;
pub mod source;
pub mod summary;
pub mod surroundings;
pub mod syscalls;
pub(crate) mod systemd_scope;
mod usage;
mod view;
