//! The report: the JSON document about one run. Its schema is `schemas/report.schema.json`.

use std::borrow::Cow;

use serde::{Deserialize, Serialize, Serializer};

#[cfg(test)]
use crate::captured::StreamDocument;
pub use crate::captured::StreamReport;
use crate::denial_reason::DenialReason;
use crate::digest::Digest;
use crate::document::SourceLine;
use crate::egress_report::EgressReport;
use crate::history::RecordedOutput;
use crate::image_report::ImageReport;
use crate::limits::Limit;
use crate::manifest::SourceCommit;
use crate::named::{Named, by_name};
use crate::observation::Observation;
use crate::outcome::Outcome;
use crate::path_use::PathOperation;
use crate::plan_report::PlannedPath;
use crate::preparation_report::PreparationReport;
use crate::run_form::RunForm;
pub use crate::runner_report::RunnerReport;
use crate::sandboxes::EndedCommands;
use crate::syscall_policy::SyscallPolicyName;
use crate::usage_sample::UsageSample;
use crate::workspace_source_report::WorkspaceSourceReport;

/// Version of the document format. The number before the dot changes with incompatible changes.
pub const SCHEMA_VERSION: &str = "2.5";

pub(crate) const RUNNER_VERSION: &str = env!("CARGO_PKG_VERSION");

/// The JSON document about one run.
#[derive(Debug, Clone, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(extend("$id" = "urn:runner:schema:report")))]
pub struct Report {
    /// [`SCHEMA_VERSION`].
    pub schema_version: &'static str,
    /// Lower-case ULID.
    pub run_id: String,
    /// Version of the runner.
    pub runner_version: &'static str,
    /// Start of the run: UTC, RFC 3339, to the millisecond.
    pub started_at: String,
    /// How the run ended.
    pub outcome: Outcome,
    /// How the body's first process ended; `null`: it never ran.
    pub exit: Option<Exit>,
    /// The commands of a sandbox that stays, which has no body; `null` for any other run.
    pub commands: Option<EndedCommands>,
    /// The signal to the runner that cancelled the run; `null`: the outcome is not `cancelled`.
    pub cancelled_by: Option<i32>,
    /// Why the outcome is `refused` or `failed`; `null`: it is neither.
    pub error: Option<ErrorReport>,
    /// Wall time of each phase by its name, in order, milliseconds: `prepare`, `unpack`, `plan`,
    /// `sources`, `stage`, `launch`, `body`, `sync`, `clean`.
    #[serde(rename = "timings_ms", serialize_with = "by_name")]
    #[cfg_attr(test, schemars(with = "std::collections::BTreeMap<String, f64>"))]
    pub timings: Vec<Timing>,
    /// Steps of the child, for `-vv`. Not part of the document.
    #[serde(skip)]
    #[cfg_attr(test, schemars(skip))]
    pub steps: Vec<StepEnd>,
    /// What `--record-output` keeps in the history. Not part of the document.
    #[serde(skip)]
    #[cfg_attr(test, schemars(skip))]
    pub recorded_output: Option<RecordedOutput>,
    /// Resources that the body used.
    pub usage: Usage,
    /// `usage` over time, for the page; `null` without `--report` or without a cgroup.
    pub samples: Option<Vec<UsageSample>>,
    /// Decisions before the body was started.
    #[serde(flatten)]
    pub plan: Plan,
    /// The paths visible to the body, parents first, for the page; `null` without `--report`.
    pub view: Option<Vec<PlannedPath>>,
    /// The body's standard output.
    #[cfg_attr(test, schemars(with = "StreamDocument"))]
    pub stdout: StreamReport,
    /// The body's standard error.
    #[cfg_attr(test, schemars(with = "StreamDocument"))]
    pub stderr: StreamReport,
    /// Files staged in, by key.
    pub inputs: Vec<StagedReport>,
    /// Files synced out, by key.
    pub outputs: Vec<SyncedReport>,
    /// The structured output of the body.
    pub output: Option<serde_json::Value>,
    /// Denied operations of the body.
    pub denials: Vec<Denial>,
    /// Which kinds of denials were observed.
    pub observation: Observation,
    /// The network.
    pub egress: EgressReport,
    /// The bundle; `null` for `runner run`.
    pub bundle: Option<BundleReport>,
    /// Workspace sources, in the order of the manifest.
    pub workspace_sources: Vec<WorkspaceSourceReport>,
    /// Path of the copy of the scratch root that `--keep` made.
    pub kept: Option<String>,
    /// Secrets whose values the body received, without the values.
    pub secrets: Vec<SecretReport>,
    /// Warnings.
    pub warnings: Vec<WarningReport>,
}

