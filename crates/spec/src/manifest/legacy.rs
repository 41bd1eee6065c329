//! Older manifests: `entry`, and the all-in-one `runtime` block (AIP-17).

use crate::document::{Node, Value};
use crate::io::{FileEntry, file_key, read_files, read_token_path};
use crate::manifest::network::{self, EgressRequest};
use crate::manifest::reader::Reader;
use crate::manifest::secrets::{
    SecretReference, SecretRequest, is_variable_name, slug_of_variable,
};
use crate::manifest::{ManifestError, Problem, StatedLimit};
use crate::path::RelPath;
use crate::runner_block::{self, Engine, RunnerBlock};

/// The values of a legacy `runtime` block in the current form.
#[derive(Debug, Default)]
pub struct LegacyRuntime {
    pub(crate) runner: RunnerBlock,
    pub(crate) secrets: Vec<SecretRequest>,
    pub(crate) egress: Vec<EgressRequest>,
    pub(crate) input_files: Vec<FileEntry>,
    pub(crate) output_files: Vec<FileEntry>,
}

const KEYS: [&str; 9] = [
    "mode",
    "resources",
    "env",
    "fs",
    "network",
    "cpu_ms_max",
    "memory_mb_max",
    "timeout_ms",
    "timeout_ms_max",
];

pub(crate) fn is_legacy(node: &Node) -> bool {
    node.get("engine").is_none() && KEYS.iter().any(|key| node.get(key).is_some())
}

/// Reads a `runtime` block of the old shape.
pub fn read<'document>(
    reader: &mut Reader<'document>,
    node: &'document Node,
) -> Result<LegacyRuntime, ManifestError> {
    reader.warn(
        "deprecated_runtime",
        node,
        "this shape of `runtime` is old; write `runner`, `secrets`, `network`, `inputsFiles` and \
         `outputsFiles`",
    );
    if let (Some((key, _)), Some(_)) = (node.entry("timeout_ms_max"), node.get("timeout_ms")) {
        let problem = Problem::Conflict {
            one: "timeout_ms",
            other: "timeout_ms_max",
        };
        reader.note(reader.key_error(node, key, problem));
    }
    for (flat, inner) in [
        ("timeout_ms", "timeoutMs"),
        ("timeout_ms_max", "timeoutMs"),
        ("memory_mb_max", "memoryMb"),
        ("cpu_ms_max", "cpuMs"),
    ] {
        let resources = node.entry("resources");
        if let (Some((key, resources)), Some(_)) = (resources, node.get(flat))
            && resources.get(inner).is_some()
        {
            let problem = Problem::Conflict {
                one: flat,
                other: "resources",
            };
            reader.note(reader.key_error(node, key, problem));
        }
    }
    let mut legacy = LegacyRuntime::default();
    for (key, value) in reader.entries(node, &KEYS)? {
        let read = read_key(reader, &key.name, value, &mut legacy);
        reader.keep(read);
    }
    Ok(legacy)
}

fn read_key<'document>(
    reader: &mut Reader<'document>,
    key: &str,
    value: &'document Node,
    legacy: &mut LegacyRuntime,
) -> Result<(), ManifestError> {
    match key {
        "mode" => read_mode(reader, value, &mut legacy.runner)?,
        "resources" => {
            for (key, value) in reader.entries(value, &["timeoutMs", "memoryMb", "cpuMs"])? {
                let read = read_limit(reader, value, &format!("resources.{}", key.name));
                legacy.runner.limits.extend(reader.keep(read));
            }
        }
        "env" => legacy.secrets = read_env(reader, value)?,
        "fs" => {
            for (direction, paths) in reader.entries(value, &["read", "write"])? {
                let write = direction.name == "write";
                let files = read_fs(reader, paths, write);
                let files = reader.keep(files);
                let list = if write {
                    &mut legacy.output_files
                } else {
                    &mut legacy.input_files
                };
                list.extend(files.into_iter().flatten());
            }
        }
        "network" => legacy.egress = network::read(reader, value, "runtime.network.egress")?,
        name => legacy.runner.limits.push(read_limit(reader, value, name)?),
    }
    Ok(())
}

/// The old `sandbox` is the current `subprocess`.
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

fn read_limit(reader: &Reader<'_>, node: &Node, key: &str) -> Result<StatedLimit, ManifestError> {
    let current = match key {
        "memory_mb_max" | "resources.memoryMb" => "memory_mb",
        "cpu_ms_max" | "resources.cpuMs" => "cpu_ms",
        // `timeout_ms` is the spelling of AIP-17; the other one matches its neighbours.
        _ => "timeout_ms",
    };
    let source = format!("runtime.{key}");
    match runner_block::limit_of_key(current) {
        Some((limit, key)) => runner_block::read_limit(reader, node, limit, key, source),
        None => Err(reader.wrong_type(node, "a limit")),
    }
}

fn read_env<'document>(
    reader: &Reader<'document>,
    node: &'document Node,
) -> Result<Vec<SecretRequest>, ManifestError> {
    let read = |item| {
        let variable = reader.text(item)?;
        if !is_variable_name(variable) {
            return Err(reader.wrong_type(item, "the name of a variable, such as API_KEY"));
        }
        Ok(SecretRequest {
            variable: variable.to_owned(),
            reference: SecretReference::Vault(slug_of_variable(variable)),
            source: "runtime.env".to_owned(),
        })
    };
    let items = reader.list(node)?.iter();
    Ok(items.filter_map(|item| reader.keep(read(item))).collect())
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
    let mut files: Vec<FileEntry> = Vec::new();
    for item in items {
        if matches!(&item.value, Value::Text(text) if is_folder_or_pattern(text)) {
            reader.warn(
                "runtime_path_ignored",
                item,
                "a folder or a pattern has no file of its own and gives the body nothing: name \
                 each file, in `inputsFiles` or `outputsFiles`",
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
            source: reader.pointer(item),
        });
    }
    Ok(files)
}
