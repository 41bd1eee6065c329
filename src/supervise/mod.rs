//! The run from launch to outcome: watch, capture, terminate, judge.
#![forbid(unsafe_code)]

pub mod without_cgroup;
