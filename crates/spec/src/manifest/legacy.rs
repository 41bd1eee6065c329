//! The older `runtime` block (AIP-17), which also has secrets, network and files.

use serde_json::{Value as Json, json};

use crate::document::{Node, Value};
use crate::io::{FileEntry, file_key, read_files, read_token_path};
use crate::limits::Limit;
use crate::manifest::fields::{Field, Kind, VARIABLE, keys, object};
use crate::manifest::network::{self, EgressRequest};
use crate::manifest::reader::Reader;
use crate::manifest::schema::reference;
use crate::manifest::secrets::{SecretReference, SecretRequest, slug_of_variable};
use crate::manifest::{ManifestError, Problem};
use crate::path::RelPath;
use crate::runner_block::{ENGINES, Engine, RunnerBlock};

/// A legacy `runtime` block, converted to the current form.
#[derive(Debug, Default)]
pub(crate) struct LegacyRuntime {
    pub(crate) runner: RunnerBlock,
    pub(crate) secrets: Vec<SecretRequest>,
    pub(crate) egress: Vec<EgressRequest>,
    pub(crate) input_files: Vec<FileEntry>,
    pub(crate) output_files: Vec<FileEntry>,
}

/// The keys of the block. AIP-17 writes `timeout_ms`; `timeout_ms_max` is accepted because the other
/// limits are `cpu_ms_max` and `memory_mb_max`.
pub(super) const FIELDS: [Field<LegacyRuntime>; 9] = [
    Field::new(
        "mode",
        "The older `engine`; `sandbox` means `subprocess`.",
        Kind::Other(
            || json!({"enum": ENGINES.map(|(word, _)| word)}),
            |reader, node, legacy| read_mode(reader, node, &mut legacy.runner),
        ),
    ),
    Field::new(
        "resources",
        RESOURCES_DESCRIPTION,
        Kind::Map(
            || keys(&RESOURCES),
            || object(RESOURCES_DESCRIPTION, &RESOURCES),
            |reader, node, legacy| reader.fields(node, &RESOURCES, legacy),
        ),
    ),
    Field::new(
        "env",
        "Variables whose values are secrets; `API_KEY` is the slug `api-key`.",
        Kind::Texts(&VARIABLE, |legacy, variables| {
            let requests = variables.into_iter().map(|variable| SecretRequest {
                reference: SecretReference::Vault(slug_of_variable(&variable)),
                variable,
                source: "runtime.env".to_owned(),
            });
            legacy.secrets = requests.collect();
        }),
    ),
    Field::new(
        "fs",
        FILES_DESCRIPTION,
        Kind::Map(
            || keys(&FILES),
            || object(FILES_DESCRIPTION, &FILES),
            |reader, node, legacy| reader.fields(node, &FILES, legacy),
        ),
    ),
    Field::new(
        "network",
        "The hosts that the body may reach.",
        Kind::Other(
            || reference("network"),
            |reader, node, legacy| {
                legacy.egress = network::read(reader, node, "runtime.network.egress")?;
                Ok(())
            },
        ),
    ),
    limit("cpu_ms_max", Limit::CpuTime, "runtime.cpu_ms_max"),
    limit("memory_mb_max", Limit::Memory, "runtime.memory_mb_max"),
    limit("timeout_ms", Limit::WallTime, "runtime.timeout_ms"),
    limit("timeout_ms_max", Limit::WallTime, "runtime.timeout_ms_max"),
];

const RESOURCES_DESCRIPTION: &str = "Limits in the spelling of the first drafts.";
const RESOURCES: [Field<LegacyRuntime>; 3] = [
    limit("timeoutMs", Limit::WallTime, "runtime.resources.timeoutMs"),
    limit("memoryMb", Limit::Memory, "runtime.resources.memoryMb"),
    limit("cpuMs", Limit::CpuTime, "runtime.resources.cpuMs"),
];

const FILES_DESCRIPTION: &str = "Files in and out.";
const FILES: [Field<LegacyRuntime>; 2] = [
    Field::new(
        "read",
        "The older `inputsFiles`.",
        Kind::Other(
            || reference("legacyFiles"),
            |reader, node, legacy| {
                legacy.input_files = read_fs(reader, node, false)?;
                Ok(())
            },
        ),
    ),
    Field::new(
        "write",
        "The older `outputsFiles`.",
        Kind::Other(
            || reference("legacyFiles"),
            |reader, node, legacy| {
                legacy.output_files = read_fs(reader, node, true)?;
                Ok(())
            },
        ),
    ),
];

/// Pairs of keys for the same limit, in the block and in its `resources`. They exclude each other.
const SAME_LIMIT: [(&str, &str); 4] = [
    ("timeout_ms", "timeoutMs"),
    ("timeout_ms_max", "timeoutMs"),
    ("memory_mb_max", "memoryMb"),
    ("cpu_ms_max", "cpuMs"),
];

const fn limit(key: &'static str, limit: Limit, source: &'static str) -> Field<LegacyRuntime> {
    let description = match limit {
        Limit::Memory => "Memory, in MiB.",
        Limit::WallTime => "Wall time, in milliseconds.",
        _ => "CPU time, in milliseconds.",
    };
    let kind = Kind::Limit(limit, source, |legacy: &mut LegacyRuntime, limit| {
        legacy.runner.limits.push(limit);
    });
    Field::new(key, description, kind)
}

