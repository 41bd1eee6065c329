//! The `runner` block (AIP-17): engine, image, needs, limits.

use crate::document::{Node, excerpt};
use crate::limits::{Key, Limit};
use crate::manifest::reader::Reader;
use crate::manifest::{ManifestError, Problem, StatedLimit};

/// The engine of a `runner` block.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Engine {
    /// The host's toolchain, confined. `in-process` becomes this engine too.
    #[default]
    Subprocess,
    Sandbox,
}

/// The language of `needs`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Language {
    Node,
    Python,
    Multi,
}

/// The needs of a `runner` block.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Needs {
    pub language: Option<Language>,
    pub native: Vec<String>,
    pub npm: Vec<String>,
    pub pip: Vec<String>,
}

/// A `runner` block.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RunnerBlock {
    pub engine: Engine,
    pub downgraded: bool,
    pub image: Option<String>,
    pub needs: Needs,
    pub limits: Vec<StatedLimit>,
}

const KEYS: [&str; 4] = ["engine", "image", "needs", "limits"];
/// More keys of a block in a document of its own, as for sandboxes (AIP-36).
const STANDALONE_KEYS: [&str; 3] = ["schema", "id", "version"];

/// Reads the block of the key `name`.
pub fn read<'document>(
    reader: &mut Reader<'document>,
    node: &'document Node,
    name: &str,
) -> Result<RunnerBlock, ManifestError> {
    let node = reader.block(node, "runner")?;
    let mut block = RunnerBlock::default();
    let standalone = [&KEYS[..], &STANDALONE_KEYS[..]].concat();
    let known = if reader.is_document(node) {
        &standalone
    } else {
        &KEYS[..]
    };
    for (key, value) in reader.entries(node, known)? {
        let read = read_key(reader, &key.name, value, &mut block, name);
        reader.keep(read);
    }
    if let (Some(image), Engine::Subprocess) = (node.get("image"), block.engine) {
        reader.warn(
            "image_ignored",
            image,
            "an image has a meaning only with `engine: sandbox`",
        );
    }
    Ok(block)
}

fn read_key<'document>(
    reader: &mut Reader<'document>,
    key: &str,
    value: &'document Node,
    block: &mut RunnerBlock,
    name: &str,
) -> Result<(), ManifestError> {
    match key {
        "engine" => (block.engine, block.downgraded) = read_engine(reader, value)?,
        "image" => block.image = Some(read_image(reader, value)?),
        "needs" => block.needs = read_needs(reader, value)?,
        "limits" => block.limits = read_limits(reader, value, &format!("{name}.limits"))?,
        "schema" => reader.word(value, &[("runner/v1", ())])?,
        _ => {
            reader.name(value)?;
        }
    }
    Ok(())
}

pub(crate) fn read_engine<'document>(
    reader: &mut Reader<'document>,
    node: &'document Node,
) -> Result<(Engine, bool), ManifestError> {
    let words = [
        ("subprocess", (Engine::Subprocess, false)),
        ("sandbox", (Engine::Sandbox, false)),
        ("in-process", (Engine::Subprocess, true)),
    ];
    let (engine, downgraded) = reader.word(node, &words)?;
    if downgraded {
        reader.warn(
            "engine_downgraded",
            node,
            "`in-process` becomes `subprocess`: nothing runs inside the runner itself",
        );
    }
    Ok((engine, downgraded))
}

fn read_image<'document>(
    reader: &Reader<'document>,
    node: &'document Node,
) -> Result<String, ManifestError> {
    let image = reader.name(node)?;
    let plain = image
        .bytes()
        .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.'))
        && !image.starts_with(['-', '.']);
    if plain {
        Ok(image.to_owned())
    } else {
        Err(reader.error(
            node,
            Problem::WrongType {
                found: format!("the text `{}`", excerpt(image)),
                expected: "the id of a template: letters, digits, `-`, `_` and `.`".to_owned(),
                hint: Some("only `--image` may name a registry or a directory".to_owned()),
            },
        ))
    }
}

