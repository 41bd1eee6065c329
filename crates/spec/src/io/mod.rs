//! The IO blocks (AIP-16): `inputs`, `outputs`, `inputsFiles`, `outputsFiles`.

pub mod contract;
pub mod fs_root;
pub mod keywords;

pub use contract::{Contract, ContractError, Mismatch, ReadDocumentError, read_document};
pub(crate) use fs_root::FS_ROOT;
pub use fs_root::{FsRootError, declare_fs_root, inject_fs_root};

use std::collections::HashMap;

use serde_json::{Value as Json, json};

use crate::access_mode::AccessMode;
use crate::document::{Node, excerpt, pointer_step};
use crate::manifest::fields::{Field, Kind, LINE, object};
use crate::manifest::reader::{Reader, relative_path};
use crate::manifest::schema::reference;
use crate::manifest::{ManifestError, Problem};
use crate::path::RelPath;
use crate::tokens::{TokenError, TokenPath};

pub(crate) const SCHEMA_BYTES_MAX: usize = 1 << 20;

/// The declared inputs and outputs of a run.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct IoBlocks {
    pub inputs: Option<serde_json::Value>,
    pub outputs: Option<serde_json::Value>,
    pub input_files: Vec<FileEntry>,
    pub output_files: Vec<FileEntry>,
}

/// A declared file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileEntry {
    /// One path segment. Inside, the file is at `/scratch/<key>`.
    pub key: RelPath,
    pub path: TokenPath,
    /// Whether the run fails without it. Ignored for input files, which are always required.
    pub required: bool,
    /// A convention between author and body. Not enforced.
    pub mode: Option<AccessMode>,
    /// MIME type. Informational.
    pub content_type: Option<String>,
    pub source: String,
}

pub(crate) fn read_schema<'document>(
    reader: &Reader<'document>,
    node: &'document Node,
) -> Result<serde_json::Value, ManifestError> {
    reader.map(node)?;
    let schema = node
        .to_json()
        .map_err(|error| reader.document_error(error))?;
    let bytes = schema.to_string().len();
    if bytes > SCHEMA_BYTES_MAX {
        return Err(reader.error(
            node,
            Problem::SchemaTooLarge {
                bytes,
                bytes_max: SCHEMA_BYTES_MAX,
            },
        ));
    }
    Ok(schema)
}

pub(crate) fn read_files<'document>(
    reader: &mut Reader<'document>,
    node: &'document Node,
    distinct_paths: bool,
) -> Result<Vec<FileEntry>, ManifestError> {
    let pointer = reader.pointer(node);
    let mut files: Vec<FileEntry> = Vec::new();
    let mut first_sources: HashMap<String, String> = HashMap::new();
    for (key, value) in reader.map(node)? {
        let segment = file_key(&key.name).map_err(|reason| {
            let found = excerpt(&key.name);
            reader.key_error(node, key, Problem::FileKeyRefused { found, reason })
        });
        let source = format!("{pointer}/{}", pointer_step(&key.name));
        let file = read_file(reader, segment, value, source);
        let Some(file) = reader.keep(file) else {
            continue;
        };
        let found = file.path.to_string();
        match first_sources.get(&found) {
            Some(first) if distinct_paths => {
                let first = first.clone();
                reader.note(reader.error(
                    value.get("path").unwrap_or(value),
                    Problem::Duplicate { found, first },
                ));
            }
            Some(_) => (),
            None => {
                first_sources.insert(found, file.source.clone());
            }
        }
        files.push(file);
    }
    Ok(files)
}

/// Parses a key, which becomes a file name: one path segment. The error completes "the key …".
pub(crate) fn file_key(key: &str) -> Result<RelPath, String> {
    if key.chars().any(char::is_control) {
        return Err("contains a control character".to_owned());
    }
    let path = RelPath::parse(key.as_bytes()).map_err(|error| error.to_string())?;
    if key.contains('/') {
        return Err("is more than one path segment".to_owned());
    }
    Ok(path)
}

#[derive(Default)]
struct PartialFile {
    path: Option<TokenPath>,
    is_required: bool,
    mode: Option<AccessMode>,
    content_type: Option<String>,
}

const FILE: [Field<PartialFile>; 4] = [
    Field::required(
        "path",
        "In the workspace.",
        Kind::Other(
            || reference("tokenPath"),
            |reader, node, file| {
                file.path = Some(read_token_path(reader, node)?);
                Ok(())
            },
        ),
    ),
    Field::new(
        "mode",
        "A convention between author and body. Not enforced.",
        Kind::Other(
            || json!({"enum": AccessMode::ALL.map(AccessMode::short)}),
            |reader, node, file| {
                let modes = AccessMode::ALL.map(|mode| (mode.short(), mode));
                file.mode = Some(reader.word(node, &modes)?);
                Ok(())
            },
        ),
    ),
    Field::new(
        "contentType",
        "MIME type. Informational.",
        Kind::Text(&LINE, |file, mime| file.content_type = Some(mime)),
    ),
    Field::new(
        "required",
        "Whether the run fails without it. Input files are always required.",
        Kind::Flag(Some(false), |file, required| file.is_required = required),
    ),
];

pub(crate) fn file_schema() -> Json {
    object("A declared file.", &FILE)
}

fn read_file<'document>(
    reader: &mut Reader<'document>,
    key: Result<RelPath, ManifestError>,
    node: &'document Node,
    source: String,
) -> Result<FileEntry, ManifestError> {
    let mut file = PartialFile::default();
    let read = reader.fields(node, &FILE, &mut file);
    let (key, ()) = reader.both(key, read)?;
    Ok(FileEntry {
        key,
        path: reader.present(node, "path", file.path)?,
        required: file.is_required,
        mode: file.mode,
        content_type: file.content_type,
        source,
    })
}

pub(crate) fn read_token_path<'document>(
    reader: &Reader<'document>,
    node: &'document Node,
) -> Result<TokenPath, ManifestError> {
    let text = reader.text(node)?;
    let path = TokenPath::parse(text).map_err(|error| match error {
        TokenError::Path { reason, .. } => reader.path_refused(node, text, reason.to_string()),
        other => reader.error(node, Problem::Token(other)),
    })?;
    // Tokens are plain text for `relative_path`, so it can check the whole path.
    relative_path(text).map_err(|reason| reader.path_refused(node, text, reason))?;
    Ok(path)
}
