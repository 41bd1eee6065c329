//! The `mounts` of a sandbox block (AIP-36).

use crate::document::{Node, Value, excerpt};
use crate::manifest::reader::Reader;
use crate::manifest::{ManifestError, Problem};
use crate::mount_target::MountTarget;

/// An entry of `mounts`. Entries are in mount order: parents first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MountRequest {
    pub target: MountTarget,
    pub writable: bool,
    /// A storage or another workspace. The caller may provide a directory instead.
    pub is_storage: bool,
    pub source: String,
}

pub(crate) fn read_mounts<'document>(
    reader: &mut Reader<'document>,
    node: &'document Node,
) -> Result<Vec<MountRequest>, ManifestError> {
    let pointer = reader.pointer(node);
    let mut mounts: Vec<MountRequest> = Vec::new();
    for (index, item) in reader.list(node)?.iter().enumerate() {
        let mount = read_mount(reader, item, format!("{pointer}/{index}"));
        let Some(mount) = reader.keep(mount) else {
            continue;
        };
        if let Some(earlier) = mounts.iter().find(|known| known.target == mount.target) {
            let problem = Problem::Duplicate {
                found: mount.target.to_string(),
                first: earlier.source.clone(),
            };
            reader.note(reader.error(item.get("at").unwrap_or(item), problem));
        }
        mounts.push(mount);
    }
    mounts.sort_by_key(|mount| mount.target.depth());
    Ok(mounts)
}

fn read_mount<'document>(
    reader: &mut Reader<'document>,
    node: &'document Node,
    pointer: String,
) -> Result<MountRequest, ManifestError> {
    const MODES: [(&str, bool); 2] = [("read-write", true), ("read-only", false)];
    reader.entries(node, &["source", "at", "mode"])?;
    let source = reader.required(node, "source");
    let source = source.and_then(|source| Ok((source, read_mount_source(reader, source)?)));
    let target = reader.field(node, "at", |at| read_target(reader, at));
    let mode = reader.optional(node, "mode", |mode| reader.word(mode, &MODES));
    let ((target, mode), (source, is_storage)) = reader.both(reader.both(target, mode), source)?;
    let writable = mode.unwrap_or(true);
    if is_storage {
        let at = target.to_string();
        let refusal = reader.error(source, Problem::StorageUnsupported { at, writable });
        reader.refusals.push(refusal);
    }
    Ok(MountRequest {
        target,
        writable,
        is_storage,
        source: pointer,
    })
}

pub(crate) fn read_target<'document>(
    reader: &Reader<'document>,
    node: &'document Node,
) -> Result<MountTarget, ManifestError> {
    let text = reader.text(node)?;
    MountTarget::parse(text).map_err(|reason| {
        reader.error(
            node,
            Problem::MountTarget {
                found: excerpt(text),
                reason,
            },
        )
    })
}

/// Reads the source: `false` for `workspace`, `true` for a storage.
fn read_mount_source<'document>(
    reader: &Reader<'document>,
    node: &'document Node,
) -> Result<bool, ManifestError> {
    if let Value::Text(_) = &node.value {
        return reader.word(node, &[("workspace", false)]);
    }
    if !matches!(node.value, Value::Map(_)) {
        return Err(reader.wrong_type(node, "the text `workspace` or a map"));
    }
    let entries = reader.known_map(node, &["ref", "inline", "file"])?;
    let [(key, value)] = entries else {
        return Err(reader.wrong_type(node, "a map with one of ref, inline, file"));
    };
    if key.name == "inline" {
        reader.map(value)?;
    } else {
        reader.name(value)?;
    }
    Ok(true)
}
