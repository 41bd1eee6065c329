//! The run from launch to outcome: watch, capture, terminate, judge.
#![forbid(unsafe_code)]

pub mod judge;
pub mod meter;
mod relaying;
pub mod streams;
pub mod watch;
pub(crate) mod without_cgroup;
