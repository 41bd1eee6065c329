//! The code-workspaces and repositories that a document refers to. Works for invalid documents too.

use crate::code_block::{PathBase, SourcePath, reference_path};
use crate::document::{Node, Value};

/// A `ref` source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CodeReference<'document> {
    pub path: SourcePath,
    /// Whether the path is relative to the folder of the document (the lean `source`) instead of
    /// the workspace.
    pub beside: bool,
    pub node: &'document Node,
    pub pointer: String,
}

/// The code-workspaces of `code` or the lean `source`, in the order of the text. Invalid paths are
/// left out; reading the manifest reports them.
#[must_use]
pub fn code_references(root: &Node) -> Vec<CodeReference<'_>> {
    let code = root.get("code");
    let short = code.filter(|node| matches!(node.value, Value::Text(_)));
    let short = short.map(|node| ("/code".to_owned(), false, node));
    let among = sources(root)
        .into_iter()
        .filter_map(|(pointer, beside, source)| {
            let inner = source.get("ref")?;
            let path = inner.get("path").unwrap_or(inner);
            Some((pointer, beside, path))
        });
    short
        .into_iter()
        .chain(among)
        .filter_map(|(pointer, beside, node)| {
            let Value::Text(text) = &node.value else {
                return None;
            };
            let base = match beside {
                true => PathBase::Beside,
                false => PathBase::Workspace,
            };
            let path = reference_path(text, base).ok()?;
            Some(CodeReference {
                path,
                beside,
                node,
                pointer,
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
    for (pointer, _, source) in sources(root) {
        let inner = source.get("github");
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

fn sources(root: &Node) -> Vec<(String, bool, &Node)> {
    let list = root.get("code").and_then(|code| code.get("sources"));
    if let Some(Value::List(items)) = list.map(|list| &list.value) {
        let items = items.iter().enumerate();
        return items
            .map(|(index, item)| (format!("/code/sources/{index}"), false, item))
            .collect();
    }
    let lean = root.get("source").filter(|_| root.get("code").is_none());
    let lean = lean.map(|node| ("/source".to_owned(), true, node));
    lean.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::{self, Format};

    fn told(text: &str) -> Vec<String> {
        let root = document::parse(text.as_bytes(), Format::Yaml).expect("a document");
        let workspaces = code_references(&root).into_iter().map(|found| {
            let base = if found.beside { " beside" } else { "" };
            format!(
                "{} {}{base} {}",
                found.pointer, found.path, found.node.place
            )
        });
        let repositories = github_references(&root)
            .into_iter()
            .map(|found| format!("{} {}@{}", found.pointer, found.repository, found.reference));
        workspaces.chain(repositories).collect()
    }

    #[test]
    fn references_are_found_whatever_else_is_wrong() {
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
            ("source: {ref: ../x}\n", &["/source ../x beside 1:15"]),
            ("source: {ref: ./../../}\n", &["/source ../.. beside 1:15"]),
            ("source: {ref: x/../y}\n", &[]),
            ("source: {ref: ..//y}\n", &[]),
            ("source: {ref: x}\n", &["/source x beside 1:15"]),
            (
                "source: {github: {repo: o/n, ref: v1}}\n",
                &["/source o/n@v1"],
            ),
            ("source: {ref: x}\ncode: y\n", &["/code y 2:7"]),
            ("source: {origin: workspace}\n", &[]),
            ("code: [a]\n", &[]),
            ("[]\n", &[]),
        ] {
            assert_eq!(told(text), expected, "{text}");
        }
    }
}
