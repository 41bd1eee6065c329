//! The `sandbox` block (AIP-36): provider, limits, environment, egress, mounts, life cycle.

use crate::spec::credential;
use crate::spec::document::{Node, Value, excerpt};
use crate::spec::manifest::reader::Reader;
use crate::spec::manifest::secrets::{SecretReference, SecretRequest, is_variable_name};
use crate::spec::manifest::{EgressRequest, ManifestError, Problem, StatedLimit};
use crate::spec::mount_target::MountTarget;
use crate::spec::path::RelPath;
use crate::spec::runner_block::read_limits;

/// Who runs commands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Provider {
    /// This program.
    Local,
    /// This program, and Node with its `--permission` flags inside.
    NodePermission,
    /// A service that this program does not speak to; refused before anything is started.
    Remote,
}

/// The shell that `config.shell` names.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Shell {
    /// `/bin/sh`.
    #[default]
    Sh,
    /// `/bin/bash`.
    Bash,
}

/// The `config` of `provider: local`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LocalConfig {
    /// Working directory below the workspace; `None`: the workspace itself.
    pub cwd: Option<RelPath>,
    /// Shell of commands.
    pub shell: Option<Shell>,
}

/// One entry of `mounts`, in the order in which mounts are made: parents first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MountRequest {
    /// Where it appears inside.
    pub target: MountTarget,
    /// Whether the body may write there.
    pub writable: bool,
    /// JSON Pointer of the entry.
    pub source: String,
}

/// A `sandbox` block.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SandboxBlock {
    /// Who runs commands.
    pub provider: Provider,
    /// The `config` of `provider: local`, empty for others.
    pub local: LocalConfig,
    /// Limits, each with the key that states it.
    pub limits: Vec<StatedLimit>,
    /// Variables of the host that should pass.
    pub passthrough: Vec<String>,
    /// Variables whose values are secrets.
    pub secrets: Vec<SecretRequest>,
    /// Who should be reachable.
    pub egress: Vec<EgressRequest>,
    /// Mounts of the workspace.
    pub mounts: Vec<MountRequest>,
    /// `read_only: true`: no command may run.
    pub read_only: bool,
    /// Whether there is a `policy`, which restricts.
    pub policy: bool,
    /// `lifecycle.pause_after_idle`, as the name of an event. A hint; nothing follows from it.
    pub pause_after_idle: Option<String>,
    /// `lifecycle.destroy_on`, as the name of an event. A hint; nothing follows from it.
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
/// Keys that other programs write and that have no meaning here.
const DRIFT: [&str; 3] = ["extraPorts", "extra_ports", "join"];

/// A provider, what its `config` may hold, and why it is not available, if it is not.
struct KnownProvider {
    name: &'static str,
    provider: Provider,
    config: &'static [&'static str],
    unavailable: Option<&'static str>,
}

const REMOTE: Option<&str> = Some("it is a service elsewhere, and the runner starts bodies here");
const PROVIDERS: [KnownProvider; 6] = [
    KnownProvider {
        name: "local",
        provider: Provider::Local,
        config: &["cwd", "shell"],
        unavailable: None,
    },
    KnownProvider {
        name: "node-permission",
        provider: Provider::NodePermission,
        config: &[],
        unavailable: None,
    },
    KnownProvider {
        name: "mastra-e2b",
        provider: Provider::Remote,
        config: &["template", "api_key_ref", "region"],
        unavailable: REMOTE,
    },
    KnownProvider {
        name: "mastra-modal",
        provider: Provider::Remote,
        config: &["app_name", "function_name", "api_token_ref"],
        unavailable: REMOTE,
    },
    KnownProvider {
        name: "mastra-daytona",
        provider: Provider::Remote,
        config: &["workspace_id", "api_key_ref"],
        unavailable: REMOTE,
    },
    KnownProvider {
        name: "mastra-blaxel",
        provider: Provider::Remote,
        config: &["workspace", "api_key_ref"],
        unavailable: REMOTE,
    },
];

