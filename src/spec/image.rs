//! Image templates: root file systems by name, as the host's registry lists them.

use crate::spec::runner_block::Language;

/// One template of the registry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImageTemplate {
    /// Its name; what `runner.image` says.
    pub id: String,
    /// The languages whose runtimes it holds.
    pub languages: Vec<Language>,
    /// OS packages that are baked in, by their Debian names.
    pub native: Vec<String>,
    /// What it costs to start, 0 for the lightest.
    pub cost_tier: u32,
    /// Where its root file system comes from: `docker://…` or `oci:DIR`; `None`: not built yet.
    pub source: Option<String>,
}
