//! The top-level keys of a manifest.

use serde_json::{Value as Json, json};

use crate::document::{Node, excerpt};
use crate::inventory::read_carried;
use crate::io::{read_files, read_schema};
use crate::limits::Limit;
use crate::manifest::fields::{FREE_TEXT, Field, Inheritance, Kind, LINE, Resolution, object};
use crate::manifest::reader::Reader;
use crate::manifest::schema::{block, reference};
use crate::manifest::{
    IO_KEYS, Kind as ManifestKind, Manifest, ManifestError, Problem, Restriction, commits,
    cross_checks, legacy, network, run, secrets, workspace_sources,
};
use crate::path::escape;
use crate::run_form::Run;
use crate::{code_block, runner_block, sandbox_block};

type Row = Field<Manifest>;

pub(super) const FIELDS: [Row; 48] = [
    Row::new(
        "schema",
        "The lean form (CODE.md) has `code/v2`.",
        Kind::Other(
            || json!({"const": "code/v2"}),
            |reader, node, _| reader.word(node, &[("code/v2", ())]),
        ),
    )
    .resolved(Resolution::Dropped),
    Row::new(
        "kind",
        "A `code-workspace` is files that others use; it has no `inputs`, `outputs`, \
         `inputsFiles`, `outputsFiles`. The lean form (`schema`) is one by default.",
        Kind::Other(
            || json!({"enum": ManifestKind::ALL.map(ManifestKind::word), "default": "tool"}),
            |reader, node, manifest| {
                let words = ManifestKind::ALL.map(|kind| (kind.word(), kind));
                manifest.kind = reader.word(node, &words)?;
                Ok(())
            },
        ),
    )
    .resolved(Resolution::Rewritten)
    .inherited(Inheritance::Own),
    Row::new(
        "name",
        "Its name. Default: the name of its folder.",
        Kind::Text(&LINE, |manifest, text| manifest.name = Some(text)),
    )
    .inherited(Inheritance::Own),
    Row::new(
        "id",
        "The value of `<toolId>` and `<workflowId>`. Default: `name`.",
        Kind::Text(&LINE, |manifest, text| manifest.id = Some(text)),
    )
    .inherited(Inheritance::Own),
    Row::new(
        "version",
        "Its version; in quotes if it looks like a number.",
        Kind::Text(&LINE, |manifest, text| manifest.version = Some(text)),
    )
    .inherited(Inheritance::Own),
    Row::new(
        "description",
        "For people.",
        Kind::Text(&FREE_TEXT, |manifest, text| {
            manifest.description = Some(text)
        }),
    )
    .inherited(Inheritance::Own),
    Row::new(
        "code",
        "The sources of the files of the bundle (AIP-26). `runner bundle` resolves it.",
        Kind::Other(
            || reference("code"),
            |reader, node, manifest| {
                manifest.code = code_block::read(reader, node)?;
                refuse_unresolved(reader, node, "code", manifest);
                Ok(())
            },
        ),
    )
    .resolved(Resolution::Dropped),
    Row::new(
        "source",
        "The lean form of `code`, or `{origin: …}`.",
        Kind::Other(
            || reference("leanSource"),
            |reader, node, manifest| {
                let code = code_block::read_lean(reader, node)?;
                if !code.is_empty() {
                    manifest.code = code;
                    refuse_unresolved(reader, node, "source", manifest);
                }
                Ok(())
            },
        ),
    )
    .resolved(Resolution::Dropped),
    Row::new(
        "run",
        "The program to start (AIP-26). Required for a run, here or with `--run`.",
        Kind::Other(
            || reference("run"),
            |reader, node, manifest| {
                manifest.run = Some(run::read(reader, node)?);
                Ok(())
            },
        ),
    )
    .resolved(Resolution::Rewritten)
    .inherited(Inheritance::Own),
    Row::new(
        "entry",
        "The older `run`: a file of the bundle.",
        Kind::Other(entry_schema, |reader, node, manifest| {
            manifest.run = Some(read_entry(reader, node)?);
            Ok(())
        }),
    )
    .resolved(Resolution::Dropped),
    Row::new(
        "runner",
        "The process boundary (AIP-17), written here or in another document.",
        Kind::Other(
            || reference("runnerBlock"),
            |reader, node, manifest| read_runner(reader, node, manifest, "runner"),
        ),
    )
    .resolved(Resolution::Rewritten)
    .inherited(Inheritance::Merged),
    Row::new(
        "runtime",
        "With `engine`, another name of `runner`; else the older block that had everything.",
        Kind::Other(
            || json!({"anyOf": [reference("runnerBlock"), reference("runtimeLegacy")]}),
            |reader, node, manifest| {
                if legacy::is_legacy(node) {
                    read_legacy(reader, node, manifest)
                } else {
                    read_runner(reader, node, manifest, "runtime")
                }
            },
        ),
    )
    .resolved(Resolution::Dropped),
    Row::new(
        "network",
        "The hosts that the body may reach.",
        Kind::Other(
            || reference("network"),
            |reader, node, manifest| {
                let requests = network::read(reader, node, "network.egress")?;
                manifest.egress.extend(requests);
                Ok(())
            },
        ),
    )
    .resolved(Resolution::Rewritten)
    .inherited(Inheritance::Merged),
    Row::new(
        "secrets",
        "Variables with secret values (AIP-19), written here or in an inventory.",
        Kind::Other(
            || block("secrets", "An inventory."),
            |reader, node, manifest| {
                let requests = secrets::read(reader, node)?;
                manifest.secrets.extend(requests);
                Ok(())
            },
        ),
    )
    .resolved(Resolution::Rewritten)
    .inherited(Inheritance::Merged),
    Row::new(
        "sandbox",
        "Where commands run (AIP-36), written here or in another document.",
        Kind::Other(
            || block("sandboxBlock", "The block of another document."),
            read_sandbox,
        ),
    )
    .resolved(Resolution::Rewritten),
    Row::new(
        "inputs",
        "JSON Schema of the structured input (AIP-16).",
        Kind::Other(
            || reference("ioSchema"),
            |reader, node, manifest| {
                manifest.io.inputs = Some(read_schema(reader, node)?);
                Ok(())
            },
        ),
    )
    .inherited(Inheritance::Own),
    Row::new(
        "outputs",
        "JSON Schema of the structured output, checked after exit 0 (AIP-16).",
        Kind::Other(
            || reference("ioSchema"),
            |reader, node, manifest| {
                manifest.io.outputs = Some(read_schema(reader, node)?);
                Ok(())
            },
        ),
    )
    .inherited(Inheritance::Own),
    Row::new(
        "inputsFiles",
        "Files that are staged before the run (AIP-16).",
        Kind::Other(
            || reference("files"),
            |reader, node, manifest| {
                let files = read_files(reader, node, false)?;
                manifest.io.input_files.extend(files);
                Ok(())
            },
        ),
    )
    .resolved(Resolution::Rewritten)
    .inherited(Inheritance::Own),
    Row::new(
        "outputsFiles",
        "Files that are synced after the run (AIP-16); no two have the same path.",
        Kind::Other(
            || reference("files"),
            |reader, node, manifest| {
                let files = read_files(reader, node, true)?;
                manifest.io.output_files.extend(files);
                Ok(())
            },
        ),
    )
    .resolved(Resolution::Rewritten)
    .inherited(Inheritance::Own),
    Row::new(
        "workspaceSources",
        "Mounts of file trees from OCI source artifacts.",
        Kind::Other(
            || json!({"type": "array", "items": reference("workspaceSource"), "default": []}),
            |reader, node, manifest| {
                manifest.workspace_sources = workspace_sources::read(reader, node)?;
                Ok(())
            },
        ),
    ),
    Row::new(
        "timeout_ms",
        "Wall time of the run, in milliseconds.",
        Kind::Limit(Limit::WallTime, "timeout_ms", |manifest, limit| {
            manifest.limits.push(limit);
        }),
    ),
    Row::new(
        "approval",
        "Who must agree. Anything but `auto` restricts: refused unless granted.",
        Kind::Other(
            || {
                json!({
                    "type": "string",
                    "pattern": "^(?:auto|always|on-mutate|policy:[A-Za-z0-9._/-]+)$",
                    "default": "auto",
                })
            },
            |reader, node, manifest| {
                manifest.restrictions.extend(read_approval(reader, node)?);
                Ok(())
            },
        ),
    ),
    Row::new(
        "requiredCapabilities",
        "Older than `requires`. No effect, with a warning.",
        Kind::Other(
            || json!({}),
            |reader, node, _| {
                reader.warn(
                    "capabilities_unchecked",
                    node,
                    "capabilities are not checked: the caller decides",
                );
                reader.ignore(node);
                Ok(())
            },
        ),
    )
    .inherited(Inheritance::Own),
    Row::new("driver", "AIP-30. No effect.", Kind::Ignored),
    Row::new("identity", "AIP-23. No effect.", Kind::Ignored),
    Row::new("storage", "AIP-35. No effect.", Kind::Ignored),
    Row::new("suggests_skills", "AIP-26. No effect.", Kind::Ignored),
    Row::new("requires_tools", "AIP-26. No effect.", Kind::Ignored),
    Row::new("references", "AIP-26. No effect.", Kind::Ignored),
    Row::new(
        "metadata",
        "Data of other programs. No effect.",
        Kind::Ignored,
    ),
    Row::new("idempotent", "AIP-14. No effect.", Kind::Ignored),
    Row::new("mutates", "AIP-14. No effect.", Kind::Ignored),
    Row::new("requires", "AIP-14. No effect.", Kind::Ignored),
    Row::new("risk_level", "AIP-14. No effect.", Kind::Ignored),
    Row::new("cost_class", "AIP-14. No effect.", Kind::Ignored),
    Row::new("max_steps", "AIP-15. No effect.", Kind::Ignored),
    Row::new("retry", "AIP-15. No effect.", Kind::Ignored),
    Row::new(
        "default_implementation",
        "AIP-14. No effect.",
        Kind::Ignored,
    ),
    Row::new("default_driver", "AIP-14. No effect.", Kind::Ignored),
    Row::new("implements", "AIP-14. No effect.", Kind::Ignored),
    Row::new("driver_constraints", "AIP-14. No effect.", Kind::Ignored),
    Row::new("tags", "AIP-14. No effect.", Kind::Ignored),
    Row::new("examples", "AIP-14. No effect.", Kind::Ignored),
    Row::new("steps", "AIP-15. No effect.", Kind::Ignored),
    Row::new("start", "AIP-15. No effect.", Kind::Ignored),
    Row::new("suspendable", "AIP-15. No effect.", Kind::Ignored),
    Row::new("triggers", "AIP-15. No effect.", Kind::Ignored),
    Row::new("result", "AIP-15. No effect.", Kind::Ignored),
];

