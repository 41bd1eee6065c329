//! The report: the JSON document about one run. Its schema is `schemas/report.schema.json`.

use serde::{Serialize, Serializer};
use std::borrow::Cow;

#[cfg(test)]
use crate::captured::StreamDocument;
pub use crate::captured::StreamReport;
use crate::denial_reason::DenialReason;
use crate::digest::Digest;
use crate::egress_report::EgressReport;
use crate::image_report::ImageReport;
use crate::limits::Limit;
use crate::manifest::SourceCommit;
use crate::named::{Named, by_name};
use crate::outcome::Outcome;
use crate::preparation_report::PreparationReport;
use crate::run_form::RunForm;
pub use crate::runner_report::RunnerReport;
use crate::syscall_policy::SyscallPolicyName;
use crate::workspace_source_report::WorkspaceSourceReport;

/// Version of the document's shape. The number before the dot changes with incompatible changes.
pub const SCHEMA_VERSION: &str = "2.1";

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
    /// Version of the program that wrote this.
    pub runner_version: &'static str,
    /// When the run began: UTC, RFC 3339, to the millisecond.
    pub started_at: String,
    /// What became of the body.
    pub outcome: Outcome,
    /// How the body's first process ended; absent where it never ran.
    pub exit: Option<Exit>,
    /// The signal to the runner that ended the run; only when `cancelled`.
    pub cancelled_by: Option<i32>,
    /// Why the outcome is `refused` or `failed`.
    pub error: Option<ErrorReport>,
    /// Wall time of each phase by its name, in order, milliseconds: `prepare`, `unpack`, `sources`,
    /// `plan`, `stage`, `launch`, `body`, `sync`, `clean`.
    #[serde(rename = "timings_ms", serialize_with = "by_name")]
    #[cfg_attr(test, schemars(with = "std::collections::BTreeMap<String, f64>"))]
    pub timings: Vec<Timing>,
    /// What the child did when, for `-vv`: not part of the document.
    #[serde(skip)]
    #[cfg_attr(test, schemars(skip))]
    pub steps: Vec<StepEnd>,
    /// What the body used.
    pub usage: Usage,
    /// What was decided before the body started.
    #[serde(flatten)]
    pub plan: Plan,
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
    /// What the body tried and was refused.
    pub denials: Vec<Denial>,
    /// The network.
    pub egress: EgressReport,
    /// The bundle; absent for `runner run`.
    pub bundle: Option<BundleReport>,
    /// Workspace sources that the manifest names, in its order.
    pub workspace_sources: Vec<WorkspaceSourceReport>,
    /// Where `--keep` left a copy of the scratch root.
    pub kept: Option<String>,
    /// Each secret whose value the body was given: never the value.
    pub secrets: Vec<SecretReport>,
    /// What a person should know and need not act on.
    pub warnings: Vec<WarningReport>,
}

/// What is decided before a body starts: the part that the report of a run and the document of
/// `runner plan` have in common.
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
    /// Each axis of the confinement by its name, and how strongly it holds: `user_namespace`,
    /// `landlock`, `seccomp`, `memory` …
    #[serde(serialize_with = "by_name")]
    #[cfg_attr(
        test,
        schemars(with = "std::collections::BTreeMap<String, Enforcement>")
    )]
    pub enforcement: Vec<Enforcement>,
    /// Name of the cgroup back end: `v2`, `v2-scope`, `v1`, `none`.
    pub cgroup_backend: String,
    /// Which system calls the body may make; absent where it never came to that.
    pub syscall_policy: Option<SyscallPolicyName>,
    /// `file`, `exec` or `shell`.
    pub run_form: Option<RunForm>,
    /// The argument vector that was executed.
    pub argv: Vec<String>,
    /// Host directories that were made visible for a program outside the system directories.
    pub bound_programs: Vec<String>,
    /// Engine, image and needs; absent for `runner run`.
    pub runner: Option<RunnerReport>,
    /// The image that was the body's root; absent where the host's programs were.
    pub image: Option<ImageReport>,
    /// What was installed for the body before it started, in order.
    pub preparation: Vec<PreparationReport>,
}

