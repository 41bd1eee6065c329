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
mod companions;
mod completions;
pub mod config;
pub mod context;
pub mod demo;
pub mod dispatch;
mod docker;
pub mod doctor;
pub mod environment;
mod events;
pub(crate) mod exit_code;
pub(crate) mod fast_args;
pub mod gc;
mod help;
mod history;
mod images;
mod labels;
pub mod learn;
mod learned_policy;
pub(crate) mod limit_flags;
mod log;
mod network;
pub mod output;
mod page_target;
pub mod plan;
pub(crate) mod plan_text;
mod policy_text;
pub mod print;
mod report_file;
pub(crate) mod report_target;
pub mod request;
mod sandboxes;
pub mod schema;
pub mod source;
pub mod summary;
pub(crate) mod systemd_scope;
mod usage;
mod view;
pub mod why;
mod why_run;