/// Decisions before the body is started, in the report of a run and in the plan.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Plan {
    /// Each limit by its name, which ends with its unit.
    #[serde(serialize_with = "by_name")]
    #[cfg_attr(
        test,
        schemars(
            with = "std::collections::BTreeMap<String, LimitReport>",
            extend("propertyNames" = { "enum": Limit::ALL.map(Limit::name) })
        )
    )]
    pub limits: Vec<LimitReport>,
    /// How strongly each part of the isolation is enforced, by its name: `user_namespace`,
    /// `landlock`, `seccomp`, `memory` …
    #[serde(serialize_with = "by_name")]
    #[cfg_attr(
        test,
        schemars(with = "std::collections::BTreeMap<String, Enforcement>")
    )]
    pub enforcement: Vec<Enforcement>,
    /// Name of the cgroup back end: `v2`, `v2-scope`, `v1`, `none`.
    pub cgroup_backend: String,
    /// The system call policy; `null`: it was not decided.
    pub syscall_policy: Option<SyscallPolicyName>,
    /// The form of `run`; `null` for `runner run`.
    pub run_form: Option<RunForm>,
    /// The argument vector of the body.
    pub argv: Vec<String>,
    /// Host directories that are visible for a program outside the system directories.
    pub bound_programs: Vec<String>,
    /// Engine, image and needs; `null` for `runner run`.
    pub runner: Option<RunnerReport>,
    /// The image of the body's root; `null`: the body uses the host's programs.
    pub image: Option<ImageReport>,
    /// Packages that are installed before the body is started, in order.
    pub preparation: Vec<PreparationReport>,
}

impl Plan {
    /// The report of `limit`; `None`: the limits are not decided.
    #[must_use]
    pub fn limit(&self, limit: Limit) -> Option<&LimitReport> {
        self.limits.iter().find(|found| found.limit == limit)
    }
}

impl Default for Plan {
    fn default() -> Self {
        Self {
            limits: Vec::new(),
            enforcement: Vec::new(),
            cgroup_backend: "none".to_owned(),
            syscall_policy: None,
            run_form: None,
            argv: Vec::new(),
            bound_programs: Vec::new(),
            runner: None,
            image: None,
            preparation: Vec::new(),
        }
    }
}

/// How the body's first process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Exit {
    /// Exit code; `null`: a signal ended it.
    pub code: Option<i32>,
    /// Signal that ended it; `null`: it exited.
    pub signal: Option<i32>,
    /// Whether the kernel reported a core dump.
    pub core_dump: bool,
    /// Wait status (wait(2)).
    pub raw_status: i32,
}

impl Exit {
    /// Decodes a wait status (wait(2)).
    #[must_use]
    pub fn of_wait_status(raw_status: i32) -> Self {
        let signal = raw_status & 0x7f;
        Self {
            code: (signal == 0).then_some((raw_status >> 8) & 0xff),
            signal: (signal != 0).then_some(signal),
            core_dump: signal != 0 && raw_status & 0x80 != 0,
            raw_status,
        }
    }
}