/// The schema of a manifest, without definitions.
pub(crate) fn schema() -> Json {
    let about = "A tool, a workflow or a code-workspace: `manifest.yaml`, the front matter of a \
                 CODE.md, TOOL.md or WORKFLOW.md, or `.runner/manifest.json` in a bundle. \
                 `runner check` also checks what a schema cannot express.";
    let is_code_workspace = json!({"anyOf": [
        {"properties": {"kind": {"const": "code-workspace"}}, "required": ["kind"]},
        {"required": ["schema"], "not": {"required": ["kind"]}},
    ]});
    let of_calls = IO_KEYS.map(|key| json!({"required": [key]}));
    let mut schema = object(about, &FIELDS);
    schema["minProperties"] = json!(0);
    schema["allOf"] = json!([
        {"not": {"required": ["run", "entry"]}},
        {"not": {"required": ["runner", "runtime"]}},
        {
            "if": {"required": ["code", "source"]},
            "then": {"properties": {"source": {"required": ["origin"]}}},
        },
        {"if": is_code_workspace, "then": {"not": {"anyOf": of_calls}}},
    ]);
    schema
}

fn entry_schema() -> Json {
    let path = r"^(?=[^\x00]*\S)(?:\./)?(?!\.{1,2}(?:/|$))[^/]+(?:/(?!\.{1,2}(?:/|$))[^/]+)*$";
    json!({"deprecated": true, "allOf": [reference("text"), {"pattern": path}]})
}

