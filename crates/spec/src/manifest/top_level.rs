//! The top-level keys of a manifest.

use crate::document::{Node, excerpt};
use crate::inventory::read_carried;
use crate::io::{read_files, read_schema};
use crate::limits::{Limit, TIME_MS_MAX};
use crate::manifest::reader::Reader;
use crate::manifest::{
    Kind, Manifest, ManifestError, Problem, Restriction, StatedLimit, commits, legacy, network,
    run, secrets, together, workspace_sources,
};
use crate::path::escape;
use crate::run_form::Run;
use crate::{code_block, runner_block, sandbox_block};

const READ: [&str; 22] = [
    "schema",
    "kind",
    "name",
    "id",
    "version",
    "description",
    "source",
    "code",
    "run",
    "entry",
    "runner",
    "runtime",
    "network",
    "secrets",
    "sandbox",
    "inputs",
    "outputs",
    "inputsFiles",
    "outputsFiles",
    "workspaceSources",
    "timeout_ms",
    "approval",
];
/// Keys of the specifications that are accepted and have no effect on a run.
const IGNORED: [&str; 26] = [
    "requiredCapabilities",
    "driver",
    "identity",
    "storage",
    "suggests_skills",
    "requires_tools",
    "references",
    "metadata",
    "idempotent",
    "mutates",
    "requires",
    "risk_level",
    "cost_class",
    "max_steps",
    "retry",
    "default_implementation",
    "default_driver",
    "implements",
    "driver_constraints",
    "tags",
    "examples",
    "steps",
    "start",
    "suspendable",
    "triggers",
    "result",
];
pub(super) fn read(reader: &mut Reader<'_>) -> Manifest {
    let root = reader.root();
    let mut manifest = Manifest::default();
    let known = [&READ[..], &IGNORED[..]].concat();
    let entries = reader.entries(root, &known);
    let Some(entries) = reader.keep(entries) else {
        return manifest;
    };
    refuse_both(reader, root, "run", "entry");
    refuse_both(reader, root, "runner", "runtime");
    // `{origin: …}` is the origin of the manifest, not of its files (AIP-26's rich example).
    if !root.get("source").is_some_and(code_block::is_origin) {
        refuse_both(reader, root, "code", "source");
    }
    for (key, value) in entries {
        let read = read_key(reader, &key.name, value, &mut manifest);
        reader.keep(read);
    }
    // The lean form describes files that others use, without a key that says so.
    if root.get("schema").is_some() && root.get("kind").is_none() {
        manifest.kind = Kind::CodeWorkspace;
    }
    manifest.inventories = std::mem::take(&mut reader.inventories);
    manifest.inventories.extend(read_carried(reader, root));
    request_inventory(reader, root, &mut manifest);
    together::check(reader, root, &manifest);
    manifest.commits = commits::read(root);
    manifest.warnings = std::mem::take(&mut reader.warnings);
    manifest.ignored = std::mem::take(&mut reader.ignored);
    manifest.refusals = std::mem::take(&mut reader.refusals);
    manifest
}

fn request_inventory(reader: &mut Reader<'_>, root: &Node, manifest: &mut Manifest) {
    let Some(node) = root.get("secrets") else {
        return;
    };
    let requested = manifest.inventories.iter().find(|one| one.is_requested);
    let Some(inventory) = requested.map(|one| one.file.clone()) else {
        return;
    };
    let who = manifest.consumer();
    let wanted = manifest.request_of_inventories(&who);
    if !wanted {
        let message = format!(
            "{} lets {} have none of its secrets in a variable: add `access` and `exposures` to \
             the entries that it needs",
            escape(inventory.as_bytes()),
            who.shown()
        );
        reader.warn("secrets_none", node, &message);
    }
}