fn read_needs<'document>(
    reader: &Reader<'document>,
    node: &'document Node,
) -> Result<Needs, ManifestError> {
    const LANGUAGES: [(&str, Language); 3] = [
        ("node", Language::Node),
        ("python", Language::Python),
        ("multi", Language::Multi),
    ];
    let mut needs = Needs::default();
    for (key, value) in reader.entries(node, &["language", "native", "npm", "pip"])? {
        let list = match key.name.as_str() {
            "language" => {
                needs.language = reader.keep(reader.word(value, &LANGUAGES));
                continue;
            }
            "native" => &mut needs.native,
            "npm" => &mut needs.npm,
            _ => &mut needs.pip,
        };
        list.extend(
            reader
                .keep(read_packages(reader, value))
                .into_iter()
                .flatten(),
        );
    }
    Ok(needs)
}

/// Reads package names. A leading `-` would be an option to an installer.
fn read_packages<'document>(
    reader: &Reader<'document>,
    node: &'document Node,
) -> Result<Vec<String>, ManifestError> {
    let read = |item| {
        let name = reader.name(item)?;
        if name.starts_with('-') || name.contains(char::is_whitespace) {
            return Err(reader.wrong_type(item, "the name of a package, without spaces"));
        }
        Ok(name.to_owned())
    };
    let items = reader.list(node)?.iter();
    Ok(items.filter_map(|item| reader.keep(read(item))).collect())
}

/// The limits that a manifest states, with their keys.
pub(crate) fn limits_with_keys() -> impl Iterator<Item = (Limit, Key)> {
    let keyed = |limit: Limit| Some((limit, limit.row().key?));
    Limit::ALL.into_iter().filter_map(keyed)
}

/// The limit that the key `name` of `limits` states.
pub(crate) fn limit_of_key(name: &str) -> Option<(Limit, Key)> {
    limits_with_keys().find(|(_, key)| key.name == name)
}

/// Reads the value of `key`.
pub(crate) fn read_limit(
    reader: &Reader<'_>,
    node: &Node,
    limit: Limit,
    key: Key,
    source: String,
) -> Result<StatedLimit, ManifestError> {
    Ok(StatedLimit {
        limit,
        value: reader
            .whole_number(node, key.most)?
            .saturating_mul(key.unit),
        source,
    })
}

pub(crate) fn read_limits<'document>(
    reader: &Reader<'document>,
    node: &'document Node,
    source: &str,
) -> Result<Vec<StatedLimit>, ManifestError> {
    // What other programs call limits that are flags here.
    const ELSEWHERE: [&str; 5] = [
        "vcpus",
        "fsize",
        "output_bytes",
        "disk_mb",
        "ephemeral_storage_mb",
    ];
    let is_flag = |name: &str| ELSEWHERE.contains(&name) || Limit::of_flag(name).is_some();
    let known: Vec<&str> = limits_with_keys().map(|(_, key)| key.name).collect();
    let mut limits = Vec::new();
    for (key, value) in reader.map(node)? {
        let name = key.name.as_str();
        let Some((limit, of_limit)) = limit_of_key(name) else {
            let advice = is_flag(name).then(|| {
                let of_flags = Limit::ALL
                    .into_iter()
                    .filter(|limit| limit.row().key.is_none());
                let flags = of_flags.filter_map(|limit| limit.row().flag);
                let flags: Vec<String> = flags.map(|flag| format!("`--{}`", flag.long)).collect();
                let flags = flags.join(", ");
                format!("this limit is a flag of the command line: see {flags}")
            });
            reader.note(reader.unknown_key(node, key, &known, advice.as_deref()));
            continue;
        };
        let source = format!("{source}.{name}");
        limits.extend(reader.keep(read_limit(reader, value, limit, of_limit, source)));
    }
    Ok(limits)
}