/// Reads a block whose key in the manifest is `sandbox`.
pub(crate) fn read<'document>(
    reader: &mut Reader<'document>,
    node: &'document Node,
) -> Result<SandboxBlock, ManifestError> {
    let node = reader.block(node, "sandbox")?;
    refuse_cli_block(reader, node)?;
    refuse_unknown_keys(reader, node)?;
    if let Some((value, why)) = credential::find(node) {
        return Err(reader.error(value, Problem::PlaintextCredential { why }));
    }
    read_standalone_keys(reader, node)?;
    let known = read_provider(reader, node)?;
    let mut block = SandboxBlock {
        provider: known.provider,
        local: read_config(reader, node, &known)?,
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
        match key.name.as_str() {
            "limits" => block.limits = read_limits(reader, value, "sandbox.limits")?,
            "env" => read_env(reader, value, &mut block)?,
            "network" => {
                block.egress =
                    crate::spec::manifest::network::read(reader, value, "sandbox.network.egress")?;
            }
            "mounts" => block.mounts = read_mounts(reader, value)?,
            "policy" => block.policy = true,
            "lifecycle" => read_lifecycle(reader, value, &mut block)?,
            "read_only" => block.read_only = reader.boolean(value)?,
            "identity" => reader.ignore(value),
            "metadata" => {
                reader.map(value)?;
                reader.ignore(value);
            }
            _ => (),
        }
    }
    if block.read_only {
        let value = node.get("read_only").unwrap_or(node);
        let refusal = reader.error(value, Problem::SandboxReadOnly);
        reader.refusals.push(refusal);
    }
    Ok(block)
}

/// A block of AIP-29 has `fs`, `exec`, `env.pass` or `env.set`.
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
            return Err(reader.unknown_key(node, key, &KEYS, None));
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

/// `schema`, `id`, `version`: for a block in a file of its own.
fn read_standalone_keys<'document>(
    reader: &Reader<'document>,
    node: &'document Node,
) -> Result<(), ManifestError> {
    if let Some(schema) = node.get("schema") {
        reader.word(schema, &[("sandbox/v1", ())])?;
    }
    if let Some(id) = node.get("id") {
        let text = reader.name(id)?;
        let slug = |part: &str| {
            part.starts_with(|first: char| first.is_ascii_lowercase() || first.is_ascii_digit())
                && part
                    .bytes()
                    .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-')
        };
        let plain = text
            .strip_prefix('@')
            .is_some_and(|rest| 1 < rest.split('/').count() && rest.split('/').all(slug));
        if !plain {
            return Err(reader.wrong_type(id, "text of the form @owner/name"));
        }
    }
    if let Some(version) = node.get("version") {
        reader.name(version)?;
    }
    Ok(())
}

fn read_provider<'document>(
    reader: &mut Reader<'document>,
    node: &'document Node,
) -> Result<KnownProvider, ManifestError> {
    let value = reader.required(node, "provider")?;
    let words = [0, 1, 2, 3, 4, 5].map(|index: usize| (PROVIDERS[index].name, index));
    let index = reader.word(value, &words)?;
    let [local, node_permission, e2b, modal, daytona, blaxel] = PROVIDERS;
    let known = match index {
        0 => local,
        1 => node_permission,
        2 => e2b,
        3 => modal,
        4 => daytona,
        _ => blaxel,
    };
    if let Some(why) = known.unavailable {
        let refusal = reader.error(
            value,
            Problem::ProviderUnavailable {
                provider: known.name.to_owned(),
                why,
            },
        );
        reader.refusals.push(refusal);
    }
    Ok(known)
}

fn read_config<'document>(
    reader: &mut Reader<'document>,
    node: &'document Node,
    known: &KnownProvider,
) -> Result<LocalConfig, ManifestError> {
    const SHELLS: [(&str, Shell); 2] = [("/bin/sh", Shell::Sh), ("/bin/bash", Shell::Bash)];
    let Some(config) = node.get("config") else {
        if known.provider == Provider::Remote {
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
        match key.name.as_str() {
            "installAdapters" => warn_drift(reader, value),
            name if !known.config.contains(&name) => {
                return Err(reader.unknown_key(config, key, known.config, None));
            }
            "cwd" if known.provider == Provider::Local => {
                local.cwd = match reader.text(value)? {
                    "." | "./" => None,
                    _ => Some(reader.path(value)?),
                };
            }
            "shell" if known.provider == Provider::Local => {
                local.shell = Some(reader.word(value, &SHELLS)?);
            }
            _ => {
                reader.name(value)?;
            }
        }
    }
    Ok(local)
}

fn read_env<'document>(
    reader: &mut Reader<'document>,
    node: &'document Node,
    block: &mut SandboxBlock,
) -> Result<(), ManifestError> {
    const KNOWN: [&str; 2] = ["auth", "passthrough"];
    for (key, value) in reader.map(node)? {
        match key.name.as_str() {
            "passthrough" => block.passthrough = read_variables(reader, value)?,
            "auth" => block.secrets = read_auth(reader, value)?,
            "autoPassthrough" => warn_drift(reader, value),
            _ => return Err(reader.unknown_key(node, key, &KNOWN, None)),
        }
    }
    Ok(())
}

