//! The outcome of a run.

/// What became of the body: one run has exactly one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// The body ended by itself with an exit code.
    Exited,
    /// A signal ended the body, and none of the limits sent it.
    Signaled,
    /// The wall time limit ended it.
    TimedOut,
    /// The CPU time limit ended it.
    CpuExhausted,
    /// The memory limit ended it.
    OutOfMemory,
    /// It wrote more than `--max-output` under `--on-output-limit=kill`.
    OutputLimit,
    /// The caller ended it by a signal to the runner.
    Cancelled,
    /// The request was refused; the body did not run.
    Refused,
    /// The runner, the host or the contract for outputs failed.
    Failed,
}
