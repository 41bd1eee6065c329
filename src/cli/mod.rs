//! The command line: the only module that prints messages, reads environment variables and decides
//! exit codes.
//!
//! [`args`]: flags as typed. [`config`]: configuration files. [`request`]: the request that both give.
//! [`dispatch`]: one call for each verb. [`mod@print`]: messages and documents.
#![forbid(unsafe_code)]

pub mod args;
pub mod bundle;
mod bundle_list;
pub mod cache;
pub mod check;
mod completions;
pub mod config;
pub mod context;
pub mod demo;
pub mod dispatch;
mod docker;
pub mod doctor;
pub mod environment;
pub(crate) mod exit_code;
pub(crate) mod fast_args;
pub mod gc;
mod help;
mod history;
mod images;
pub(crate) mod limit_flags;
mod log;
mod network;
pub mod output;
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
pub(crate) mod systemd_scope;
mod usage;
mod view;
pub mod why;
