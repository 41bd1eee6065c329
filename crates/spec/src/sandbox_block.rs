//! The `sandbox` block (AIP-36): provider, limits, environment, egress, mounts, life cycle.

use crate::credential;
use crate::document::Node;
use crate::inventory::{self, Consumer, Inventory};
use crate::limits::TIME_MS_MAX;
use crate::manifest::reader::Reader;
use crate::manifest::secrets::{
    SecretReference, SecretRequest, is_variable_name, slug_of_variable,
};
use crate::manifest::{EgressRequest, ManifestError, Problem, StatedLimit, is_slug, network};
pub use crate::mounts::MountRequest;
use crate::mounts::read_mounts;
use crate::path::RelPath;
pub use crate::provider::Provider;
use crate::provider::{ConfigValue, ProviderEntry, REGISTRY};
use crate::runner_block::read_limits;

/// The shell of `config.shell`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Shell {
    #[default]
    Sh,
    Bash,
}

impl Shell {
    /// Path of the program.
    #[must_use]
    pub const fn path(self) -> &'static str {
        match self {
            Self::Sh => "/bin/sh",
            Self::Bash => "/bin/bash",
        }
    }
}

/// The `config` of `provider: local`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LocalConfig {
    /// Working directory below the workspace, or below the bundle if the workspace is not mounted;
    /// `None`: that directory itself.
    pub cwd: Option<RelPath>,
    pub shell: Option<Shell>,
}

/// A `sandbox` block.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SandboxBlock {
    pub provider: Provider,
    /// Default for other providers.
    pub local: LocalConfig,
    pub limits: Vec<StatedLimit>,
    pub passthrough: Vec<String>,
    pub secrets: Vec<SecretRequest>,
    pub egress: Vec<EgressRequest>,
    pub mounts: Vec<MountRequest>,
    pub read_only: bool,
    pub policy: bool,
    /// Event name of `lifecycle.pause_after_idle`. No effect.
    pub pause_after_idle: Option<String>,
    /// Event name of `lifecycle.destroy_on`. No effect.
    pub destroy_on: Option<String>,
}

const KEYS: [&str; 14] = [
    "provider",
    "config",
    "limits",
    "env",
    "network",
    "mounts",
    "identity",
    "policy",
    "lifecycle",
    "read_only",
    "metadata",
    "schema",
    "id",
    "version",
];
/// Keys of other programs that have no meaning here.
const DRIFT: [&str; 3] = ["extraPorts", "extra_ports", "join"];

/// Reads the block of the key `sandbox`.
pub fn read<'document>(
    reader: &mut Reader<'document>,
    node: &'document Node,
) -> Result<SandboxBlock, ManifestError> {
    let node = reader.block(node, "sandbox")?;
    // Checked first: unknown-key errors would not name the problem.
    refuse_cli_block(reader, node)?;
    refuse_unknown_keys(reader, node)?;
    for (value, why) in credential::all(node) {
        reader.note(reader.error(value, Problem::PlaintextCredential { why }));
    }
    reader.keep(read_standalone_keys(reader, node));
    let known = read_provider(reader, node);
    let known = reader.keep(known);
    let local = match known {
        Some(known) => read_config(reader, node, known),
        None => Ok(LocalConfig::default()),
    };
    let mut block = SandboxBlock {
        provider: known.map_or(Provider::Local, |known| known.provider),
        local: reader.keep(local).unwrap_or_default(),
        limits: Vec::new(),
        passthrough: Vec::new(),
        secrets: Vec::new(),
        egress: Vec::new(),
        mounts: Vec::new(),
        read_only: false,
        policy: false,
        pause_after_idle: None,
        destroy_on: None,
    };
    for (key, value) in reader.map(node)? {
        let read = read_key(reader, &key.name, value, &mut block);
        reader.keep(read);
    }
    if block.read_only {
        let value = node.get("read_only").unwrap_or(node);
        let refusal = reader.error(value, Problem::SandboxReadOnly);
        reader.refusals.push(refusal);
    }
    Ok(block)
}

fn read_key<'document>(
    reader: &mut Reader<'document>,
    key: &str,
    value: &'document Node,
    block: &mut SandboxBlock,
) -> Result<(), ManifestError> {
    match key {
        "limits" => block.limits = read_limits(reader, value, "sandbox.limits")?,
        "env" => read_env(reader, value, block)?,
        "network" => block.egress = network::read(reader, value, "sandbox.network.egress")?,
        "mounts" => block.mounts = read_mounts(reader, value)?,
        "policy" => block.policy = true,
        "lifecycle" => read_lifecycle(reader, value, block)?,
        "read_only" => block.read_only = reader.boolean(value)?,
        "identity" => reader.ignore(value),
        "metadata" => {
            reader.map(value)?;
            reader.ignore(value);
        }
        _ => (),
    }
    Ok(())
}

