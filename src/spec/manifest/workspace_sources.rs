//! `workspaceSources`: trees of files from OCI artifacts that should appear inside.

use crate::spec::document::Node;
use crate::spec::manifest::reader::Reader;
use crate::spec::manifest::{ManifestError, Problem};
use crate::spec::mount_target::MountTarget;
use crate::spec::path::RelPath;
use crate::spec::sandbox_block::read_target;

/// One source artifact.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkspaceSource {
    /// Name, unique in the manifest.
    pub id: String,
    /// OCI reference.
    pub reference: String,
    /// Where it appears inside.
    pub target: MountTarget,
    /// Whether the body may write there. Default: no.
    pub writable: bool,
    /// Whether the run fails without it. Default: yes.
    pub required: bool,
    /// The part of the snapshot that appears; `None`: all of it.
    pub subpath: Option<RelPath>,
    /// JSON Pointer of the entry.
    pub source: String,
}

/// Reads `workspaceSources`.
pub(crate) fn read<'document>(
    reader: &Reader<'document>,
    node: &'document Node,
) -> Result<Vec<WorkspaceSource>, ManifestError> {
    const KEYS: [&str; 6] = ["id", "ref", "mountPath", "writable", "required", "subpath"];
    let mut sources: Vec<WorkspaceSource> = Vec::new();
    for item in reader.list(node)? {
        reader.known_map(item, &KEYS)?;
        let id = reader.required(item, "id")?;
        let mount_path = reader.required(item, "mountPath")?;
        let flag = |name: &str, default: bool| {
            item.get(name)
                .map_or(Ok(default), |value| reader.boolean(value))
        };
        let source = WorkspaceSource {
            id: reader.name(id)?.to_owned(),
            reference: reader.name(reader.required(item, "ref")?)?.to_owned(),
            target: read_target(reader, mount_path)?,
            writable: flag("writable", false)?,
            required: flag("required", true)?,
            subpath: item
                .get("subpath")
                .map(|path| reader.path(path))
                .transpose()?,
            source: reader.pointer(item),
        };
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
                return Err(reader.error(
                    node,
                    Problem::Duplicate {
                        found: crate::spec::document::excerpt(found),
                        first: earlier.source.clone(),
                    },
                ));
            }
        }
        sources.push(source);
    }
    Ok(sources)
}
