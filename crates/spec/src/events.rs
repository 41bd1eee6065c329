//! The events of a run, which `--events` writes while the run goes on.

use serde::Serialize;

use crate::outcome::Outcome;
use crate::report::{Denial, ErrorReport, Exit, SyncedReport};

/// Version of the lines. The number before the dot changes with incompatible changes.
pub const EVENTS_VERSION: &str = "1.1";

/// One line of `--events`.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(extend("$id" = "urn:runner:schema:events")))]
pub struct Event<'run> {
    /// 0 for the first event of a run, then one more each. Events whose numbers are missing were lost.
    pub seq: u64,
    /// Lower-case ULID.
    pub run_id: &'run str,
    /// UTC, RFC 3339, to the millisecond.
    pub at: String,
    #[serde(flatten)]
    pub kind: EventKind<'run>,
}

/// What happened.
#[derive(Debug, Clone, Copy, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum EventKind<'run> {
    /// The run begins. An invocation that is refused before it is a run has only `ended`.
    Started {
        /// Version of the format of these lines.
        events_version: &'static str,
        /// Version of the runner.
        runner_version: &'static str,
        /// The process id of the runner, in its own PID namespace.
        pid: u32,
    },
    /// A phase begins: `body` when the body is started.
    PhaseStarted { phase: Phase },
    /// A phase ends, also with an error.
    PhaseEnded {
        phase: Phase,
        /// Its wall time.
        duration_ms: f64,
    },
    /// What the running body was denied for the first time: a system call, or with `--trace` a file, a program
    /// or a signal. At most 1,000 of them. `denial` follows with the number of attempts.
    FirstDenial { denial: &'run Denial },
    /// Denied operations of the body, equal ones counted. Follows the end of the phase `body`.
    Denial { denial: &'run Denial },
    /// The result for a declared output file.
    Output { output: &'run SyncedReport },
    /// The last event.
    Ended {
        outcome: Outcome,
        /// How the body's first process ended; `null`: it never ran.
        exit: Option<Exit>,
        /// The signal to the runner that cancelled the run; `null`: the outcome is not `cancelled`.
        cancelled_by: Option<i32>,
        /// Why the outcome is `refused` or `failed`; `null`: it is neither.
        error: Option<&'run ErrorReport>,
    },
}

/// A phase of a run, in order. A run that ends early has only the first ones, and `clean`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// Groups, namespaces and the writable space.
    Prepare,
    /// The bundle's files.
    Unpack,
    /// What is run, with image, packages and limits.
    Plan,
    /// The workspace sources, if there are any.
    Sources,
    /// The image is mounted, the inputs are checked and written.
    Stage,
    /// Secrets, and the start of the body.
    Launch,
    /// From the start of the body to the end of all its processes.
    Body,
    /// The outputs.
    Sync,
    /// What the run used is removed.
    Clean,
}

impl Phase {
    /// All of them, in order.
    pub const ALL: [Self; 9] = [
        Self::Prepare,
        Self::Unpack,
        Self::Plan,
        Self::Sources,
        Self::Stage,
        Self::Launch,
        Self::Body,
        Self::Sync,
        Self::Clean,
    ];

    /// The name in reports and events.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Prepare => "prepare",
            Self::Unpack => "unpack",
            Self::Plan => "plan",
            Self::Sources => "sources",
            Self::Stage => "stage",
            Self::Launch => "launch",
            Self::Body => "body",
            Self::Sync => "sync",
            Self::Clean => "clean",
        }
    }
}
