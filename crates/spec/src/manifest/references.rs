//! The code-workspaces and repositories that a document refers to. The document may be invalid.

use crate::code_block::{PathBase, SourcePath, reference_path};
use crate::document::{Node, Value};

/// A `ref` source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CodeReference<'document> {
    pub path: SourcePath,
    /// Whether it is in the lean `source`: the path is relative to the folder of the document, else
    /// to the workspace.
    pub is_lean: bool,
    pub node: &'document Node,
    pub pointer: String,
}

/// The code-workspaces of `code` or the lean `source`, in the order of the text. Invalid paths are
/// left out; reading the manifest reports them.
#[must_use]
pub fn code_references(root: &Node) -> Vec<CodeReference<'_>> {
    let sources = source_nodes(root).into_iter();
    sources
        .filter_map(|source| {
            let node = source.reference_path()?;
            let Value::Text(text) = &node.value else {
                return None;
            };
            let base = if source.is_lean {
                PathBase::DocumentFolder
            } else {
                PathBase::Workspace
            };
            let path = reference_path(text, base).ok()?;
            Some(CodeReference {
                path,
                is_lean: source.is_lean,
                node,
                pointer: source.pointer,
            })
        })
        .collect()
}

/// A `github` source whose values are all text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GitHubReference<'document> {
    pub repository: &'document str,
    pub reference: &'document str,
    pub node: &'document Node,
    pub pointer: String,
}

/// The repositories of `code` or the lean `source`.
#[must_use]
pub fn github_references(root: &Node) -> Vec<GitHubReference<'_>> {
    let mut found = Vec::new();
    for SourceNode { node, pointer, .. } in source_nodes(root) {
        let inner = node.get("github");
        let repository = inner.and_then(|inner| inner.get("repo"));
        let Some(node) = inner.and_then(|inner| inner.get("ref")) else {
            continue;
        };
        if let (Some(Value::Text(repository)), Value::Text(reference)) =
            (repository.map(|repository| &repository.value), &node.value)
        {
            found.push(GitHubReference {
                repository,
                reference,
                node,
                pointer,
            });
        }
    }
    found
}

/// The node of one source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourceNode<'document> {
    pub node: &'document Node,
    pub pointer: String,
    /// Whether it is the lean `source`: paths are relative to the folder of the document, else to the
    /// workspace.
    pub is_lean: bool,
}

impl<'document> SourceNode<'document> {
    /// The path of a `ref` source; `code: PATH` is short for one.
    fn reference_path(&self) -> Option<&'document Node> {
        if self.pointer == CODE {
            return Some(self.node);
        }
        let reference = self.node.get("ref")?;
        Some(reference.get("path").unwrap_or(reference))
    }
}

const CODE: &str = "/code";

/// The sources of `code` or, without it, the lean `source`. In a valid document they are in the order
/// of [`Manifest::code`](super::Manifest::code).
#[must_use]
pub fn source_nodes(root: &Node) -> Vec<SourceNode<'_>> {
    let source = |pointer, is_lean, node| SourceNode {
        node,
        pointer,
        is_lean,
    };
    let Some(code) = root.get("code") else {
        let lean = root.get("source").into_iter();
        return lean
            .map(|node| source("/source".to_owned(), true, node))
            .collect();
    };
    if matches!(code.value, Value::Text(_)) {
        return vec![source(CODE.to_owned(), false, code)];
    }
    let Some(Value::List(items)) = code.get("sources").map(|list| &list.value) else {
        return Vec::new();
    };
    let items = items.iter().enumerate();
    items
        .map(|(index, item)| source(format!("{CODE}/sources/{index}"), false, item))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::{self, Format};
    use crate::parse_permit::PERMIT;

    fn found(text: &str) -> Vec<String> {
        let root = document::parse(&PERMIT, text.as_bytes(), Format::Yaml).expect("a document");
        let workspaces = code_references(&root).into_iter().map(|found| {
            let lean = if found.is_lean { " lean" } else { "" };
            format!(
                "{} {}{lean} {}",
                found.pointer, found.path, found.node.place
            )
        });
        let repositories = github_references(&root)
            .into_iter()
            .map(|found| format!("{} {}@{}", found.pointer, found.repository, found.reference));
        workspaces.chain(repositories).collect()
    }

    #[test]
    fn references_of_an_invalid_document_are_found() {
        for (text, expected) in [
            ("code: ./a/b/\nnme: x\n", &["/code a/b 1:7"][..]),
            (
                "run: 1\ncode: {sources: [{ref: a}, {ref: {path: b}}, {ref: ../c}, {ref: 1}, 7, \
                 {github: {repo: o/n, ref: main}}, {github: {repo: o/n}}, {github: {repo: 1, \
                 ref: x}}, {local: d}]}\n",
                &[
                    "/code/sources/0 a 2:24",
                    "/code/sources/1 b 2:41",
                    "/code/sources/5 o/n@main",
                ],
            ),
            ("source: {ref: ../x}\n", &["/source ../x lean 1:15"]),
            ("source: {ref: ./../../}\n", &["/source ../.. lean 1:15"]),
            ("source: {ref: x/../y}\n", &[]),
            ("source: {ref: ..//y}\n", &[]),
            ("source: {ref: x}\n", &["/source x lean 1:15"]),
            (
                "source: {github: {repo: o/n, ref: v1}}\n",
                &["/source o/n@v1"],
            ),
            ("source: {ref: x}\ncode: y\n", &["/code y 2:7"]),
            ("source: {origin: workspace}\n", &[]),
            ("code: [a]\n", &[]),
            ("[]\n", &[]),
        ] {
            assert_eq!(found(text), expected, "{text}");
        }
    }

    #[test]
    fn code_without_a_list_of_sources_is_a_source_only_if_it_is_text() {
        for (text, expected) in [
            ("code: ./a\n", &["/code"][..]),
            ("code: {}\n", &[]),
            ("code: {sources: ./a}\n", &[]),
            ("code: {sources: {}}\n", &[]),
            ("code: [./a]\n", &[]),
            ("code: {sources: []}\nsource: {local: a}\n", &[]),
            ("code: 7\nsource: {local: a}\n", &[]),
            ("code: a\nsource: {local: a}\n", &["/code"]),
            (
                "code: {sources: [{local: a}, b]}\n",
                &["/code/sources/0", "/code/sources/1"],
            ),
            ("source: {local: a}\n", &["/source lean"]),
            ("source: a\n", &["/source lean"]),
            ("run: {file: a}\n", &[]),
        ] {
            let root = document::parse(&PERMIT, text.as_bytes(), Format::Yaml).expect("a document");
            let sources = source_nodes(&root).into_iter().map(|source| {
                let lean = if source.is_lean { " lean" } else { "" };
                format!("{}{lean}", source.pointer)
            });
            assert_eq!(sources.collect::<Vec<_>>(), expected, "{text}");
        }
    }
}