impl Plan {
    /// What holds of `limit`; `None` before the limits are decided.
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
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Exit {
    /// Its exit code, where it exited.
    pub code: Option<i32>,
    /// The signal, where one ended it.
    pub signal: Option<i32>,
    /// Whether the kernel says that a core was dumped.
    pub core_dump: bool,
    /// The wait status as wait(2) gave it.
    pub raw_status: i32,
}

/// An error that a program can match on and a person can act on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ErrorReport {
    /// Stable, in snake case or as the specifications write it.
    pub code: String,
    /// What was found where, and what was expected.
    pub message: String,
    /// What to do.
    pub hint: Option<String>,
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

#[expect(clippy::cast_precision_loss, reason = "exact for three hundred years")]
fn milliseconds(us: u64) -> f64 {
    us as f64 / 1_000.0
}

impl Named for Timing {
    fn name(&self) -> &str {
        self.phase
    }
}

impl Serialize for Timing {
    fn serialize<Into: Serializer>(&self, into: Into) -> Result<Into::Ok, Into::Error> {
        into.serialize_f64(milliseconds(self.duration_us))
    }
}

/// The end of one step of the child between its clone and the body's exec.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StepEnd {
    pub act: Cow<'static, str>,
    /// Microseconds from the clone.
    pub at_us: u64,
}

/// What the body used; `None` where this host cannot say.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Usage {
    /// From launch to the end of the body.
    pub wall_time_ms: u64,
    /// CPU time in user mode, whole tree.
    pub user_time_ms: Option<u64>,
    /// CPU time in the kernel, whole tree.
    pub system_time_ms: Option<u64>,
    /// Highest memory of the whole tree, files in memory included.
    pub memory_peak_bytes: Option<u64>,
    /// Highest number of processes and threads at once.
    pub processes_peak: Option<u64>,
    /// Bytes in the writable space at the end beyond what was there at launch.
    pub written_bytes: Option<u64>,
    /// Processes that the memory limit ended, the first process or another.
    pub oom_kills: Option<u64>,
}

/// One limit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct LimitReport {
    #[serde(skip)]
    pub limit: Limit,
    /// What was asked; `None` where nobody asked.
    pub requested: Option<u64>,
    /// What held; `None`: unlimited.
    pub effective: Option<u64>,
    /// The mechanism: `cgroup-v1`, `cgroup-v2`, `rlimit`, `tmpfs`, `supervisor`, `poll`, `none`.
    pub enforced_by: &'static str,
    /// What decided it: `default`, `flag`, a key of the manifest, `host-policy` …
    pub source: String,
    /// Every source of a value, the one that decided included.
    pub sources: Vec<LimitSource>,
}

/// A source of a value for a limit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct LimitSource {
    /// `default`, `flag`, the key, or `host-policy` and `built-in-maximum`, whose values are maxima.
    pub source: String,
    /// In the unit of the limit.
    pub value: u64,
}

/// How strongly an axis of the confinement holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Enforcement {
    /// Its name.
    #[serde(skip)]
    pub axis: String,
    /// How strongly.
    pub state: EnforcementState,
    /// Why it is not `enforced`, or what it does not reach.
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

/// How strongly an axis holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum EnforcementState {
    /// By the kernel, for the whole tree.
    Enforced,
    /// A bound that a body can partly evade: per process, or polled.
    Weaker,
    /// Not at all.
    Absent,
}

impl EnforcementState {
    /// As in reports.
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
    /// The key; the file lies at `/scratch/<key>`.
    pub key: String,
    /// Relative to the workspace.
    pub path: String,
    /// Of the bytes that were staged.
    #[cfg_attr(test, schemars(with = "String"))]
    pub sha256: Digest,
    /// Size.
    pub bytes: u64,
}

/// A declared output file after the run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct SyncedReport {
    /// The key; the body wrote `/scratch/<key>`.
    pub key: String,
    /// Relative to the workspace, tokens replaced.
    pub path: String,
    /// What became of it.
    pub state: SyncState,
    /// Of the bytes that were written; only when `synced`.
    #[cfg_attr(test, schemars(with = "Option<String>"))]
    pub sha256: Option<Digest>,
    /// Size; only when `synced`.
    pub bytes: Option<u64>,
    /// Why it is `failed`.
    pub error: Option<ErrorReport>,
}

/// What became of a declared output file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum SyncState {
    /// Written to the workspace.
    Synced,
    /// The body did not make it.
    Missing,
    /// It could not or must not be written.
    Failed,
    /// Not tried: the run was cancelled.
    Skipped,
}

