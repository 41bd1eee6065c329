//! `metadata.runner.sources` of a resolved manifest: the commits of the bundle's files.
//!
//! `runner bundle` writes them. In a bundle they are untrusted and informational.

use serde::Serialize;
use serde_json::{Value as Json, json};

use crate::document::{Node, Value};
use crate::path::escape;

/// Most sources: the limit of a bundle.
const SOURCES_MAX: usize = 4_096;
const TEXT_BYTES_MAX: usize = 1_024;
const DIGITS: usize = 40;

/// A reference of a source, and the commit that it named when the bundle was made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct SourceCommit {
    /// `owner/name`.
    pub repository: String,
    /// Commit, tag or branch, as the manifest has it.
    pub reference: String,
    /// The commit, 40 hexadecimal digits.
    pub sha: String,
}

pub(super) fn read(root: &Node) -> Vec<SourceCommit> {
    let runner = root.get("metadata").and_then(|node| node.get("runner"));
    let Some(Value::List(items)) = runner
        .and_then(|node| node.get("sources"))
        .map(|node| &node.value)
    else {
        return Vec::new();
    };
    let text = |node: &Node, key: &str| match &node.get(key)?.value {
        Value::Text(text) if text.len() <= TEXT_BYTES_MAX => Some(escape(text.as_bytes())),
        _ => None,
    };
    let commit = |node: &Node| {
        let sha = text(node, "sha")?;
        let is_commit = sha.len() == DIGITS && sha.bytes().all(|digit| digit.is_ascii_hexdigit());
        Some(SourceCommit {
            repository: text(node, "repository")?,
            reference: text(node, "reference")?,
            sha: is_commit.then_some(sha)?,
        })
    };
    items.iter().take(SOURCES_MAX).filter_map(commit).collect()
}

/// Replaces the commits of `manifest`.
#[must_use]
pub fn with_commits(mut manifest: Json, commits: &[SourceCommit]) -> Json {
    let mut block = &mut manifest;
    for key in ["metadata", "runner"] {
        let Some(map) = block.as_object_mut() else {
            return manifest;
        };
        if commits.is_empty() && !map.contains_key(key) {
            return manifest;
        }
        block = map.entry(key).or_insert_with(|| json!({}));
    }
    if let Some(map) = block.as_object_mut() {
        if commits.is_empty() {
            map.remove("sources");
        } else {
            map.insert("sources".to_owned(), json!(commits));
        }
    }
    manifest.sort_all_objects();
    manifest
}
