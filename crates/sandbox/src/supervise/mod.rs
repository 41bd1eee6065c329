//! The run from launch to outcome: watch, capture, terminate, judge.
#![forbid(unsafe_code)]

mod curve;
pub mod following;
pub mod judge;
pub mod meter;
mod relaying;
mod signals;
pub mod stats;
pub mod streams;
pub mod watch;
mod watched;
pub(crate) mod without_cgroup;
