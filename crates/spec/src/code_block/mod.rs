//! The `code` block (AIP-26) and the lean `source`: where the files of a bundle come from.
//!
//! This module only parses. As in the text of the specification, which is stricter than its schema,
//! absolute paths, `..`, NUL characters and unknown keys are refused.

mod schema;

use std::fmt;

use serde_json::json;

use crate::document::{Node, Value};
use crate::manifest::fields::{FREE_TEXT, Field, Kind, LINE, Text};
use crate::manifest::reader::{Reader, relative_path};
use crate::manifest::schema::reference;
use crate::manifest::{ManifestError, Problem};
use crate::path::RelPath;
pub(crate) use schema::{schema, source_schema};

/// A source of files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CodeSource {
    Inline {
        path: RelPath,
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
    Reference {
        path: SourcePath,
    },
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
    /// Goes up from the folder `base` of the workspace. The inner `None` is the workspace itself; the
    /// outer `None`: the path leaves the workspace.
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

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum PathBase {
    #[default]
    Workspace,
    /// Paths may go up.
    DocumentFolder,
}

/// Destination of a source's files in the bundle.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum SourceTarget {
    #[default]
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
pub(crate) fn read<'document>(
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
    let mut sources = Vec::new();
    reader.fields(node, &CODE, &mut sources)?;
    Ok(sources)
}

const CODE: [Field<Vec<CodeSource>>; 1] = [Field::required(
    "sources",
    "The sources, first to last.",
    Kind::Other(
        || json!({"type": "array", "items": reference("source"), "minItems": 1}),
        |reader, node, sources| {
            let items = reader.list(node)?;
            if items.is_empty() {
                return Err(reader.wrong_type(node, "a list with at least one source"));
            }
            for item in items {
                let source = read_source(reader, item, PathBase::Workspace);
                sources.extend(reader.keep(source));
            }
            Ok(())
        },
    ),
)];

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
        None => Ok(vec![read_source(reader, node, PathBase::DocumentFolder)?]),
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
            kinds => {
                let hint = match base {
                    PathBase::Workspace => "write an entry of the list for each",
                    PathBase::DocumentFolder => {
                        "write `code: {sources: […]}` instead, with an entry for each"
                    }
                };
                let problem = Problem::WrongType {
                    found: format!("{} in one entry", kinds.join(" and ")),
                    expected: "one of them".to_owned(),
                    hint: Some(hint.to_owned()),
                };
                reader.error(node, problem)
            }
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
    reader: &mut Reader<'document>,
    node: &'document Node,
) -> Result<CodeSource, ManifestError> {
    let mut partial = PartialSource::default();
    reader.fields(node, &INLINE, &mut partial)?;
    Ok(CodeSource::Inline {
        path: reader.present(node, "path", partial.path)?,
        content: reader.present(node, "content", partial.content)?,
    })
}

fn read_local<'document>(
    reader: &mut Reader<'document>,
    node: &'document Node,
    base: PathBase,
) -> Result<CodeSource, ManifestError> {
    let mut partial = PartialSource {
        base,
        ..PartialSource::default()
    };
    match &node.value {
        Value::Text(_) => partial.local = Some(local_path(reader, node, base)?),
        Value::Map(_) => reader.fields(node, &LOCAL, &mut partial)?,
        _ => return Err(reader.wrong_type(node, "text or a map with `path`")),
    }
    let (path, directory) = reader.present(node, "path", partial.local)?;
    Ok(CodeSource::Local {
        path,
        directory,
        target: partial.target,
        glob: partial.glob,
    })
}

fn read_github<'document>(
    reader: &mut Reader<'document>,
    node: &'document Node,
) -> Result<CodeSource, ManifestError> {
    let mut partial = PartialSource::default();
    reader.fields(node, &GITHUB, &mut partial)?;
    let reference = reader.present(node, "ref", partial.reference)?;
    let is_hexadecimal = reference.bytes().all(|byte| byte.is_ascii_hexdigit());
    if is_hexadecimal && (7..40).contains(&reference.len()) {
        reader.warn(
            "reference_looks_abbreviated",
            node.get("ref").unwrap_or(node),
            "this is the name of a branch or a tag; a commit has 40 hexadecimal digits",
        );
    }
    Ok(CodeSource::GitHub {
        repository: reader.present(node, "repo", partial.repository)?,
        reference,
        path: partial.path,
        target: partial.target,
    })
}

#[derive(Default)]
struct PartialSource {
    base: PathBase,
    path: Option<RelPath>,
    content: Option<String>,
    local: Option<(SourcePath, bool)>,
    repository: Option<String>,
    reference: Option<String>,
    target: SourceTarget,
    glob: Option<String>,
}

