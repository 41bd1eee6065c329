//! The history of runs: what is kept of each run after its end, and the policy about it.

use serde::{Deserialize, Serialize};

use crate::report::Report;

/// Whether runs are recorded, from the key `audit` of the configuration. Ordered: of several files the
/// strictest counts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum AuditPolicy {
    /// No run is recorded.
    Off,
    /// A run that cannot be recorded has a warning.
    #[default]
    On,
    /// A run that cannot be recorded is refused, and so is `--no-record`.
    Required,
}

impl AuditPolicy {
    /// The name in configuration files.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::On => "on",
            Self::Required => "required",
        }
    }
}

/// One line of the history.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(extend("$id" = "urn:runner:schema:history")))]
#[serde(rename_all = "snake_case")]
pub enum HistoryLine<'run> {
    /// A run begins.
    Started(StartedRun),
    /// The report of a run that ended or was refused, without the output of its body.
    Ended(&'run Report),
}

/// A run that begins.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct StartedRun {
    /// Lower-case ULID.
    pub run_id: String,
    /// UTC, RFC 3339, to the millisecond.
    pub started_at: String,
    /// The process id of the runner, in its own PID namespace.
    pub pid: u32,
    /// The bundle, or the command and its arguments; control characters are escaped.
    pub subject: Vec<String>,
}

/// One run of `runner ps`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ListedRun {
    /// Lower-case ULID.
    pub run_id: String,
    /// UTC, RFC 3339, to the millisecond.
    pub started_at: String,
    /// `running`, `killed` if the runner ended without a report, else the outcome.
    pub state: String,
    /// The exit code of the body; `null`: it has none.
    pub exit_code: Option<i64>,
    /// The bundle, or the command and its arguments.
    pub subject: Vec<String>,
}

/// The document of `runner ps --json`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(extend("$id" = "urn:runner:schema:ps")))]
pub struct RunListing {
    /// The newest first.
    pub runs: Vec<ListedRun>,
}
