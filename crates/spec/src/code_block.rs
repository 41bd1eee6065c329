//! The `code` block (AIP-26) and the lean `source`: where the files of a bundle come from.
//!
//! Only parses; nothing is fetched. The specification's text is stricter than its schema: absolute
//! paths, `..`, NUL characters and unknown keys are refused.

use std::fmt;

use crate::document::{Node, Value, excerpt};
use crate::manifest::reader::{Reader, relative_path};
use crate::manifest::{ManifestError, Problem};
use crate::path::RelPath;

/// A source of files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CodeSource {
    Inline {
        path: RelPath,
        /// UTF-8.
        content: String,
    },
    Local {
        /// Path in the workspace. A pattern if it has one of `*?[`.
        path: SourcePath,
        /// Whether the path must be a directory: it ends in `/` or is empty.
        directory: bool,
        target: SourceTarget,
        /// Pattern for the files of a directory.
        glob: Option<String>,
    },
    GitHub {
        repository: String,
        reference: String,
        /// A folder of the repository; `None`: all of it.
        path: Option<RelPath>,
        target: SourceTarget,
    },
    /// The sources of another code-workspace.
    Reference { path: SourcePath },
}

/// A path of a source, relative to the workspace. In the lean `source` it is relative to the folder
/// of its file and may go up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourcePath {
    /// Number of leading `..`.
    pub up: usize,
    /// The rest of the path; `None`: that folder itself.
    pub below: Option<RelPath>,
}

impl SourcePath {
    /// Resolves the path from the folder `base` (`None`: the workspace itself) to a path in the
    /// workspace. The outer `None`: it leaves the workspace.
    #[must_use]
    pub fn base(&self, base: Option<&RelPath>) -> Option<Option<RelPath>> {
        let mut base = base.cloned();
        for _ in 0..self.up {
            base = base?.parent();
        }
        Some(base)
    }
}

impl From<RelPath> for SourcePath {
    fn from(path: RelPath) -> Self {
        Self {
            up: 0,
            below: Some(path),
        }
    }
}

impl fmt::Display for SourcePath {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let up = "../".repeat(self.up);
        match (&self.below, up.is_empty()) {
            (Some(below), _) => write!(formatter, "{up}{below}"),
            (None, true) => formatter.write_str("."),
            (None, false) => formatter.write_str(up.trim_end_matches('/')),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PathBase {
    Workspace,
    /// The folder of the file. Paths may go up.
    Beside,
}

/// Destination of a source's files in the bundle.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SourceTarget {
    Same,
    /// `as: .`: strip the path of the source.
    Top,
    Path {
        path: RelPath,
        directory: bool,
    },
}

const KINDS: [&str; 4] = ["inline", "local", "github", "ref"];

/// Reads `code`: a path, or `{sources: […]}`.
pub fn read<'document>(
    reader: &mut Reader<'document>,
    node: &'document Node,
) -> Result<Vec<CodeSource>, ManifestError> {
    if let Value::Text(text) = &node.value {
        if text.contains('@') {
            let reason = "contains `@`; a commit can be named for a `github` source only";
            return Err(reader.path_refused(node, text, reason.to_owned()));
        }
        let path = folder(reader, node)?.into();
        return Ok(vec![CodeSource::Reference { path }]);
    }
    if !matches!(node.value, Value::Map(_)) {
        return Err(reader.wrong_type(node, "text or a map with `sources`"));
    }
    reader.entries(node, &["sources"])?;
    let sources = reader.required(node, "sources")?;
    let items = reader.list(sources)?;
    if items.is_empty() {
        return Err(reader.wrong_type(sources, "a list with at least one source"));
    }
    let mut read = Vec::new();
    for item in items {
        let source = read_source(reader, item, PathBase::Workspace);
        read.extend(reader.keep(source));
    }
    Ok(read)
}

/// Whether a `source` is only `{origin: …}` and names no files.
pub(crate) fn is_origin(node: &Node) -> bool {
    node.get("origin").is_some()
}