/// One thing that the body tried and was refused.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Denial {
    /// `syscall`, `file`, `net`, `exec`.
    pub kind: String,
    /// What it was aimed at.
    pub object: String,
    /// Which rule refused it.
    pub rule: String,
    /// Why, of `net`.
    pub reason: Option<DenialReason>,
    /// How, of `net`: `dns` for a question, `tcp`, `udp`, `icmp`, `sctp`, `udplite`, or a number
    /// of IP.
    pub protocol: Option<String>,
    /// Whom, of `net`, where a name is known.
    pub host: Option<String>,
    /// At which address, of `net`, where one is known.
    pub ip: Option<String>,
    /// At which port, of `net`, where one is known.
    pub port: Option<u16>,
    /// What to change.
    pub hint: Option<String>,
    /// How often.
    pub count: u64,
    /// When it was first tried: milliseconds since the body was started.
    pub first_ms: u64,
}

/// The bundle.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct BundleReport {
    /// Name and version that the manifest gives it; absent where it gives none.
    pub name: Option<String>,
    /// See `name`.
    pub version: Option<String>,
    /// SHA-256 of the canonical tar: the bundle's identity.
    #[cfg_attr(test, schemars(with = "String"))]
    pub content_digest: Digest,
    /// SHA-256 of the archive's bytes as they were read; absent for a directory.
    #[cfg_attr(test, schemars(with = "Option<String>"))]
    pub archive_digest: Option<Digest>,
    /// Bytes of all files.
    pub bytes: u64,
    /// Files, directories and links.
    pub entries: u64,
    /// What the cache of bundles did.
    pub cache: BundleCacheReport,
    /// Which commits its files are of: the bundle's own word.
    pub sources: Vec<SourceCommit>,
}

/// What the cache of bundles did.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct BundleCacheReport {
    /// Where the tree came from.
    pub found: CacheFound,
    /// Why it was `off`, or why a tree was not kept or not found by its file's identity: `flag`,
    /// `policy`, `directory`, `stdin`, `small`, `too_large`, `full`, `unsafe`, `unusable`,
    /// `others_may_write`, `others_may_replace`, `young`, `untrusted`.
    pub reason: Option<&'static str>,
    /// `overlayfs`: the kept tree lies below what the body changes; `copy`: the body has a copy of
    /// it; `own`: it was unpacked for this run alone.
    pub view: BundleView,
}

/// Where the tree of a bundle came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum CacheFound {
    /// The file has not changed since it was hashed.
    Identity,
    /// The file was hashed, and an archive with these bytes was unpacked before.
    Digest,
    /// It was unpacked, and is kept.
    Miss,
    /// It was unpacked, and is not kept.
    Off,
}

/// How the body has the tree of its bundle.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum BundleView {
    /// The kept tree lies below what the body changes.
    Overlayfs,
    /// The body has a copy of the kept tree.
    Copy,
    /// It was unpacked for this run alone.
    Own,
}

/// One secret whose value the body was given.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct SecretReport {
    /// The variable that holds it.
    pub variable: String,
    /// What it was asked for as: `vault SLUG`, `oauth ID`, or the caller's own `env:NAME`, `file:PATH`.
    pub reference: String,
    /// Who knew the value: `caller`, `directory`, `environment` or `command`.
    pub provider: String,
    /// Whose word let the body have it.
    pub granted_by: String,
}

/// Something a person should know.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct WarningReport {
    /// Stable.
    pub code: String,
    /// For people.
    pub message: String,
}

impl WarningReport {
    /// Makes a warning.
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
            cancelled_by: None,
            error: None,
            timings: Vec::new(),
            steps: Vec::new(),
            usage: Usage::default(),
            plan: Plan::default(),
            stdout: StreamReport::default(),
            stderr: StreamReport::default(),
            inputs: Vec::new(),
            outputs: Vec::new(),
            output: None,
            denials: Vec::new(),
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
    fn an_error_is_told_with_its_causes_and_each_of_them_once() {
        let above = || Fault::Above(Box::new(Fault::Below));
        let expected = "the folder cannot be read: no file";
        assert_eq!(with_causes(&above()), expected);
        assert_eq!(with_causes(&Fault::Through(Box::new(above()))), expected);
    }
}