const INLINE: [Field<PartialSource>; 2] = [
    Field::required(
        "path",
        "In the bundle.",
        Kind::Path(|source, path| source.path = Some(path)),
    ),
    Field::required(
        "content",
        "The bytes of the file, UTF-8, without NUL.",
        Kind::Text(&FREE_TEXT, |source, content| source.content = Some(content)),
    ),
];

const LOCAL: [Field<PartialSource>; 3] = [
    Field::required(
        "path",
        "A file, a directory, or a pattern if it contains one of `*?[`; `.` is the whole folder. \
         Of a directory everything below it is taken.",
        Kind::Other(
            || reference("localPath"),
            |reader, node, source| {
                source.local = Some(local_path(reader, node, source.base)?);
                Ok(())
            },
        ),
    ),
    TARGET,
    Field::new(
        "glob",
        "The files of a directory: a pattern for the path below it, dotfiles included.",
        Kind::Text(&LINE, |source, glob| source.glob = Some(glob)),
    ),
];

const TARGET: Field<PartialSource> = Field::new(
    "as",
    "The place of the files in the bundle.",
    Kind::Other(
        || reference("target"),
        |reader, node, source| {
            source.target = read_target(reader, node)?;
            Ok(())
        },
    ),
);

const GITHUB: [Field<PartialSource>; 4] = [
    Field::required(
        "repo",
        "`owner/name`.",
        Kind::Text(&REPOSITORY, |source, name| source.repository = Some(name)),
    ),
    Field::required(
        "ref",
        "A commit (40 hexadecimal digits, cached for ever), a tag such as v1.2.3 (cached for 24 \
         hours) or a branch (looked up each time).",
        Kind::Text(&COMMIT, |source, name| source.reference = Some(name)),
    ),
    Field::new(
        "path",
        "The folder of the repository. Default: all of it.",
        Kind::Other(
            || reference("folder"),
            |reader, node, source| {
                source.path = Some(folder(reader, node)?);
                Ok(())
            },
        ),
    ),
    TARGET,
];

static REPOSITORY: Text = Text {
    schema: || {
        let name = r"(?!-)(?!\.{1,2}(?:/|$))[A-Za-z0-9._-]+";
        json!({"type": "string", "pattern": format!("^{name}/{name}$")})
    },
    read: read_repository,
};

static COMMIT: Text = Text {
    schema: || {
        let pattern = r"^(?!-)(?!.*\.\.)(?=[^\x00]*\S)[^\x00-\x1f\x7f-\x9f ~^:?*\[\\]+$";
        json!({"type": "string", "pattern": pattern})
    },
    read: read_commit,
};

fn read_repository<'document>(
    reader: &Reader<'document>,
    node: &'document Node,
) -> Result<String, ManifestError> {
    let name = reader.name(node)?;
    let is_plain_name = |part: &str| {
        crate::tokens::is_segment(part)
            && !part.starts_with('-')
            && part
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.'))
    };
    let is_repository = name
        .split_once('/')
        .is_some_and(|(owner, project)| is_plain_name(owner) && is_plain_name(project));
    if is_repository {
        Ok(name.to_owned())
    } else {
        Err(reader.wrong_type(node, "text of the form owner/name"))
    }
}

fn read_commit<'document>(
    reader: &Reader<'document>,
    node: &'document Node,
) -> Result<String, ManifestError> {
    let commit = reader.name(node)?;
    let is_invalid = commit.starts_with('-')
        || commit.contains("..")
        || commit.contains([' ', '~', '^', ':', '?', '*', '[', '\\']);
    if is_invalid {
        return Err(reader.wrong_type(node, "text that names a commit, a tag or a branch"));
    }
    Ok(commit.to_owned())
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
    node: &'document Node,
) -> Result<SourceTarget, ManifestError> {
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

/// Parses the path of a folder. The error completes "which …".
pub(crate) fn reference_path(text: &str, base: PathBase) -> Result<SourcePath, String> {
    let mut up = 0;
    let mut rest = text;
    if base == PathBase::DocumentFolder {
        let mut below = text.strip_prefix("./").unwrap_or(text);
        while let Some(next) = below.strip_prefix("../") {
            up += 1;
            below = next;
        }
        if below == ".." {
            up += 1;
            below = "";
        }
        if up > 0 {
            if below.is_empty() {
                return Ok(SourcePath { up, below: None });
            }
            rest = below;
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
    relative_path(text.strip_suffix('/').unwrap_or(text))
        .map_err(|reason| reader.path_refused(node, text, reason))
}