pub(crate) fn schema() -> Json {
    let mut excluded = vec![json!({"required": ["timeout_ms", "timeout_ms_max"]})];
    excluded.extend(SAME_LIMIT.map(|(flat, inner)| {
        let resources = json!({"required": [inner]});
        json!({"required": [flat, "resources"], "properties": {"resources": resources}})
    }));
    let description = "The older `runtime`, which also has secrets, network and files. Translated, \
                       with a warning.";
    let mut schema = object(description, &FIELDS);
    schema["not"] = json!({"anyOf": excluded});
    schema["deprecated"] = json!(true);
    schema["minProperties"] = json!(1);
    schema
}

pub(crate) fn files_schema() -> Json {
    json!({
        "description": "A map as `inputsFiles`, or a list of paths whose last segments become the keys.",
        "anyOf": [
            reference("files"),
            {
                "description": "Paths. A folder or a pattern is accepted and has no effect.",
                "type": "array",
                "items": {
                    "anyOf": [
                        reference("tokenPath"),
                        {
                            "description": "A folder or a pattern.",
                            "type": "string",
                            "pattern": r"^\.$|^(?!/)(?!(.*/)?\.\.(/|$)).*(/$|\*)",
                        },
                    ],
                },
            },
        ],
    })
}

pub(crate) fn is_legacy(node: &Node) -> bool {
    node.get("engine").is_none() && FIELDS.iter().any(|field| node.get(field.key).is_some())
}

/// Reads the older `runtime` block.
pub(crate) fn read<'document>(
    reader: &mut Reader<'document>,
    node: &'document Node,
) -> Result<LegacyRuntime, ManifestError> {
    reader.warn(
        "deprecated_runtime",
        node,
        "this form of `runtime` is deprecated; write `runner`, `secrets`, `network`, \
         `inputsFiles` and `outputsFiles`",
    );
    if let (Some((key, _)), Some(_)) = (node.entry("timeout_ms_max"), node.get("timeout_ms")) {
        let problem = Problem::Conflict {
            one: "timeout_ms",
            other: "timeout_ms_max",
        };
        reader.note(reader.key_error(node, key, problem));
    }
    for (flat, inner) in SAME_LIMIT {
        if let (Some(resources), Some(_)) = (node.get("resources"), node.get(flat))
            && let Some((key, _)) = resources.entry(inner)
        {
            let problem = Problem::Conflict {
                one: flat,
                other: inner,
            };
            reader.note(reader.key_error(resources, key, problem));
        }
    }
    let mut legacy = LegacyRuntime::default();
    let read = reader.fields(node, &FIELDS, &mut legacy);
    reader.keep(read);
    Ok(legacy)
}

/// Reads `mode`. Its `sandbox` is the current `subprocess`.
fn read_mode<'document>(
    reader: &mut Reader<'document>,
    node: &'document Node,
    runner: &mut RunnerBlock,
) -> Result<(), ManifestError> {
    if matches!(&node.value, Value::Text(text) if text == "sandbox") {
        runner.engine = Engine::Subprocess;
        return Ok(());
    }
    (runner.engine, runner.downgraded) = crate::runner_block::read_engine(reader, node)?;
    Ok(())
}

fn is_folder_or_pattern(text: &str) -> bool {
    let is_inside = !text.starts_with('/') && text.split('/').all(|segment| segment != "..");
    is_inside && (text == "." || text.ends_with('/') || text.contains('*'))
}

/// Reads a map as in the current form, or a list of paths whose last segments become the keys.
fn read_fs<'document>(
    reader: &mut Reader<'document>,
    node: &'document Node,
    distinct_paths: bool,
) -> Result<Vec<FileEntry>, ManifestError> {
    let Value::List(items) = &node.value else {
        return read_files(reader, node, distinct_paths);
    };
    let pointer = reader.pointer(node);
    let mut files: Vec<FileEntry> = Vec::new();
    for (index, item) in items.iter().enumerate() {
        if matches!(&item.value, Value::Text(text) if is_folder_or_pattern(text)) {
            reader.warn(
                "runtime_path_ignored",
                item,
                "a folder or a pattern is ignored: name each file, in `inputsFiles` or \
                 `outputsFiles`",
            );
            continue;
        }
        let path = read_token_path(reader, item)?;
        let written = path.to_string();
        let last = written.rsplit('/').next().unwrap_or(&written);
        let key: RelPath =
            file_key(last).map_err(|reason| reader.path_refused(item, &written, reason))?;
        if let Some(earlier) = files.iter().find(|earlier| earlier.key == key) {
            return Err(reader.error(
                item,
                Problem::Duplicate {
                    found: key.to_string(),
                    first: earlier.source.clone(),
                },
            ));
        }
        files.push(FileEntry {
            key,
            path,
            required: false,
            mode: None,
            content_type: None,
            source: format!("{pointer}/{index}"),
        });
    }
    Ok(files)
}
