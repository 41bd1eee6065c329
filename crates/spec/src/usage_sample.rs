//! What the body of a run used at one moment, in the report.

use serde::Serialize;

/// What all processes of the body used; `null`: this host does not measure it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct UsageSample {
    /// Time since the body was started.
    pub at_ms: u64,
    /// Memory, files in memory included.
    pub memory_bytes: Option<u64>,
    /// CPU time so far.
    pub cpu_time_us: Option<u64>,
    /// Number of processes and threads.
    pub processes: Option<u64>,
    /// Number of processes that were killed so far because of the memory limit.
    pub oom_kills: Option<u64>,
}
