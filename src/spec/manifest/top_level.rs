//! The keys of a manifest, and what they must not say together.

use std::collections::HashMap;

use crate::spec::document::{Node, Value, excerpt};
use crate::spec::io::{FS_ROOT, IoBlocks, declare_fs_root, read_files, read_schema};
use crate::spec::manifest::reader::Reader;
use crate::spec::manifest::{
    Kind, Manifest, ManifestError, Problem, Restriction, StatedLimit, legacy, network, run,
    secrets, workspace_sources,
};
use crate::spec::path::RelPath;
use crate::spec::run_form::Run;
use crate::spec::runner_block::TIME_MS_MAX;
use crate::spec::tokens::{Token, is_segment};
use crate::spec::{code_block, runner_block, sandbox_block};

/// Keys that are read here.
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
/// Keys of the specifications that are kept and have no effect on a run.
const IGNORED: [&str; 25] = [
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
/// The blocks of a call, which a code-workspace has not.
const IO_KEYS: [&str; 4] = ["inputs", "outputs", "inputsFiles", "outputsFiles"];

/// Reads the whole manifest.
pub(crate) fn read(reader: &mut Reader<'_>) -> Result<Manifest, ManifestError> {
    let root = reader.root();
    let known = [&READ[..], &IGNORED[..]].concat();
    let entries = reader.known_map(root, &known)?;
    refuse_both(reader, root, "run", "entry")?;
    refuse_both(reader, root, "runner", "runtime")?;
    refuse_both(reader, root, "code", "source")?;
    let mut manifest = Manifest::default();
    for (key, value) in entries {
        match key.name.as_str() {
            "schema" => reader.word(value, &[("code/v2", ())])?,
            "kind" => manifest.kind = read_kind(reader, value)?,
            "name" => manifest.name = Some(reader.name(value)?.to_owned()),
            "id" => manifest.id = Some(reader.name(value)?.to_owned()),
            "version" => manifest.version = Some(reader.name(value)?.to_owned()),
            "description" => manifest.description = Some(reader.text(value)?.to_owned()),
            "run" => manifest.run = Some(run::read(reader, value)?),
            "entry" => manifest.run = Some(read_entry(reader, value)?),
            "source" => {
                manifest.code = code_block::read_lean(reader, value)?;
                refuse_unresolved(reader, value, "source", &manifest);
            }
            "code" => {
                manifest.code = code_block::read(reader, value)?;
                refuse_unresolved(reader, value, "code", &manifest);
            }
            "runner" => read_runner(reader, value, &mut manifest, "runner")?,
            "runtime" if legacy::is_legacy(value) => read_legacy(reader, value, &mut manifest)?,
            "runtime" => read_runner(reader, value, &mut manifest, "runtime")?,
            "network" => {
                let requests = network::read(reader, value, "network.egress")?;
                manifest.egress.extend(requests);
            }
            "secrets" => manifest.secrets.extend(secrets::read(reader, value)?),
            "sandbox" => read_sandbox(reader, value, &mut manifest)?,
            "inputs" => manifest.io.inputs = Some(read_schema(reader, value)?),
            "outputs" => manifest.io.outputs = Some(read_schema(reader, value)?),
            "inputsFiles" => manifest
                .io
                .input_files
                .extend(read_files(reader, value, false)?),
            "outputsFiles" => manifest
                .io
                .output_files
                .extend(read_files(reader, value, true)?),
            "workspaceSources" => {
                manifest.workspace_sources = workspace_sources::read(reader, value)?;
            }
            "timeout_ms" => manifest.limits.push(StatedLimit {
                name: "wall_time_ms",
                value: reader.whole_number(value, TIME_MS_MAX)?,
                source: "timeout_ms".to_owned(),
            }),
            "approval" => manifest.restrictions.extend(read_approval(reader, value)?),
            _ => reader.ignore(value),
        }
    }
    check_together(reader, root, &manifest)?;
    manifest.warnings = std::mem::take(&mut reader.warnings);
    manifest.ignored = std::mem::take(&mut reader.ignored);
    manifest.refusals = std::mem::take(&mut reader.refusals);
    Ok(manifest)
}

fn refuse_both(
    reader: &Reader<'_>,
    root: &Node,
    one: &'static str,
    other: &'static str,
) -> Result<(), ManifestError> {
    match (root.get(one), root.entry(other)) {
        (Some(_), Some((key, _))) => {
            Err(reader.key_error(root, key, Problem::Conflict { one, other }))
        }
        _ => Ok(()),
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

/// `exec` never fetches: a manifest with sources goes through `bundle` first.
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
    manifest.mounts.clone_from(&block.mounts);
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

/// What single keys cannot know.
fn check_together(
    reader: &Reader<'_>,
    root: &Node,
    manifest: &Manifest,
) -> Result<(), ManifestError> {
    if manifest.kind == Kind::CodeWorkspace {
        for name in IO_KEYS {
            if let Some((key, _)) = root.entry(name) {
                let problem = Problem::IoInCodeWorkspace { key: name };
                return Err(reader.key_error(root, key, problem));
            }
        }
    }
    let run_node = root.get("run").or_else(|| root.get("entry"));
    if let (Some(node), Some(run)) = (run_node, &manifest.run) {
        run::check_language(reader, node, run, manifest.runner.needs.language)?;
    }
    check_variables(reader, root, manifest)?;
    check_files(reader, root, manifest)?;
    check_mounts(reader, root, manifest)
}

/// One variable has one origin.
fn check_variables(
    reader: &Reader<'_>,
    root: &Node,
    manifest: &Manifest,
) -> Result<(), ManifestError> {
    let mut claimed: HashMap<&str, &str> = HashMap::new();
    let secrets = manifest
        .secrets
        .iter()
        .map(|secret| (secret.variable.as_str(), secret.source.as_str()));
    let passed = manifest
        .env_passthrough
        .iter()
        .map(|variable| (variable.as_str(), "sandbox.env.passthrough"));
    for (variable, source) in secrets.chain(passed) {
        if let Some(first) = claimed.insert(variable, source) {
            let block = source.split('.').next().unwrap_or(source);
            return Err(reader.error(
                root.get(block).unwrap_or(root),
                Problem::Duplicate {
                    found: variable.to_owned(),
                    first: first.to_owned(),
                },
            ));
        }
    }
    Ok(())
}

/// The file contract: distinct keys, an id where a token needs one, a schema that takes the root.
fn check_files(reader: &Reader<'_>, root: &Node, manifest: &Manifest) -> Result<(), ManifestError> {
    let IoBlocks {
        inputs,
        input_files,
        output_files,
        ..
    } = &manifest.io;
    for files in [input_files, output_files] {
        let mut claimed: HashMap<&RelPath, &str> = HashMap::new();
        for file in files {
            if let Some(first) = claimed.insert(&file.key, &file.source) {
                return Err(reader.error(
                    root,
                    Problem::Duplicate {
                        found: file.key.to_string(),
                        first: first.to_owned(),
                    },
                ));
            }
        }
    }
    let mut tokens = input_files
        .iter()
        .chain(output_files)
        .flat_map(|file| file.path.tokens());
    let needs_id = tokens.find(|token| matches!(token, Token::ToolId | Token::WorkflowId));
    if let (Some(token), Some(id)) = (needs_id, manifest.token_id())
        && !is_segment(id)
    {
        let node = root.get("id").or_else(|| root.get("name")).unwrap_or(root);
        return Err(reader.error(
            node,
            Problem::TokenId {
                token: token.written(),
                id: excerpt(id),
            },
        ));
    }
    if let (Some(schema), false) = (inputs, input_files.is_empty() && output_files.is_empty())
        && declare_fs_root(&mut schema.clone()).is_err()
    {
        let node = root
            .get("inputs")
            .and_then(|inputs| inputs.get("properties")?.get(FS_ROOT))
            .unwrap_or(root);
        return Err(reader.error(node, Problem::FsRootType));
    }
    Ok(())
}

/// A mount and a source artifact cannot share one place.
fn check_mounts(
    reader: &Reader<'_>,
    root: &Node,
    manifest: &Manifest,
) -> Result<(), ManifestError> {
    let items = match root.get("workspaceSources").map(|node| &node.value) {
        Some(Value::List(items)) => items.as_slice(),
        _ => &[],
    };
    for (source, item) in manifest.workspace_sources.iter().zip(items) {
        let taken = manifest
            .mounts
            .iter()
            .find(|mount| mount.target == source.target);
        if let Some(mount) = taken {
            return Err(reader.error(
                item,
                Problem::Duplicate {
                    found: source.target.to_string(),
                    first: mount.source.clone(),
                },
            ));
        }
    }
    Ok(())
}
