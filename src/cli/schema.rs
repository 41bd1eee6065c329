//! `runner schema NAME`: prints a JSON Schema.

use std::borrow::Cow;

use spec::manifest;

#[derive(Debug, clap::Args)]
pub struct Schema {
    /// The document
    pub name: SchemaName,
}

/// The documents that have a schema.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum SchemaName {
    /// The manifest of a tool, a workflow or a code-workspace
    Manifest,
    /// A `sandbox` block, in a SANDBOX.md or in a manifest
    Sandbox,
    /// The host's configuration
    Config,
    /// The file of --policy
    Policy,
    /// What --json writes
    Report,
    /// What `doctor --json` prints
    Doctor,
    /// What `plan --json` prints
    Plan,
    /// What `why --json` prints
    Why,
    /// What `bundle --lock` writes
    Lock,
    /// What `check --json` prints
    Check,
    /// What `source build --json` prints
    SourceBuild,
    /// A line of --events
    Events,
    /// A line of the history of runs
    History,
    /// What `ps --json` prints
    Ps,
    /// What `sandbox ls --json` prints
    Sandboxes,
    /// What `sandbox exec --json` writes
    Command,
}

/// The schema of a document, as in `schemas/`.
#[must_use]
pub fn text(name: SchemaName) -> Cow<'static, str> {
    let text = match name {
        SchemaName::Manifest => return manifest::schema::of_manifest().into(),
        SchemaName::Sandbox => return manifest::schema::of_sandbox().into(),
        SchemaName::Config => include_str!("../../schemas/config.schema.json"),
        SchemaName::Policy => include_str!("../../schemas/policy.schema.json"),
        SchemaName::Report => include_str!("../../schemas/report.schema.json"),
        SchemaName::Doctor => include_str!("../../schemas/doctor.schema.json"),
        SchemaName::Plan => include_str!("../../schemas/plan.schema.json"),
        SchemaName::Why => include_str!("../../schemas/why.schema.json"),
        SchemaName::Lock => include_str!("../../schemas/lock.schema.json"),
        SchemaName::Check => include_str!("../../schemas/check.schema.json"),
        SchemaName::Events => include_str!("../../schemas/events.schema.json"),
        SchemaName::History => include_str!("../../schemas/history.schema.json"),
        SchemaName::Sandboxes => include_str!("../../schemas/sandboxes.schema.json"),
        SchemaName::Command => include_str!("../../schemas/command.schema.json"),
        SchemaName::Ps => include_str!("../../schemas/ps.schema.json"),
        SchemaName::SourceBuild => include_str!("../../schemas/source-build.schema.json"),
    };
    text.into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::ValueEnum as _;

    #[test]
    fn each_name_prints_the_file_of_that_name() {
        for name in SchemaName::value_variants() {
            let value = name.to_possible_value().expect("no name is hidden");
            let file = format!("schemas/{}.schema.json", value.get_name());
            let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join(file);
            let expected = std::fs::read_to_string(path).expect("readable");
            assert!(text(*name) == expected, "{}", value.get_name());
        }
    }
}
