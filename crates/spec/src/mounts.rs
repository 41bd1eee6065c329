//! The `mounts` of a sandbox block (AIP-36).

use serde_json::{Value as Json, json};

use crate::access_mode::AccessMode;
use crate::document::{Node, Value, excerpt};
use crate::manifest::fields::{Field, Kind, object};
use crate::manifest::reader::Reader;
use crate::manifest::schema::{described, form, reference};
use crate::manifest::{ManifestError, Problem};
use crate::mount_target::MountTarget;

/// An entry of `mounts`. Entries are in mount order: parents first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MountRequest {
    pub target: MountTarget,
    pub mode: AccessMode,
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

/// The keys of an entry that were read.
struct WrittenMount {
    is_storage: Option<bool>,
    target: Option<MountTarget>,
    mode: AccessMode,
}

const DEFAULT_MODE: AccessMode = AccessMode::ReadWrite;

const FIELDS: [Field<WrittenMount>; 3] = [
    Field::required(
        "source",
        "`workspace`; storages are accepted here and refused by `exec`.",
        Kind::Other(source_schema, |reader, node, mount| {
            mount.is_storage = Some(read_mount_source(reader, node)?);
            Ok(())
        }),
    ),
    Field::required(
        "at",
        "The mount point inside.",
        Kind::Other(
            || reference("mountTarget"),
            |reader, node, mount| {
                mount.target = Some(read_target(reader, node)?);
                Ok(())
            },
        ),
    ),
    Field::new(
        "mode",
        "Whether the body may write there.",
        Kind::Other(
            || json!({"enum": AccessMode::ALL.map(AccessMode::name), "default": DEFAULT_MODE.name()}),
            |reader, node, mount| {
                let modes = AccessMode::ALL.map(|mode| (mode.name(), mode));
                mount.mode = reader.word(node, &modes)?;
                Ok(())
            },
        ),
    ),
];

pub(crate) fn schema() -> Json {
    object("One mount.", &FIELDS)
}

fn source_schema() -> Json {
    let line = |description: &str| described(description, reference("line"));
    let block = described("A storage block (AIP-35).", json!({"type": "object"}));
    json!({"oneOf": [
        {"const": "workspace"},
        form("ref", "By name.", line("A workspace or a storage of the registry.")),
        form("inline", "In the manifest.", block),
        form("file", "In a file.", line("A path.")),
    ]})
}

fn read_mount<'document>(
    reader: &mut Reader<'document>,
    node: &'document Node,
    pointer: String,
) -> Result<MountRequest, ManifestError> {
    let mut mount = WrittenMount {
        is_storage: None,
        target: None,
        mode: DEFAULT_MODE,
    };
    reader.fields(node, &FIELDS, &mut mount)?;
    let target = reader.present(node, "at", mount.target)?;
    let mode = mount.mode;
    let is_storage = mount.is_storage == Some(true);
    if is_storage {
        let at = target.to_string();
        let source = reader.required(node, "source")?;
        let refusal = reader.error(source, Problem::StorageUnsupported { at, mode });
        reader.refusals.push(refusal);
    }
    Ok(MountRequest {
        target,
        mode,
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