/// An error.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ErrorReport {
    /// Stable error code, in snake case or as in the specifications.
    pub code: String,
    /// What was found and what was expected.
    pub message: String,
    /// How to fix it.
    pub hint: Option<String>,
    /// The line of the manifest or configuration, for messages. Not part of the document.
    #[serde(skip)]
    #[cfg_attr(test, schemars(skip))]
    pub source_line: Option<Box<SourceLine>>,
}

impl ErrorReport {
    /// An error without advice.
    #[must_use]
    pub fn new(code: &str, message: impl Into<String>) -> Self {
        Self {
            code: code.to_owned(),
            message: message.into(),
            hint: None,
            source_line: None,
        }
    }

    /// The report of `error`, with its causes in the message.
    #[must_use]
    pub fn of(code: &str, error: &dyn std::error::Error, hint: Option<String>) -> Self {
        Self {
            hint,
            ..Self::new(code, with_causes(error))
        }
    }

    /// Adds advice.
    #[must_use]
    pub fn with_hint(self, hint: impl Into<String>) -> Self {
        Self {
            hint: Some(hint.into()),
            ..self
        }
    }
}

/// Formats an error with its causes in one line.
#[must_use]
pub fn with_causes(error: &dyn std::error::Error) -> String {
    let mut message = error.to_string();
    let mut cause = error.source();
    while let Some(next) = cause {
        let text = next.to_string();
        // Skip causes that the message already quotes.
        if !message.contains(&text) {
            message.push_str(": ");
            message.push_str(&text);
        }
        cause = next.source();
    }
    message
}

/// Wall time of one phase.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Timing {
    pub phase: &'static str,
    pub duration_us: u64,
}

impl Timing {
    /// The duration in milliseconds.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "exact for three hundred years")]
    pub fn milliseconds(&self) -> f64 {
        self.duration_us as f64 / 1_000.0
    }
}

impl Named for Timing {
    fn name(&self) -> &str {
        self.phase
    }
}

impl Serialize for Timing {
    fn serialize<Into: Serializer>(&self, into: Into) -> Result<Into::Ok, Into::Error> {
        into.serialize_f64(self.milliseconds())
    }
}

/// When a step of the child ended, between its clone and the body's exec.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StepEnd {
    pub name: Cow<'static, str>,
    /// Microseconds from the clone.
    pub at_us: u64,
}

/// Resources that the body used; `null`: this host does not measure it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Usage {
    /// Time from the launch to the end of the body.
    pub wall_time_ms: u64,
    /// CPU time of all processes in user mode.
    pub user_time_ms: Option<u64>,
    /// CPU time of all processes in the kernel.
    pub system_time_ms: Option<u64>,
    /// Peak memory of all processes, files in memory included.
    pub memory_peak_bytes: Option<u64>,
    /// Peak number of processes and threads.
    pub processes_peak: Option<u64>,
    /// Growth of the writable directories from the launch to the end.
    pub written_bytes: Option<u64>,
    /// Number of processes that were killed because of the memory limit.
    pub oom_kills: Option<u64>,
}

/// One limit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct LimitReport {
    #[serde(skip)]
    pub limit: Limit,
    /// Requested value; `null`: none was requested.
    pub requested: Option<u64>,
    /// Effective value; `null`: unlimited.
    pub effective: Option<u64>,
    /// The mechanism: `cgroup-v1`, `cgroup-v2`, `rlimit`, `tmpfs`, `supervisor`, `poll`, `none`.
    pub enforced_by: &'static str,
    /// Source of the effective value: `default`, `flag`, a key of the manifest, `host-policy` …
    pub source: String,
    /// All sources of values, the deciding one included.
    pub sources: Vec<LimitSource>,
}

/// A source of a value for a limit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct LimitSource {
    /// `default`, `flag` or the key; `host-policy` and `built-in-maximum` are maxima.
    pub source: String,
    /// Value in the unit of the limit.
    pub value: u64,
}

