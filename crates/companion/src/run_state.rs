//! What clients of a server or of workers are told of a run: its state and the code of its failure, from what
//! `runner exec` reported.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use spec::outcome::Outcome;

/// The state of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// Accepted; `runner exec` has not begun.
    Pending,
    Running,
    Succeeded,
    Failed,
    /// No run is.
    Suspended,
    Cancelled,
}

/// Why a run did not succeed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Code {
    /// The structured input or an input file is missing or not what the bundle expects.
    InvalidInput,
    /// The body wrote no structured output, and the bundle requires one.
    MissingOutput,
    /// The body did not write an output file that the bundle requires.
    MissingArtifact,
    /// The server ended before `runner exec` began with the run, or no worker brought it to an end.
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

/// Why a run did not succeed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RunError {
    pub code: Code,
    /// The code of `runner exec`, which is more precise; `null`: it said none.
    pub reason: Option<String>,
    pub message: String,
    /// What to do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
}

impl RunError {
    /// One that `runner exec` did not report.
    #[must_use]
    pub const fn new(code: Code, message: String) -> Self {
        Self {
            code,
            reason: None,
            message,
            hint: None,
        }
    }
}

/// The parts of a report that clients get.
#[derive(Debug, Deserialize)]
pub struct RunReport {
    pub run_id: String,
    pub started_at: String,
    pub outcome: Outcome,
    exit: Option<Exit>,
    error: Option<ReportError>,
    pub outputs: Vec<OutputFile>,
    pub output: Option<Value>,
    pub timings_ms: BTreeMap<String, f64>,
    pub denials: Vec<Denial>,
}

/// Denied operations of the body.
#[derive(Debug, Deserialize)]
pub struct Denial {
    pub kind: String,
    pub count: u64,
}

#[derive(Debug, Default, Deserialize)]
struct Exit {
    code: Option<i32>,
    signal: Option<i32>,
}

#[derive(Debug, Deserialize)]
struct ReportError {
    code: String,
    message: String,
    hint: Option<String>,
}

/// A declared output file.
#[derive(Debug, Deserialize)]
pub struct OutputFile {
    pub key: String,
    /// Below the directory of outputs.
    pub path: String,
    pub state: String,
    pub bytes: Option<u64>,
    pub sha256: Option<String>,
}

impl RunReport {
    /// The exit code of the body.
    #[must_use]
    pub fn exit_code(&self) -> Option<i32> {
        self.exit.as_ref()?.code
    }

    /// The state, and why the run did not succeed.
    #[must_use]
    pub fn state(&self) -> (State, Option<RunError>) {
        let error = self.error.as_ref();
        let (state, code) = state(
            self.outcome,
            self.exit_code(),
            error.map(|error| &*error.code),
        );
        let error = code.map(|code| RunError {
            code,
            reason: error.map(|error| error.code.clone()),
            message: error.map_or_else(|| self.end(), |error| error.message.clone()),
            hint: error.and_then(|error| error.hint.clone()),
        });
        (state, error)
    }

    /// How a run ended that has no error of `runner exec`.
    fn end(&self) -> String {
        let exit = self.exit.as_ref();
        match (self.outcome, self.exit_code()) {
            (Outcome::Exited, Some(code)) => format!("the body exited with {code}"),
            (Outcome::Signaled, _) => match exit.and_then(|exit| exit.signal) {
                Some(signal) => format!("signal {signal} ended the body"),
                None => "a signal ended the body".to_owned(),
            },
            (Outcome::TimedOut, _) => "the wall time limit ended the body".to_owned(),
            (Outcome::CpuExhausted, _) => "the CPU time limit ended the body".to_owned(),
            (Outcome::OutOfMemory, _) => "the memory limit ended the body".to_owned(),
            (Outcome::OutputLimit, _) => "the limit of output ended the body".to_owned(),
            (Outcome::Cancelled, _) => "a signal to `runner exec` ended the body".to_owned(),
            (Outcome::Exited | Outcome::Refused | Outcome::Failed, _) => "it failed".to_owned(),
        }
    }
}

fn state(outcome: Outcome, exit_code: Option<i32>, error: Option<&str>) -> (State, Option<Code>) {
    let failed = |code| (State::Failed, Some(code));
    match outcome {
        Outcome::Exited if exit_code == Some(0) => (State::Succeeded, None),
        Outcome::Exited | Outcome::Signaled => failed(Code::DriverError),
        Outcome::TimedOut => failed(Code::Timeout),
        Outcome::CpuExhausted | Outcome::OutOfMemory | Outcome::OutputLimit => {
            failed(Code::BudgetExceeded)
        }
        Outcome::Cancelled => (State::Cancelled, Some(Code::Cancelled)),
        Outcome::Refused | Outcome::Failed => failed(code_of_error(error)),
    }
}

/// As in reports.
#[must_use]
pub const fn outcome_name(outcome: Outcome) -> &'static str {
    match outcome {
        Outcome::Exited => "exited",
        Outcome::Signaled => "signaled",
        Outcome::TimedOut => "timed_out",
        Outcome::CpuExhausted => "cpu_exhausted",
        Outcome::OutOfMemory => "out_of_memory",
        Outcome::OutputLimit => "output_limit",
        Outcome::Cancelled => "cancelled",
        Outcome::Refused => "refused",
        Outcome::Failed => "failed",
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
            let found = state(outcome, exit_code, None);
            assert_eq!(found, expected, "{outcome:?} {exit_code:?}");
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
                let found = state(outcome, Some(0), Some(error));
                assert_eq!(found, (State::Failed, Some(code)), "{error}");
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
