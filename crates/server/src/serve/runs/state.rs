//! The state of a run and the code of its failure, from what `runner exec` reported.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use spec::outcome::Outcome;

/// The state of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(in crate::serve) enum State {
    /// Accepted; `runner exec` has not begun.
    Pending,
    Running,
    Succeeded,
    Failed,
    /// No run of this server is suspended.
    Suspended,
    Cancelled,
}

/// Why a run did not succeed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub(in crate::serve) enum Code {
    /// The structured input or an input file is missing or not what the bundle expects.
    InvalidInput,
    /// The body wrote no structured output, and the bundle requires one.
    MissingOutput,
    /// The body did not write an output file that the bundle requires.
    MissingArtifact,
    /// The server ended before `runner exec` began with the run.
    Orphaned,
    /// `runner exec` was killed, or the host restarted, before the run had ended.
    HostInterrupted,
    /// A limit of memory, of processor time or of output ended the run.
    BudgetExceeded,
    /// The body failed, or it could not be run. The reason says why.
    DriverError,
    Cancelled,
    /// The limit of wall time ended the run.
    Timeout,
}

/// What a report says about the end of a run.
#[derive(Debug, Clone, Copy)]
pub(super) struct End<'report> {
    pub(super) outcome: Outcome,
    /// The exit code of the body.
    pub(super) exit_code: Option<i32>,
    /// The code of the error of `runner exec`.
    pub(super) error: Option<&'report str>,
}

impl End<'_> {
    pub(super) fn state(self) -> (State, Option<Code>) {
        let failed = |code| (State::Failed, Some(code));
        match self.outcome {
            Outcome::Exited if self.exit_code == Some(0) => (State::Succeeded, None),
            Outcome::Exited | Outcome::Signaled => failed(Code::DriverError),
            Outcome::TimedOut => failed(Code::Timeout),
            Outcome::CpuExhausted | Outcome::OutOfMemory | Outcome::OutputLimit => {
                failed(Code::BudgetExceeded)
            }
            Outcome::Cancelled => (State::Cancelled, Some(Code::Cancelled)),
            Outcome::Refused | Outcome::Failed => failed(code_of_error(self.error)),
        }
    }
}

fn code_of_error(error: Option<&str>) -> Code {
    match error.unwrap_or_default() {
        "invalid-input" | "inputs_unreadable" | "input_changed" | "input_escapes"
        | "input_hard_linked" | "input_missing" | "input_not_regular" | "input_too_large"
        | "input_unreadable" => Code::InvalidInput,
        "missing-output" => Code::MissingOutput,
        "missing-artifact" | "output_undelivered" => Code::MissingArtifact,
        "init_died" => Code::HostInterrupted,
        _ => Code::DriverError,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_outcome_has_a_state_and_a_code() {
        let failed = |code| (State::Failed, Some(code));
        let cancelled = (State::Cancelled, Some(Code::Cancelled));
        for (outcome, exit_code, expected) in [
            (Outcome::Exited, Some(0), (State::Succeeded, None)),
            (Outcome::Exited, Some(1), failed(Code::DriverError)),
            // A body may exit with a code that means something to `runner`.
            (Outcome::Exited, Some(124), failed(Code::DriverError)),
            (Outcome::Exited, None, failed(Code::DriverError)),
            (Outcome::Signaled, None, failed(Code::DriverError)),
            (Outcome::TimedOut, None, failed(Code::Timeout)),
            (Outcome::CpuExhausted, None, failed(Code::BudgetExceeded)),
            (Outcome::OutOfMemory, None, failed(Code::BudgetExceeded)),
            // It may have exited before.
            (Outcome::OutputLimit, Some(0), failed(Code::BudgetExceeded)),
            (Outcome::Cancelled, Some(0), cancelled),
            (Outcome::Refused, None, failed(Code::DriverError)),
            (Outcome::Failed, Some(0), failed(Code::DriverError)),
        ] {
            let end = End {
                outcome,
                exit_code,
                error: None,
            };
            assert_eq!(end.state(), expected, "{end:?}");
        }
    }

    #[test]
    fn the_error_of_a_refused_or_failed_run_decides_its_code() {
        for (error, code) in [
            ("grant_required", Code::DriverError),
            ("manifest_missing", Code::DriverError),
            ("host_failed", Code::DriverError),
            ("invalid-output", Code::DriverError),
            ("invalid-input", Code::InvalidInput),
            ("input_missing", Code::InvalidInput),
            ("inputs_unreadable", Code::InvalidInput),
            ("missing-output", Code::MissingOutput),
            ("missing-artifact", Code::MissingArtifact),
            ("output_undelivered", Code::MissingArtifact),
            ("init_died", Code::HostInterrupted),
        ] {
            for outcome in [Outcome::Refused, Outcome::Failed] {
                let end = End {
                    outcome,
                    exit_code: Some(0),
                    error: Some(error),
                };
                assert_eq!(end.state(), (State::Failed, Some(code)), "{error}");
            }
        }
    }

    #[test]
    fn the_names_are_those_of_the_contract() {
        let states = "pending running succeeded failed suspended cancelled";
        for name in states.split(' ') {
            let state: State = serde_json::from_value(name.into()).expect("a state");
            assert_eq!(serde_json::json!(state), name);
        }
        let codes = "invalid-input missing-output missing-artifact orphaned host-interrupted \
                     budget-exceeded driver-error cancelled timeout";
        for name in codes.split(' ') {
            let code: Code = serde_json::from_value(name.into()).expect("a code");
            assert_eq!(serde_json::json!(code), name);
        }
    }
}