/// Refuses blocks of AIP-29, which have `fs`, `exec`, `env.pass` or `env.set`.
fn refuse_cli_block(reader: &Reader<'_>, node: &Node) -> Result<(), ManifestError> {
    let outer = ["fs", "exec"].into_iter().find_map(|name| node.entry(name));
    let inner = || {
        let env = node.get("env")?;
        ["pass", "set"].into_iter().find_map(|name| env.entry(name))
    };
    match outer.or_else(inner) {
        Some((key, value)) => Err(reader.error(
            value,
            Problem::CliSandbox {
                key: key.name.clone(),
            },
        )),
        None => Ok(()),
    }
}

fn refuse_unknown_keys<'document>(
    reader: &mut Reader<'document>,
    node: &'document Node,
) -> Result<(), ManifestError> {
    for (key, value) in reader.map(node)? {
        let name = key.name.as_str();
        if DRIFT.contains(&name) {
            warn_drift(reader, value);
        } else if !KEYS.contains(&name) {
            reader.note(reader.unknown_key(node, key, &KEYS, None));
        }
    }
    Ok(())
}

fn warn_drift(reader: &mut Reader<'_>, node: &Node) {
    reader.warn(
        "unspecified_key",
        node,
        "this key is not part of the specification and has no effect here",
    );
    reader.ignore(node);
}

fn read_standalone_keys<'document>(
    reader: &Reader<'document>,
    node: &'document Node,
) -> Result<(), ManifestError> {
    let schema = reader.optional(node, "schema", |schema| {
        reader.word(schema, &[("sandbox/v1", ())])
    });
    let id = reader.optional(node, "id", |id| {
        let text = reader.name(id)?;
        if is_slug(text) {
            Ok(())
        } else {
            Err(reader.wrong_type(id, "text of the form @owner/name"))
        }
    });
    let version = reader.optional(node, "version", |version| reader.name(version));
    reader.both(reader.both(schema, id), version).map(|_| ())
}

fn read_provider<'document>(
    reader: &mut Reader<'document>,
    node: &'document Node,
) -> Result<&'static ProviderEntry, ManifestError> {
    let value = reader.required(node, "provider")?;
    let words = REGISTRY.each_ref().map(|entry| (entry.name, entry));
    let entry = reader.word(value, &words)?;
    if let Some(why) = entry.unavailable {
        let refusal = reader.error(
            value,
            Problem::ProviderUnavailable {
                provider: entry.name.to_owned(),
                why,
            },
        );
        reader.refusals.push(refusal);
    }
    Ok(entry)
}

fn read_config<'document>(
    reader: &mut Reader<'document>,
    node: &'document Node,
    entry: &ProviderEntry,
) -> Result<LocalConfig, ManifestError> {
    let Some(config) = node.get("config") else {
        if entry.provider == Provider::Remote {
            return Err(reader.error(node, Problem::MissingKey { key: "config" }));
        }
        reader.warn(
            "config_missing",
            node,
            "`config` is missing and taken as `{}`",
        );
        return Ok(LocalConfig::default());
    };
    let mut local = LocalConfig::default();
    for (key, value) in reader.map(config)? {
        match entry.config_value(&key.name) {
            Some(expected) => {
                let read = read_config_value(reader, value, expected, &mut local);
                reader.keep(read);
            }
            None if key.name == "installAdapters" => warn_drift(reader, value),
            None => reader.note(reader.unknown_key(config, key, &entry.config_keys(), None)),
        }
    }
    Ok(local)
}

fn read_config_value<'document>(
    reader: &Reader<'document>,
    node: &'document Node,
    expected: ConfigValue,
    local: &mut LocalConfig,
) -> Result<(), ManifestError> {
    match expected {
        ConfigValue::Directory => {
            local.cwd = match reader.text(node)? {
                "." | "./" => None,
                _ => Some(reader.path(node)?),
            };
        }
        ConfigValue::Shell => {
            let shells = [Shell::Sh, Shell::Bash].map(|shell| (shell.path(), shell));
            local.shell = Some(reader.word(node, &shells)?);
        }
        ConfigValue::OneOf(words) => {
            let words: Vec<(&str, ())> = words.iter().map(|&word| (word, ())).collect();
            reader.word(node, &words)?;
        }
        ConfigValue::Name => {
            reader.name(node)?;
        }
    }
    Ok(())
}

