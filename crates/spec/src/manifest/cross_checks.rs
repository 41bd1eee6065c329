//! Checks across keys of a manifest.

use std::collections::HashMap;

use crate::document::{Node, Value, excerpt};
use crate::io::{FS_ROOT, IoBlocks, declare_fs_root};
use crate::manifest::reader::Reader;
use crate::manifest::{Kind, Manifest, Problem, run};
use crate::path::RelPath;
use crate::tokens::{Token, is_segment};

/// The keys of the IO blocks. A code-workspace cannot have them.
pub(crate) const IO_KEYS: [&str; 4] = ["inputs", "outputs", "inputsFiles", "outputsFiles"];

pub(super) fn check(reader: &Reader<'_>, root: &Node, manifest: &Manifest) {
    if manifest.kind == Kind::CodeWorkspace {
        for name in IO_KEYS {
            if let Some((key, _)) = root.entry(name) {
                let problem = Problem::IoInCodeWorkspace { key: name };
                reader.note(reader.key_error(root, key, problem));
            }
        }
    }
    let run_node = root.get("run").or_else(|| root.get("entry"));
    if let (Some(node), Some(run)) = (run_node, &manifest.run) {
        let checked = run::check_language(reader, node, run, manifest.runner.needs.language);
        reader.keep(checked);
    }
    check_variables(reader, root, manifest);
    check_files(reader, root, manifest);
    check_mounts(reader, root, manifest);
}

fn check_variables(reader: &Reader<'_>, root: &Node, manifest: &Manifest) {
    let mut sources: HashMap<&str, &str> = HashMap::new();
    let secrets = manifest
        .secrets
        .iter()
        .map(|secret| (secret.variable.as_str(), secret.source.as_str()));
    let passed = manifest
        .env_passthrough
        .iter()
        .map(|variable| (variable.as_str(), "sandbox.env.passthrough"));
    for (variable, source) in secrets.chain(passed) {
        if let Some(first) = sources.insert(variable, source) {
            let block = source.split('.').next().unwrap_or(source);
            let problem = Problem::Duplicate {
                found: variable.to_owned(),
                first: first.to_owned(),
            };
            reader.note(reader.error(root.get(block).unwrap_or(root), problem));
        }
    }
}

fn check_files(reader: &Reader<'_>, root: &Node, manifest: &Manifest) {
    let IoBlocks {
        inputs,
        input_files,
        output_files,
        ..
    } = &manifest.io;
    for files in [input_files, output_files] {
        let mut sources: HashMap<&RelPath, &str> = HashMap::new();
        for file in files {
            if let Some(first) = sources.insert(&file.key, &file.source) {
                let problem = Problem::Duplicate {
                    found: file.key.to_string(),
                    first: first.to_owned(),
                };
                reader.note(reader.error(root, problem));
            }
        }
    }
    let mut tokens = input_files
        .iter()
        .chain(output_files)
        .flat_map(|file| file.path.tokens());
    let id_token = tokens.find(|token| matches!(token, Token::ToolId | Token::WorkflowId));
    let id_node = root.get("id").or_else(|| root.get("name"));
    // `name` does not replace an invalid `id`, which has been reported.
    let is_id_valid = root.get("id").is_none() || manifest.id.is_some();
    if let (Some(token), Some(id), true) = (id_token, manifest.token_id(), is_id_valid)
        && !is_segment(id)
    {
        let problem = Problem::TokenId {
            token: token.written(),
            id: excerpt(id),
        };
        reader.note(reader.error(id_node.unwrap_or(root), problem));
    }
    if let (Some(schema), false) = (inputs, input_files.is_empty() && output_files.is_empty())
        && declare_fs_root(&mut schema.clone()).is_err()
    {
        let node = root
            .get("inputs")
            .and_then(|inputs| inputs.get("properties")?.get(FS_ROOT))
            .unwrap_or(root);
        reader.note(reader.error(node, Problem::FsRootType));
    }
}

fn check_mounts(reader: &Reader<'_>, root: &Node, manifest: &Manifest) {
    let items = match root.get("workspaceSources").map(|node| &node.value) {
        Some(Value::List(items)) => items.as_slice(),
        _ => &[],
    };
    for source in &manifest.workspace_sources {
        let same_target = manifest
            .mounts
            .iter()
            .find(|mount| mount.target == source.target);
        if let Some(mount) = same_target {
            let problem = Problem::Duplicate {
                found: source.target.to_string(),
                first: mount.source.clone(),
            };
            // Invalid entries are missing from the list, so the index comes from the pointer.
            let index = source
                .source
                .rsplit('/')
                .next()
                .and_then(|step| step.parse::<usize>().ok());
            let item = index.and_then(|index| items.get(index)).unwrap_or(root);
            reader.note(reader.error(item, problem));
        }
    }
}