fn read_key<'document>(
    reader: &mut Reader<'document>,
    key: &str,
    value: &'document Node,
    manifest: &mut Manifest,
) -> Result<(), ManifestError> {
    match key {
        "schema" => reader.word(value, &[("code/v2", ())])?,
        "kind" => manifest.kind = read_kind(reader, value)?,
        "name" => manifest.name = Some(reader.name(value)?.to_owned()),
        "id" => manifest.id = Some(reader.name(value)?.to_owned()),
        "version" => manifest.version = Some(reader.name(value)?.to_owned()),
        "description" => manifest.description = Some(reader.text(value)?.to_owned()),
        "run" => manifest.run = Some(run::read(reader, value)?),
        "entry" => manifest.run = Some(read_entry(reader, value)?),
        "source" => {
            let code = code_block::read_lean(reader, value)?;
            if !code.is_empty() {
                manifest.code = code;
                refuse_unresolved(reader, value, "source", manifest);
            }
        }
        "code" => {
            manifest.code = code_block::read(reader, value)?;
            refuse_unresolved(reader, value, "code", manifest);
        }
        "runner" => read_runner(reader, value, manifest, "runner")?,
        "runtime" if legacy::is_legacy(value) => read_legacy(reader, value, manifest)?,
        "runtime" => read_runner(reader, value, manifest, "runtime")?,
        "network" => {
            let requests = network::read(reader, value, "network.egress")?;
            manifest.egress.extend(requests);
        }
        "secrets" => {
            let requests = secrets::read(reader, value)?;
            manifest.secrets.extend(requests);
        }
        "sandbox" => read_sandbox(reader, value, manifest)?,
        "inputs" => manifest.io.inputs = Some(read_schema(reader, value)?),
        "outputs" => manifest.io.outputs = Some(read_schema(reader, value)?),
        "inputsFiles" => {
            let files = read_files(reader, value, false)?;
            manifest.io.input_files.extend(files);
        }
        "outputsFiles" => {
            let files = read_files(reader, value, true)?;
            manifest.io.output_files.extend(files);
        }
        "workspaceSources" => {
            manifest.workspace_sources = workspace_sources::read(reader, value)?;
        }
        "timeout_ms" => manifest.limits.push(StatedLimit {
            limit: Limit::WallTime,
            value: reader.whole_number(value, TIME_MS_MAX)?,
            source: "timeout_ms".to_owned(),
        }),
        "requiredCapabilities" => {
            reader.warn(
                "capabilities_unchecked",
                value,
                "capabilities are not checked here: whoever starts the run decides",
            );
            reader.ignore(value);
        }
        "approval" => manifest.restrictions.extend(read_approval(reader, value)?),
        _ => reader.ignore(value),
    }
    Ok(())
}

fn refuse_both(reader: &Reader<'_>, root: &Node, one: &'static str, other: &'static str) {
    if let (Some(_), Some((key, _))) = (root.get(one), root.entry(other)) {
        reader.note(reader.key_error(root, key, Problem::Conflict { one, other }));
    }
}

fn read_kind<'document>(
    reader: &Reader<'document>,
    node: &'document Node,
) -> Result<Kind, ManifestError> {
    let kinds = [
        ("tool", Kind::Tool),
        ("workflow", Kind::Workflow),
        ("code-workspace", Kind::CodeWorkspace),
    ];
    reader.word(node, &kinds)
}

fn read_entry<'document>(
    reader: &mut Reader<'document>,
    node: &'document Node,
) -> Result<Run, ManifestError> {
    let file = Run::File(reader.text(node)?.to_owned());
    let run = run::check(reader, node, file)?;
    reader.warn("deprecated_entry", node, "`entry` is old; write `run`");
    Ok(run)
}

/// `exec` never fetches: manifests with sources need `bundle` first.
fn refuse_unresolved(reader: &mut Reader<'_>, node: &Node, key: &'static str, manifest: &Manifest) {
    if !manifest.code.is_empty() {
        let refusal = reader.error(node, Problem::CodeUnresolved { key });
        reader.refusals.push(refusal);
    }
}

fn read_runner<'document>(
    reader: &mut Reader<'document>,
    node: &'document Node,
    manifest: &mut Manifest,
    name: &str,
) -> Result<(), ManifestError> {
    manifest.runner = runner_block::read(reader, node, name)?;
    manifest.limits.extend(manifest.runner.limits.clone());
    Ok(())
}

fn read_legacy<'document>(
    reader: &mut Reader<'document>,
    node: &'document Node,
    manifest: &mut Manifest,
) -> Result<(), ManifestError> {
    let old = legacy::read(reader, node)?;
    manifest.limits.extend(old.runner.limits.clone());
    manifest.runner = old.runner;
    manifest.egress.extend(old.egress);
    manifest.secrets.extend(old.secrets);
    manifest.io.input_files.extend(old.input_files);
    manifest.io.output_files.extend(old.output_files);
    Ok(())
}

fn read_sandbox<'document>(
    reader: &mut Reader<'document>,
    node: &'document Node,
    manifest: &mut Manifest,
) -> Result<(), ManifestError> {
    let block = sandbox_block::read(reader, node)?;
    manifest.limits.extend(block.limits.clone());
    manifest.egress.extend(block.egress.clone());
    manifest.secrets.extend(block.secrets.clone());
    manifest.env_passthrough.clone_from(&block.passthrough);
    let mounts = block.mounts.iter();
    let of_workspace = mounts.filter(|mount| !mount.is_storage);
    manifest.mounts = of_workspace.cloned().collect();
    if block.policy {
        manifest.restrictions.push(Restriction {
            source: "sandbox.policy",
            value: None,
        });
    }
    manifest.sandbox = Some(block);
    Ok(())
}

/// `auto` restricts nothing.
fn read_approval<'document>(
    reader: &Reader<'document>,
    node: &'document Node,
) -> Result<Option<Restriction>, ManifestError> {
    let text = reader.text(node)?;
    let policy = text.strip_prefix("policy:").is_some_and(|name| {
        !name.is_empty()
            && name.bytes().all(|byte| {
                byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.' | b'/')
            })
    });
    if !policy {
        reader.word(node, &[("auto", ()), ("always", ()), ("on-mutate", ())])?;
    }
    Ok((text != "auto").then(|| Restriction {
        source: "approval",
        value: Some(excerpt(text)),
    }))
}