fn read_variables<'document>(
    reader: &Reader<'document>,
    node: &'document Node,
) -> Result<Vec<String>, ManifestError> {
    reader
        .list(node)?
        .iter()
        .map(|item| {
            let name = reader.text(item)?;
            if is_variable_name(name) {
                Ok(name.to_owned())
            } else {
                Err(reader.wrong_type(item, "the name of a variable, such as NODE_ENV"))
            }
        })
        .collect()
}

fn read_auth<'document>(
    reader: &Reader<'document>,
    node: &'document Node,
) -> Result<Vec<SecretRequest>, ManifestError> {
    reader.known_map(node, &["ref", "state"])?;
    let reference = node
        .get("ref")
        .map(|reference| reader.name(reference).map(str::to_owned))
        .transpose()?;
    let Some(state) = node.get("state") else {
        return Ok(Vec::new());
    };
    reader.known_map(state, &["env"])?;
    let Some(variables) = state.get("env") else {
        return Ok(Vec::new());
    };
    Ok(read_variables(reader, variables)?
        .into_iter()
        .map(|variable| SecretRequest {
            reference: SecretReference::Vault(crate::spec::inventory::slug_of_variable(&variable)),
            variable,
            source: "sandbox.env.auth".to_owned(),
        })
        .collect())
}

fn read_mounts<'document>(
    reader: &mut Reader<'document>,
    node: &'document Node,
) -> Result<Vec<MountRequest>, ManifestError> {
    let pointer = reader.pointer(node);
    let mut mounts: Vec<MountRequest> = Vec::new();
    for (index, item) in reader.list(node)?.iter().enumerate() {
        reader.known_map(item, &["source", "at", "mode"])?;
        let at = reader.required(item, "at")?;
        let target = read_target(reader, at)?;
        if let Some(earlier) = mounts.iter().find(|mount| mount.target == target) {
            return Err(reader.error(
                at,
                Problem::Duplicate {
                    found: target.to_string(),
                    first: earlier.source.clone(),
                },
            ));
        }
        let writable = match item.get("mode") {
            Some(mode) => reader.word(mode, &[("read-write", true), ("read-only", false)])?,
            None => true,
        };
        read_mount_source(reader, reader.required(item, "source")?)?;
        mounts.push(MountRequest {
            target,
            writable,
            source: format!("{pointer}/{index}"),
        });
    }
    mounts.sort_by_key(|mount| mount.target.depth());
    Ok(mounts)
}

/// Reads where a mount appears.
pub(crate) fn read_target<'document>(
    reader: &Reader<'document>,
    node: &'document Node,
) -> Result<MountTarget, ManifestError> {
    let text = reader.text(node)?;
    MountTarget::parse(text).map_err(|reason| {
        reader.error(
            node,
            Problem::MountTarget {
                found: excerpt(text),
                reason,
            },
        )
    })
}

/// `workspace`; every other source is valid and not supported.
fn read_mount_source<'document>(
    reader: &mut Reader<'document>,
    node: &'document Node,
) -> Result<(), ManifestError> {
    if let Value::Text(_) = &node.value {
        return reader.word(node, &[("workspace", ())]);
    }
    if !matches!(node.value, Value::Map(_)) {
        return Err(reader.wrong_type(node, "the text `workspace` or a map"));
    }
    let entries = reader.known_map(node, &["ref", "inline", "file"])?;
    let [(key, value)] = entries else {
        return Err(reader.wrong_type(node, "a map with one of ref, inline, file"));
    };
    if key.name == "inline" {
        reader.map(value)?;
    } else {
        reader.name(value)?;
    }
    let refusal = reader.error(node, Problem::StorageUnsupported);
    reader.refusals.push(refusal);
    Ok(())
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
            return Err(reader.error(
                node,
                Problem::Conflict {
                    one: new,
                    other: old,
                },
            ));
        }
    }
    for (key, value) in reader.map(node)? {
        match key.name.as_str() {
            "pause_after_idle" => block.pause_after_idle = Some(reader.name(value)?.to_owned()),
            "destroy_on" => block.destroy_on = Some(reader.name(value)?.to_owned()),
            "pause_after_idle_ms" => {
                let idle_ms = reader.whole_number(value, crate::spec::runner_block::TIME_MS_MAX)?;
                block.pause_after_idle = Some(format!("idle-{}", idle_ms.div_ceil(1_000)));
                reader.warn("deprecated_field", value, DEPRECATED);
            }
            "destroy_on_workspace_close" => {
                if reader.boolean(value)? {
                    block.destroy_on = Some("workspace-close".to_owned());
                }
                reader.warn("deprecated_field", value, DEPRECATED);
            }
            _ => return Err(reader.unknown_key(node, key, &KNOWN, None)),
        }
    }
    reader.ignore(node);
    Ok(())
}
