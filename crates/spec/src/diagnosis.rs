//! The diagnosis of a host: the limits and isolation that it can enforce. Its schema is
//! `schemas/doctor.schema.json`.

use serde::Serialize;

use crate::report::EnforcementState;

/// Version of the document's shape. The number before the dot changes with incompatible changes.
pub const SCHEMA_VERSION: &str = "1.0";

/// What a host can enforce, as `runner doctor --json` prints it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(extend("$id" = "urn:runner:schema:doctor")))]
pub struct Diagnosis {
    /// [`SCHEMA_VERSION`].
    pub schema_version: &'static str,
    /// All items together.
    pub verdict: Verdict,
    /// One by one, in the order in which a person should mend them.
    pub items: Vec<Item>,
}

/// All items together. The exit code of `runner doctor` says the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// Bodies run, and everything is enforced. Exit code 0.
    Full,
    /// Bodies run, and something is weaker or absent. Exit code 1.
    Degraded,
    /// No body can be run. Exit code 2.
    CannotRun,
}

/// One thing that a host can or cannot do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Item {
    /// Stable, in snake case.
    pub id: String,
    /// How strongly it holds here.
    pub state: EnforcementState,
    /// What is lost without it.
    pub needed_for: Need,
    /// What that means for a run.
    pub effect: String,
    /// The command that would mend it; absent where nothing is to be mended, or no command can.
    pub mend: Option<String>,
}

/// What is lost where an item is not `enforced`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Need {
    /// No body can be run.
    Running,
    /// Bodies run with less confinement, or with weaker limits.
    Strength,
    /// Nothing but some bundles: those that want this program.
    Convenience,
}