/// How strongly a part of the isolation is enforced.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Enforcement {
    /// Its name.
    #[serde(skip)]
    pub axis: String,
    /// How strongly it is enforced.
    pub state: EnforcementState,
    /// Why it is not `enforced`, or what it does not cover.
    pub reason: Option<String>,
}

impl Named for LimitReport {
    fn name(&self) -> &str {
        self.limit.name()
    }
}

impl Named for Enforcement {
    fn name(&self) -> &str {
        &self.axis
    }
}

/// How strongly something is enforced.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum EnforcementState {
    /// By the kernel, for all processes.
    Enforced,
    /// A body can partly evade it: it applies to each process, or is polled.
    Weaker,
    /// Not at all.
    Absent,
}

impl EnforcementState {
    /// The value in reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Enforced => "enforced",
            Self::Weaker => "weaker",
            Self::Absent => "absent",
        }
    }
}

/// A file that was staged for the body.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct StagedReport {
    /// The key. Inside, the file is at `/scratch/<key>`.
    pub key: String,
    /// Relative to the workspace.
    pub path: String,
    /// SHA-256 of the staged bytes.
    #[cfg_attr(test, schemars(with = "String"))]
    pub sha256: Digest,
    /// Size.
    pub bytes: u64,
}

/// A declared output file after the run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct SyncedReport {
    /// The key. Inside, the file is at `/scratch/<key>`.
    pub key: String,
    /// Relative to the workspace, with tokens replaced.
    pub path: String,
    /// The result.
    pub state: SyncState,
    /// SHA-256 of the written bytes; `null`: not `synced`.
    #[cfg_attr(test, schemars(with = "Option<String>"))]
    pub sha256: Option<Digest>,
    /// Size; `null`: not `synced`.
    pub bytes: Option<u64>,
    /// Why it is `failed`; `null`: it is not.
    pub error: Option<ErrorReport>,
}

/// The result for a declared output file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum SyncState {
    /// Written to the workspace.
    Synced,
    /// The body did not write it.
    Missing,
    /// It could not be written, or writing it is not allowed.
    Failed,
    /// Not copied: the run was cancelled, or was one of `runner learn`.
    Skipped,
}

/// A denied operation of the body.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Denial {
    /// `net`, `syscall`, `resource`, `file`, `exec`, `signal`.
    pub kind: String,
    /// What the body tried to use: `example.org:443`, a path of its view, `SIGTERM to process 1`, or the call
    /// with the deciding arguments, such as `socket(17, 3, 0)`.
    pub object: String,
    /// What it tried to do with the path; only of `file` and `exec`.
    pub operation: Option<PathOperation>,
    /// The rule that denied it.
    pub rule: String,
    /// The error that the body got, such as `EPERM`; not of `net`.
    pub errno: Option<String>,
    /// Why it was denied; only of `net`.
    pub reason: Option<DenialReason>,
    /// `dns`, `tcp`, `udp`, `icmp`, `sctp`, `udplite`, or the number of an IP protocol; only of
    /// `net`.
    pub protocol: Option<String>,
    /// Name of the host, if known; only of `net`.
    pub host: Option<String>,
    /// Address, if known; only of `net`.
    pub ip: Option<String>,
    /// Port, if known; only of `net`.
    pub port: Option<u16>,
    /// How to fix it.
    pub hint: Option<String>,
    /// `inferred` from what was at the path at the time of the call: the body may not have got this error;
    /// `null`: it got it.
    pub certainty: Option<Certainty>,
    /// Number of attempts.
    pub count: u64,
    /// Time of the first attempt, in milliseconds since the body was started; `null`: unknown.
    pub first_ms: Option<u64>,
}

/// How sure it is that the body got the error.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Certainty {
    /// From what was at the path at the time of the call.
    Inferred,
}