pub(super) fn read(reader: &mut Reader<'_>) -> Manifest {
    let root = reader.root();
    let mut manifest = Manifest::default();
    refuse_both(reader, root, "run", "entry");
    refuse_both(reader, root, "runner", "runtime");
    // `{origin: …}` is the origin of the manifest, not of its files (AIP-26's rich example).
    if !root.get("source").is_some_and(code_block::is_origin) {
        refuse_both(reader, root, "code", "source");
    }
    let read = reader.fields(root, &FIELDS, &mut manifest);
    reader.keep(read);
    // The lean form is a code-workspace without saying so.
    if root.get("schema").is_some() && root.get("kind").is_none() {
        manifest.kind = ManifestKind::CodeWorkspace;
    }
    manifest.inventories = std::mem::take(&mut reader.inventories);
    manifest.inventories.extend(read_carried(reader, root));
    manifest.look_up_variables(&manifest.consumer());
    request_inventory(reader, root, &mut manifest);
    cross_checks::check(reader, root, &manifest);
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
    if !manifest.request_from_inventories(&who) {
        let message = format!(
            "{} grants {} no secret in a variable: add `access` and `exposures` to the entries \
             that it needs",
            escape(inventory.as_bytes()),
            who.describe()
        );
        reader.warn("secrets_none", node, &message);
    }
}

fn refuse_both(reader: &Reader<'_>, root: &Node, one: &'static str, other: &'static str) {
    if let (Some(_), Some((key, _))) = (root.get(one), root.entry(other)) {
        reader.note(reader.key_error(root, key, Problem::Conflict { one, other }));
    }
}

fn read_entry<'document>(
    reader: &mut Reader<'document>,
    node: &'document Node,
) -> Result<Run, ManifestError> {
    let file = Run::File(reader.text(node)?.to_owned());
    let run = run::check(reader, node, file)?;
    reader.warn(
        "deprecated_entry",
        node,
        "`entry` is deprecated; write `run`",
    );
    Ok(run)
}

/// `exec` fetches nothing: a manifest with sources has to be bundled first.
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
        let words = ["auto", "always", "on-mutate", "policy:NAME"];
        reader.word(node, &words.map(|word| (word, ())))?;
    }
    Ok((text != "auto").then(|| Restriction {
        source: "approval",
        value: Some(excerpt(text)),
    }))
}