fn read_env<'document>(
    reader: &mut Reader<'document>,
    node: &'document Node,
    block: &mut SandboxBlock,
) -> Result<(), ManifestError> {
    const KNOWN: [&str; 2] = ["auth", "passthrough"];
    for (key, value) in reader.map(node)? {
        match key.name.as_str() {
            "passthrough" => {
                let variables = reader.keep(read_variables(reader, value));
                block.passthrough = variables.unwrap_or_default();
            }
            "auth" => {
                let secrets = read_auth(reader, value);
                let secrets = reader.keep(secrets);
                block.secrets = secrets.unwrap_or_default();
            }
            "autoPassthrough" => warn_drift(reader, value),
            _ => reader.note(reader.unknown_key(node, key, &KNOWN, None)),
        }
    }
    Ok(())
}

fn read_variables<'document>(
    reader: &Reader<'document>,
    node: &'document Node,
) -> Result<Vec<String>, ManifestError> {
    let read = |item| {
        let name = reader.text(item)?;
        if is_variable_name(name) {
            Ok(name.to_owned())
        } else {
            Err(reader.wrong_type(item, "the name of a variable, such as NODE_ENV"))
        }
    };
    let items = reader.list(node)?.iter();
    Ok(items.filter_map(|item| reader.keep(read(item))).collect())
}

fn read_auth<'document>(
    reader: &mut Reader<'document>,
    node: &'document Node,
) -> Result<Vec<SecretRequest>, ManifestError> {
    reader.entries(node, &["ref", "state"])?;
    reader.keep(reader.optional(node, "ref", |reference| reader.name(reference)));
    let known = reader.keep(reader.inventory(node)).flatten();
    let known = known.map(|known| {
        let entries = inventory::read(reader, known);
        Inventory::new(reader.file_of(known), entries)
    });
    reader.inventories.extend(known.clone());
    let Some(state) = node.get("state") else {
        return Ok(Vec::new());
    };
    reader.entries(state, &["env"])?;
    let Some(variables) = state.get("env") else {
        return Ok(Vec::new());
    };
    Ok(read_variables(reader, variables)?
        .into_iter()
        .map(|variable| SecretRequest {
            reference: SecretReference::Vault(
                // The manifest's kind may not have been read yet. It is checked later.
                known
                    .as_ref()
                    .and_then(|known| known.entry_of_variable(&variable, &Consumer::default()))
                    .map_or_else(|| slug_of_variable(&variable), |entry| entry.slug.clone()),
            ),
            variable,
            source: "sandbox.env.auth".to_owned(),
        })
        .collect())
}

fn read_lifecycle<'document>(
    reader: &mut Reader<'document>,
    node: &'document Node,
    block: &mut SandboxBlock,
) -> Result<(), ManifestError> {
    const KNOWN: [&str; 2] = ["pause_after_idle", "destroy_on"];
    const DEPRECATED: &str = "write `pause_after_idle: idle-SECONDS` and `destroy_on: EVENT`";
    for (old, new) in [
        ("pause_after_idle_ms", "pause_after_idle"),
        ("destroy_on_workspace_close", "destroy_on"),
    ] {
        if node.get(old).is_some() && node.get(new).is_some() {
            let (one, other) = (new, old);
            reader.note(reader.error(node, Problem::Conflict { one, other }));
        }
    }
    for (key, value) in reader.map(node)? {
        let event = |reader: &Reader<'document>| {
            let name = reader.keep(reader.name(value));
            name.map(str::to_owned)
        };
        match key.name.as_str() {
            "pause_after_idle" => block.pause_after_idle = event(reader),
            "destroy_on" => block.destroy_on = event(reader),
            "pause_after_idle_ms" => {
                let idle_ms = reader.keep(reader.whole_number(value, TIME_MS_MAX));
                block.pause_after_idle =
                    idle_ms.map(|idle_ms| format!("idle-{}", idle_ms.div_ceil(1_000)));
                reader.warn("deprecated_field", value, DEPRECATED);
            }
            "destroy_on_workspace_close" => {
                let destroys = reader.keep(reader.boolean(value)).unwrap_or(false);
                block.destroy_on = destroys.then(|| "workspace-close".to_owned());
                reader.warn("deprecated_field", value, DEPRECATED);
            }
            _ => reader.note(reader.unknown_key(node, key, &KNOWN, None)),
        }
    }
    reader.ignore(node);
    Ok(())
}
