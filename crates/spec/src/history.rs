//! The history of runs: what is kept of each run after its end, and the policy about it.

use serde::{Deserialize, Serialize};

#[cfg(test)]
use crate::captured::StreamDocument;
use crate::plan_report::{PlannedHost, PlannedPath, PlannedVariable};
use crate::report::{Report, StagedReport, StreamReport, SyncedReport};

/// What `--record-output` keeps of each output stream of a body, in bytes.
pub const RECORDED_BYTES_MAX: usize = 1 << 20;

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
    /// What was decided about a secret that a run asked for. Precedes the start of the body.
    Secret(SecretLine<'run>),
    /// What a run was granted besides secrets. Precedes the start of the body; a run with no such grants has
    /// none.
    Grants(GrantsLine<'run>),
    /// The files that were staged. Precedes the start of the body; a run without input files has none.
    Staged(FilesLine<'run, StagedReport>),
    /// The declared output files, once the present ones are in the workspace. A run that declares none has
    /// none.
    Synced(FilesLine<'run, SyncedReport>),
    /// The report of a run that ended or was refused, without the output of its body; `inputs` and `outputs`
    /// are empty: they are in the lines `staged` and `synced`.
    Ended(&'run Report),
    /// What the body wrote, with `--record-output`. In files of their own.
    Output(&'run RecordedOutput),
}

/// The line of one secret.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct SecretLine<'run> {
    /// Lower-case ULID.
    pub run_id: &'run str,
    /// UTC, RFC 3339, to the millisecond.
    pub at: String,
    #[serde(flatten)]
    pub decision: &'run SecretDecision,
}

/// The line of the grants of a run.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct GrantsLine<'run> {
    /// Lower-case ULID.
    pub run_id: &'run str,
    /// UTC, RFC 3339, to the millisecond.
    pub at: String,
    #[serde(flatten)]
    pub granted: &'run Granted,
}

/// The line of the files that were staged or synced.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "{F}Line"))]
pub struct FilesLine<'run, F> {
    /// Lower-case ULID.
    pub run_id: &'run str,
    /// UTC, RFC 3339, to the millisecond.
    pub at: String,
    /// As in the report, by key.
    pub files: &'run [F],
}

/// What a run was granted besides secrets, and what decided it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Granted {
    /// Paths of the host that the body sees besides those of every run.
    pub paths: Vec<PlannedPath>,
    /// Hosts that it may connect to.
    pub hosts: Vec<PlannedHost>,
    /// Variables of the caller, without their values.
    pub variables: Vec<PlannedVariable>,
}

/// What was decided about a secret that a run asked for. Never its value.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct SecretDecision {
    /// The variable that it is for.
    pub variable: String,
    /// The slug in the inventory, for `oauth` the id after `oauth/`; `null`: the caller gives the value.
    pub slug: Option<String>,
    /// Who gets it: the tool or workflow, or the command.
    pub consumer: String,
    /// The decision.
    pub decision: Decision,
    /// What decided: a flag, a permission of an inventory, the host's policy; for `unresolved` why there is
    /// no value.
    pub reason: String,
}

/// A decision about a secret.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Decision {
    /// The body gets its value.
    Granted,
    /// The run is refused.
    Refused,
    /// Granted, but the host has no usable value: the run is refused.
    Unresolved,
}

/// The start of what a body wrote, without the values of its secrets.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct RecordedOutput {
    /// Lower-case ULID.
    pub run_id: String,
    /// The standard output. What is not recorded counts as dropped.
    #[cfg_attr(test, schemars(with = "StreamDocument"))]
    pub stdout: StreamReport,
    /// The standard error.
    #[cfg_attr(test, schemars(with = "StreamDocument"))]
    pub stderr: StreamReport,
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
