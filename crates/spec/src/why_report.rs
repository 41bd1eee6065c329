//! The answer of `runner why`: whether a body may use a path, a host or a system call, and which rule
//! decides; or how a run ended, and what it was denied. Its schema is `schemas/why.schema.json`.
//!
//! `decided_by` has the values of the plan: `fixed`, `default`, a flag, a manifest key, `host-policy`.

use serde::Serialize;

use crate::egress::EgressRule;
use crate::report::{ErrorReport, WarningReport};

/// Version of the document format. The number before the dot changes with incompatible changes.
pub const SCHEMA_VERSION: &str = "1.1";

/// What is asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Question {
    /// A path as the body names it: absolute, or relative to its working directory.
    Path { path: Vec<u8>, operation: Operation },
    /// A name or an address. Without a port, 443.
    Host(EgressRule),
    /// The name of a system call.
    Syscall(String),
}

/// What the body does with a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    /// Read a file, or list a directory.
    Read,
    /// Write or create a file, or create and remove entries of a directory.
    Write,
    /// Execute a program.
    Execute,
}

impl Operation {
    /// All operations.
    pub const ALL: [Self; 3] = [Self::Read, Self::Write, Self::Execute];

    /// The word of `--op`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Execute => "exec",
        }
    }
}

/// The document of `runner why --json`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(extend("$id" = "urn:runner:schema:why")))]
pub struct WhyReport {
    /// [`SCHEMA_VERSION`].
    pub schema_version: &'static str,
    /// The answer; `null`: the run is refused before it can be decided, or `run` is the answer.
    pub answer: Option<Answer>,
    /// A run of the history; `null`: the question was another one.
    pub run: Option<ExplainedRun>,
    /// Why the run would not be started; `null`: it would be.
    pub error: Option<ErrorReport>,
    /// Warnings.
    pub warnings: Vec<WarningReport>,
}

/// How a run ended, and what it was denied.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ExplainedRun {
    /// The id of the run, by which `runner inspect` prints its report.
    pub run_id: String,
    /// The program and its arguments, escaped.
    pub argv: Vec<String>,
    /// How it ended, in words.
    pub ended: String,
    /// What changes that; `null`: nothing does, or nothing needs to.
    pub change: Option<String>,
    /// Limits that were reached and did not end it.
    pub limits: Vec<String>,
    /// What was denied, the most frequent first.
    pub denied: Vec<ExplainedDenial>,
    /// Kinds of denials that were not observed, so that `denied` may lack some.
    pub unseen: Vec<Unseen>,
}

/// A denied operation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ExplainedDenial {
    /// Kind, operation and object, such as `file read /etc/shadow`.
    pub what: String,
    /// The error that the body got; `null`: not of hosts.
    pub errno: Option<String>,
    /// Number of attempts.
    pub count: u64,
    /// The rule, or the reason of a denied host.
    pub rule: String,
    /// What changes it.
    pub change: Option<String>,
}

/// A kind of denials that was not observed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Unseen {
    /// `network`, `syscalls`, `files` and the like, as in `observation` of the report.
    pub kind: String,
    /// Why.
    pub reason: String,
}

/// The chain of decisions.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Answer {
    /// The question: `read /etc/shadow`, `connect to a.com:443`, `call ptrace`.
    pub asked: String,
    /// Whether the body may do it.
    pub verdict: Verdict,
    /// The errno that the body gets; `null`: none, or not the same for every attempt.
    pub errno: Option<String>,
    /// What is there.
    pub state: State,
    /// `state` in words.
    pub found: String,
    /// The rule that decides.
    pub rule: String,
    /// Source of the rule: `fixed`, `default`, a flag, a key, or `host-policy`.
    pub decided_by: String,
    /// What changes the verdict, a flag if there is one; `null`: nothing does.
    pub change: Option<String>,
}

/// Whether the body may do what is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// It may. Exit code 0.
    Allowed,
    /// It may not. Exit code 1.
    Denied,
    /// It depends on arguments of the call, or on what only a run can tell. Exit code 2.
    Depends,
}

/// What the body finds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// A path: visible, read-only.
    ReadOnly,
    /// A path: visible and writable.
    ReadWrite,
    /// A path: in a private directory, empty at the start unless the runner fills it.
    Private,
    /// A path: a device or a pseudo-terminal.
    Device,
    /// A path: in proc of the body's pid namespace.
    Proc,
    /// A path: covered by an empty file or directory.
    Masked,
    /// A path: on a mount from which no program can be executed.
    NoExec,
    /// A path: on the host, but not in the view.
    Hidden,
    /// A path: neither in the view nor on the host.
    Absent,
    /// A host: in the list of allowed hosts.
    Listed,
    /// A host: not in the list of allowed hosts.
    NotListed,
    /// A host: its address is not public.
    NotPublic,
    /// A host: no connection to this port is captured.
    NotCaptured,
    /// A host: the body's own loopback.
    Loopback,
    /// A host: no network is set up.
    Closed,
    /// A system call: allowed with all arguments.
    Callable,
    /// A system call: refused with all arguments.
    Refused,
    /// A system call: does nothing and succeeds.
    Ignored,
    /// A system call: some arguments are refused.
    ByArguments,
}

impl WhyReport {
    /// The document of a question that cannot be answered.
    #[must_use]
    pub fn refused(error: ErrorReport) -> Self {
        Self {
            schema_version: SCHEMA_VERSION,
            answer: None,
            run: None,
            error: Some(error),
            warnings: Vec::new(),
        }
    }

    /// The document about a run of the history.
    #[must_use]
    pub fn about_run(run: ExplainedRun) -> Self {
        Self {
            schema_version: SCHEMA_VERSION,
            answer: None,
            run: Some(run),
            error: None,
            warnings: Vec::new(),
        }
    }
}
