//! `workspaceSources`: mounts of file trees from OCI artifacts.

use crate::document::Node;
use crate::manifest::reader::Reader;
use crate::manifest::{ManifestError, Problem};
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
    /// Whether its reference has a digest; `None`: the reference is invalid.
    #[must_use]
    pub fn is_pinned(&self) -> Option<bool> {
        let reference = Reference::parse(&self.reference).ok()?;
        Some(reference.digest.is_some())
    }
}

const KEYS: [&str; 6] = ["id", "ref", "mountPath", "writable", "required", "subpath"];

pub(super) fn read<'document>(
    reader: &Reader<'document>,
    node: &'document Node,
) -> Result<Vec<WorkspaceSource>, ManifestError> {
    let mut sources: Vec<WorkspaceSource> = Vec::new();
    let pointer = reader.pointer(node);
    for (index, item) in reader.list(node)?.iter().enumerate() {
        let Some(source) = reader.keep(read_source(reader, item, format!("{pointer}/{index}")))
        else {
            continue;
        };
        let (id, mount_path) = (item.get("id"), item.get("mountPath"));
        let claims = [
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
        for (node, found, earlier) in claims {
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
    reader: &Reader<'document>,
    node: &'document Node,
    source: String,
) -> Result<WorkspaceSource, ManifestError> {
    reader.entries(node, &KEYS)?;
    let name = |name: &'static str| reader.field(node, name, |value| reader.name(value));
    let flag = |name: &str| reader.optional(node, name, |value| reader.boolean(value));
    let names = reader.both(name("id"), name("ref"));
    let paths = reader.both(
        reader.field(node, "mountPath", |path| read_target(reader, path)),
        reader.optional(node, "subpath", |path| reader.path(path)),
    );
    let flags = reader.both(flag("writable"), flag("required"));
    let rest = reader.both(paths, flags);
    let ((id, reference), ((target, subpath), (writable, required))) = reader.both(names, rest)?;
    Ok(WorkspaceSource {
        id: id.to_owned(),
        reference: reference.to_owned(),
        target,
        writable: writable.unwrap_or(false),
        required: required.unwrap_or(true),
        subpath,
        source,
    })
}
