//! The diagnosis of a host: the limits and isolation that it can enforce. Its schema is
//! `schemas/doctor.schema.json`.

use serde::Serialize;

use crate::report::EnforcementState;

/// Version of the document format. The number before the dot changes with incompatible changes.
pub const SCHEMA_VERSION: &str = "1.1";

/// What a host can enforce, as `runner doctor --json` prints it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(extend("$id" = "urn:runner:schema:doctor")))]
pub struct Diagnosis {
    /// [`SCHEMA_VERSION`].
    pub schema_version: &'static str,
    /// The result of all items.
    pub verdict: Verdict,
    /// One sentence: whether this host can run programs, and how strongly.
    pub summary: String,
    /// The items, in the order in which to fix them.
    pub items: Vec<Item>,
}

/// The result of all items. The exit code of `runner doctor` matches it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// Bodies run, and everything is enforced. Exit code 0.
    Full,
    /// Bodies run, but some items are weaker or absent. Exit code 1.
    Degraded,
    /// Bodies cannot run. Exit code 2.
    CannotRun,
}

/// A feature of the host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Item {
    /// Stable id, in snake case.
    pub id: String,
    /// How strongly it is enforced on this host.
    pub state: EnforcementState,
    /// What is lost without it.
    pub needed_for: Need,
    /// The effect of the state on a run.
    pub effect: String,
    /// The control of the host that causes the state, such as a setting, a filter or a container; `null`:
    /// none is known.
    pub blocked_by: Option<String>,
    /// The command that fixes it; `null`: nothing to fix, or no command can.
    pub mend: Option<String>,
}

/// What is lost if an item is not `enforced`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Need {
    /// Bodies cannot run.
    Running,
    /// Bodies run with less confinement, or with weaker limits.
    Strength,
    /// Only bundles that need this program do not run.
    Convenience,
}
