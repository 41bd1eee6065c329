//! The outcome of a run.

/// How a run ended. Each run has one outcome.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// The body exited with an exit code.
    Exited,
    /// A signal ended the body, but not because of a limit.
    Signaled,
    /// The body reached the wall time limit.
    TimedOut,
    /// The body reached the CPU time limit.
    CpuExhausted,
    /// The body reached the memory limit.
    OutOfMemory,
    /// The body wrote more than `--max-output` with `--on-output-limit=kill`.
    OutputLimit,
    /// The caller cancelled the run by a signal to the runner.
    Cancelled,
    /// The request was refused. The body did not run.
    Refused,
    /// The runner or the host failed, or the outputs do not match their contract.
    Failed,
}