/// The bundle.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct BundleReport {
    /// `name` of the manifest.
    pub name: Option<String>,
    /// `version` of the manifest.
    pub version: Option<String>,
    /// SHA-256 of the canonical tar: the bundle's identity.
    #[cfg_attr(test, schemars(with = "String"))]
    pub content_digest: Digest,
    /// SHA-256 of the archive; `null`: the bundle is a directory.
    #[cfg_attr(test, schemars(with = "Option<String>"))]
    pub archive_digest: Option<Digest>,
    /// Size of all files.
    pub bytes: u64,
    /// Number of files, directories and links.
    pub entries: u64,
    /// What the cache of bundles did.
    pub cache: BundleCacheReport,
    /// Commits of its files, as the bundle states them.
    pub sources: Vec<SourceCommit>,
}

/// What the cache of bundles did.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct BundleCacheReport {
    /// Where the tree was found.
    pub found: CacheFound,
    /// Why the cache was `off`, or why the tree was not kept or not found by its file's identity:
    /// `flag`, `policy`, `directory`, `stdin`, `small`, `too_large`, `full`, `unsafe`, `unusable`,
    /// `others_may_write`, `others_may_replace`, `young`, `untrusted`.
    pub reason: Option<&'static str>,
    /// How the body sees the tree.
    pub view: BundleView,
}

/// Where the tree of a bundle was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum CacheFound {
    /// By the archive's identity: it has not changed since it was hashed.
    Identity,
    /// By the archive's digest: an archive with the same bytes was unpacked before.
    Digest,
    /// It was unpacked and is kept in the cache.
    Miss,
    /// It was unpacked and is not kept.
    Off,
}

/// How the body sees the tree of its bundle.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum BundleView {
    /// An overlayfs with the kept tree as its lower layer.
    Overlayfs,
    /// A copy of the kept tree.
    Copy,
    /// A tree that was unpacked for this run only.
    Own,
}

/// A secret whose value the body received.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct SecretReport {
    /// Name of the variable with the value.
    pub variable: String,
    /// `vault SLUG` or `oauth ID` of the manifest, `env:NAME` or `file:PATH` of the caller.
    pub reference: String,
    /// Source of the value: `caller`, `directory`, `environment` or `command`.
    pub provider: String,
    /// What granted it.
    pub granted_by: String,
}

/// A warning.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct WarningReport {
    /// Stable warning code.
    pub code: String,
    /// Message for people.
    pub message: String,
}

impl WarningReport {
    /// Creates a warning.
    #[must_use]
    pub fn new(code: &str, message: impl Into<String>) -> Self {
        Self {
            code: code.to_owned(),
            message: message.into(),
        }
    }
}

impl Report {
    /// A report without results.
    #[must_use]
    pub fn new(run_id: String, outcome: Outcome) -> Self {
        Self {
            schema_version: SCHEMA_VERSION,
            run_id,
            runner_version: RUNNER_VERSION,
            started_at: String::new(),
            outcome,
            exit: None,
            commands: None,
            cancelled_by: None,
            error: None,
            timings: Vec::new(),
            steps: Vec::new(),
            recorded_output: None,
            usage: Usage::default(),
            samples: None,
            plan: Plan::default(),
            view: None,
            stdout: StreamReport::default(),
            stderr: StreamReport::default(),
            inputs: Vec::new(),
            outputs: Vec::new(),
            output: None,
            denials: Vec::new(),
            observation: Observation::default(),
            egress: EgressReport::default(),
            bundle: None,
            workspace_sources: Vec::new(),
            kept: None,
            secrets: Vec::new(),
            warnings: Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    enum Fault {
        #[error("no file")]
        Below,
        #[error("the folder cannot be read")]
        Above(#[source] Box<Fault>),
        #[error(transparent)]
        Through(Box<Fault>),
    }

    #[test]
    fn an_error_is_formatted_with_each_cause_once() {
        let above = || Fault::Above(Box::new(Fault::Below));
        let expected = "the folder cannot be read: no file";
        assert_eq!(with_causes(&above()), expected);
        assert_eq!(with_causes(&Fault::Through(Box::new(above()))), expected);
    }
}
