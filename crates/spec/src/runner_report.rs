//! The `runner` block in the report: engine, image, and unmet needs.

use serde::Serialize;

use crate::runner_block::Engine;

/// The process boundary of a run from a bundle.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct RunnerReport {
    /// `subprocess` or `sandbox`: what is given, not what was asked.
    pub engine: EngineName,
    /// Template id, named or picked, for `sandbox`; absent for `subprocess`.
    pub image: Option<String>,
    /// Whether `in-process` was asked for.
    pub downgraded: bool,
    /// What the body wants to find and will not.
    pub needs_unsatisfied: Vec<UnsatisfiedNeed>,
}

/// An engine, as it is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum EngineName {
    /// The host's toolchain, confined.
    Subprocess,
    /// A root file system of its own.
    Sandbox,
}

/// Something that `needs` names and that is not there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct UnsatisfiedNeed {
    /// `language`, `native`, `npm` or `pip`.
    pub kind: &'static str,
    /// As the manifest says it, escaped.
    pub need: String,
    /// What was found instead.
    pub reason: String,
}

impl From<Engine> for EngineName {
    fn from(engine: Engine) -> Self {
        match engine {
            Engine::Subprocess => Self::Subprocess,
            Engine::Sandbox => Self::Sandbox,
        }
    }
}

impl std::fmt::Display for UnsatisfiedNeed {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{} {} ({})", self.kind, self.need, self.reason)
    }
}
