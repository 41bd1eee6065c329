//! `workspaceSources`: mounts of file trees from OCI artifacts.

use serde_json::Value as Json;

use crate::document::Node;
use crate::manifest::fields::{Field, Kind, LINE, object};
use crate::manifest::reader::Reader;
use crate::manifest::{ManifestError, Problem, schema};
use crate::mount_target::MountTarget;
use crate::mounts::read_target;
use crate::oci::reference::Reference;
use crate::path::RelPath;

/// A source artifact.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkspaceSource {
    pub id: String,
    pub reference: String,
    pub target: MountTarget,
    /// Default: false.
    pub writable: bool,
    /// Whether the run fails without it. Default: true.
    pub required: bool,
    /// The part of the snapshot to mount; `None`: all of it.
    pub subpath: Option<RelPath>,
    pub source: String,
}

impl WorkspaceSource {
    /// Whether the reference has a digest; `None`: it is invalid.
    #[must_use]
    pub fn is_pinned(&self) -> Option<bool> {
        let reference = Reference::parse(&self.reference).ok()?;
        Some(reference.digest.is_some())
    }
}

#[derive(Default)]
struct PartialSource {
    id: Option<String>,
    reference: Option<String>,
    target: Option<MountTarget>,
    is_writable: bool,
    is_optional: bool,
    subpath: Option<RelPath>,
}

const FIELDS: [Field<PartialSource>; 6] = [
    Field::required(
        "id",
        "Its name, unique in the manifest.",
        Kind::Text(&LINE, |source, id| source.id = Some(id)),
    ),
    Field::required(
        "ref",
        "The OCI reference of a source artifact.",
        Kind::Text(&LINE, |source, reference| {
            source.reference = Some(reference)
        }),
    ),
    Field::required(
        "mountPath",
        "The mount point inside, unique in the manifest.",
        Kind::Other(
            || schema::reference("mountTarget"),
            |reader, node, source| {
                source.target = Some(read_target(reader, node)?);
                Ok(())
            },
        ),
    ),
    Field::new(
        "writable",
        "Whether the body may write there.",
        Kind::Flag(Some(false), |source, is_writable| {
            source.is_writable = is_writable;
        }),
    ),
    Field::new(
        "required",
        "Whether the run fails without it.",
        Kind::Flag(Some(true), |source, is_required| {
            source.is_optional = !is_required;
        }),
    ),
    Field::new(
        "subpath",
        "The part of the snapshot to mount. Default: all of it.",
        Kind::Path(|source, subpath| source.subpath = Some(subpath)),
    ),
];

pub(crate) fn schema() -> Json {
    object("A source artifact.", &FIELDS)
}

pub(super) fn read<'document>(
    reader: &mut Reader<'document>,
    node: &'document Node,
) -> Result<Vec<WorkspaceSource>, ManifestError> {
    let mut sources: Vec<WorkspaceSource> = Vec::new();
    let pointer = reader.pointer(node);
    for (index, item) in reader.list(node)?.iter().enumerate() {
        let source = read_source(reader, item, format!("{pointer}/{index}"));
        let Some(source) = reader.keep(source) else {
            continue;
        };
        let (id, mount_path) = (item.get("id"), item.get("mountPath"));
        let duplicates = [
            (
                id,
                &source.id,
                sources.iter().find(|earlier| earlier.id == source.id),
            ),
            (
                mount_path,
                &source.target.to_string(),
                sources
                    .iter()
                    .find(|earlier| earlier.target == source.target),
            ),
        ];
        for (node, found, earlier) in duplicates {
            if let Some(earlier) = earlier {
                let found = crate::document::excerpt(found);
                let first = earlier.source.clone();
                let problem = Problem::Duplicate { found, first };
                reader.note(reader.error(node.unwrap_or(item), problem));
            }
        }
        sources.push(source);
    }
    Ok(sources)
}

fn read_source<'document>(
    reader: &mut Reader<'document>,
    node: &'document Node,
    pointer: String,
) -> Result<WorkspaceSource, ManifestError> {
    let mut source = PartialSource::default();
    reader.fields(node, &FIELDS, &mut source)?;
    Ok(WorkspaceSource {
        id: reader.present(node, "id", source.id)?,
        reference: reader.present(node, "ref", source.reference)?,
        target: reader.present(node, "mountPath", source.target)?,
        writable: source.is_writable,
        required: !source.is_optional,
        subpath: source.subpath,
        source: pointer,
    })
}