pub(crate) fn read_lean<'document>(
    reader: &mut Reader<'document>,
    node: &'document Node,
) -> Result<Vec<CodeSource>, ManifestError> {
    reader.known_map(node, &["origin", "inline", "local", "github", "ref"])?;
    match node.entry("origin") {
        Some((_, origin)) => {
            reader.name(origin)?;
            if let Some(other) = KINDS.iter().find(|kind| node.get(kind).is_some()) {
                return Err(reader.error(
                    node,
                    Problem::Conflict {
                        one: "origin",
                        other,
                    },
                ));
            }
            reader.ignore(node);
            Ok(Vec::new())
        }
        None => Ok(vec![read_source(reader, node, PathBase::Beside)?]),
    }
}

fn read_source<'document>(
    reader: &mut Reader<'document>,
    node: &'document Node,
    base: PathBase,
) -> Result<CodeSource, ManifestError> {
    let entries = reader.known_map(node, &KINDS)?;
    let [(key, value)] = entries else {
        let kinds: Vec<String> = entries
            .iter()
            .map(|(key, _)| format!("`{}`", key.name))
            .collect();
        return Err(match kinds.as_slice() {
            [] => reader.wrong_type(node, "a map with one of inline, local, github, ref"),
            kinds => reader.error(
                node,
                Problem::WrongType {
                    found: format!("{} in one entry", kinds.join(" and ")),
                    expected: "one of them".to_owned(),
                    hint: Some("write an entry of the list for each".to_owned()),
                },
            ),
        });
    };
    match key.name.as_str() {
        "inline" => read_inline(reader, value),
        "local" => read_local(reader, value, base),
        "github" => read_github(reader, value),
        _ => read_reference(reader, value, base),
    }
}

fn read_inline<'document>(
    reader: &Reader<'document>,
    node: &'document Node,
) -> Result<CodeSource, ManifestError> {
    reader.entries(node, &["path", "content"])?;
    let path = reader.field(node, "path", |path| reader.path(path));
    let content = reader.field(node, "content", |content| reader.text(content));
    let (path, content) = reader.both(path, content)?;
    Ok(CodeSource::Inline {
        path,
        content: content.to_owned(),
    })
}

fn read_local<'document>(
    reader: &Reader<'document>,
    node: &'document Node,
    base: PathBase,
) -> Result<CodeSource, ManifestError> {
    if matches!(node.value, Value::Text(_)) {
        let (path, directory) = local_path(reader, node, base)?;
        return Ok(CodeSource::Local {
            path,
            directory,
            target: SourceTarget::Same,
            glob: None,
        });
    }
    if !matches!(node.value, Value::Map(_)) {
        return Err(reader.wrong_type(node, "text or a map with `path`"));
    }
    reader.entries(node, &["path", "as", "glob"])?;
    let path = reader.field(node, "path", |path| local_path(reader, path, base));
    let glob = reader.optional(node, "glob", |glob| reader.name(glob).map(str::to_owned));
    let rest = reader.both(read_target(reader, node.get("as")), glob);
    let ((path, directory), (target, glob)) = reader.both(path, rest)?;
    Ok(CodeSource::Local {
        path,
        directory,
        target,
        glob,
    })
}

fn read_github<'document>(
    reader: &mut Reader<'document>,
    node: &'document Node,
) -> Result<CodeSource, ManifestError> {
    reader.entries(node, &["repo", "ref", "path", "as"])?;
    let names = reader.both(
        reader.field(node, "repo", |repository| {
            read_repository(reader, repository)
        }),
        reader.field(node, "ref", |reference| read_commit(reader, reference)),
    );
    let targets = reader.both(
        reader.optional(node, "path", |path| folder(reader, path)),
        read_target(reader, node.get("as")),
    );
    let ((repository, commit), (path, target)) = reader.both(names, targets)?;
    let hexadecimal = commit.bytes().all(|byte| byte.is_ascii_hexdigit());
    if hexadecimal && (7..40).contains(&commit.len()) {
        reader.warn(
            "reference_looks_abbreviated",
            node.get("ref").unwrap_or(node),
            "this is the name of a branch or a tag; a commit has 40 hexadecimal digits",
        );
    }
    Ok(CodeSource::GitHub {
        repository: repository.to_owned(),
        reference: commit.to_owned(),
        path,
        target,
    })
}

