//! The `runner` block in the report: engine, image, and unmet needs.

use serde::Serialize;

use crate::runner_block::Engine;

/// The process boundary of a run from a bundle.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct RunnerReport {
    /// The effective engine.
    pub engine: EngineName,
    /// Id of the named or selected image template; `null` for `subprocess`.
    pub image: Option<String>,
    /// Whether the manifest requests `in-process`, which runs as `subprocess`.
    pub downgraded: bool,
    /// Needs of the body that the run does not satisfy.
    pub needs_unsatisfied: Vec<UnsatisfiedNeed>,
}

/// An engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum EngineName {
    /// A sandbox with the toolchain of the host.
    Subprocess,
    /// A sandbox with its own root file system, from an image.
    Sandbox,
}

/// An entry of `needs` that is not satisfied.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct UnsatisfiedNeed {
    /// `language`, `native`, `npm` or `pip`.
    pub kind: &'static str,
    /// The entry, escaped.
    pub need: String,
    /// Why it is not satisfied.
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