fn read_repository<'document>(
    reader: &Reader<'document>,
    node: &'document Node,
) -> Result<&'document str, ManifestError> {
    let name = reader.name(node)?;
    let name_is_plain = |part: &str| {
        crate::tokens::is_segment(part)
            && !part.starts_with('-')
            && part
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.'))
    };
    let plain = name
        .split_once('/')
        .is_some_and(|(owner, project)| name_is_plain(owner) && name_is_plain(project));
    if plain {
        Ok(name)
    } else {
        Err(reader.wrong_type(node, "text of the form owner/name"))
    }
}

fn read_commit<'document>(
    reader: &Reader<'document>,
    node: &'document Node,
) -> Result<&'document str, ManifestError> {
    let commit = reader.name(node)?;
    let unusable = commit.starts_with('-')
        || commit.contains("..")
        || commit.contains([' ', '~', '^', ':', '?', '*', '[', '\\']);
    if unusable {
        return Err(reader.wrong_type(node, "text that names a commit, a tag or a branch"));
    }
    Ok(commit)
}

fn read_reference<'document>(
    reader: &Reader<'document>,
    node: &'document Node,
    base: PathBase,
) -> Result<CodeSource, ManifestError> {
    let path = match &node.value {
        Value::Text(_) => node,
        Value::Map(_) => {
            reader.known_map(node, &["path"])?;
            reader.required(node, "path")?
        }
        _ => return Err(reader.wrong_type(node, "text or a map with `path`")),
    };
    let text = reader.text(path)?;
    match reference_path(text, base) {
        Ok(path) => Ok(CodeSource::Reference { path }),
        Err(reason) => Err(reader.path_refused(path, text, reason)),
    }
}

fn read_target<'document>(
    reader: &Reader<'document>,
    node: Option<&'document Node>,
) -> Result<SourceTarget, ManifestError> {
    let Some(node) = node else {
        return Ok(SourceTarget::Same);
    };
    let text = reader.text(node)?;
    if matches!(text, "." | "./") {
        return Ok(SourceTarget::Top);
    }
    Ok(SourceTarget::Path {
        path: folder(reader, node)?,
        directory: text.ends_with('/'),
    })
}

fn local_path<'document>(
    reader: &Reader<'document>,
    node: &'document Node,
    base: PathBase,
) -> Result<(SourcePath, bool), ManifestError> {
    let text = reader.text(node)?;
    let path = match text {
        "." | "./" => Ok(SourcePath { up: 0, below: None }),
        _ => reference_path(text, base),
    };
    let path = path.map_err(|reason| reader.path_refused(node, text, reason))?;
    let directory = text.ends_with('/') || path.below.is_none();
    Ok((path, directory))
}

/// Parses the path of a folder.
///
/// # Errors
/// The reason: completes "which …".
pub(crate) fn reference_path(text: &str, base: PathBase) -> Result<SourcePath, String> {
    let mut up = 0;
    let mut rest = text;
    if base == PathBase::Beside {
        let plain = text.strip_prefix("./").unwrap_or(text);
        let mut above = plain;
        while let Some(next) = above.strip_prefix("../") {
            up += 1;
            above = next;
        }
        if above == ".." {
            up += 1;
            above = "";
        }
        if up != 0 {
            rest = above;
        }
        if up != 0 && rest.is_empty() {
            return Ok(SourcePath { up, below: None });
        }
    }
    let below = relative_path(rest.strip_suffix('/').unwrap_or(rest))?;
    Ok(SourcePath {
        up,
        below: Some(below),
    })
}

fn folder<'document>(
    reader: &Reader<'document>,
    node: &'document Node,
) -> Result<RelPath, ManifestError> {
    let text = reader.text(node)?;
    relative_path(text.strip_suffix('/').unwrap_or(text)).map_err(|reason| {
        reader.error(
            node,
            Problem::PathRefused {
                found: excerpt(text),
                reason,
            },
        )
    })
}
