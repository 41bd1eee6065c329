//! The `runner` block (AIP-17): engine, image, needs, limits.

use serde_json::json;

use crate::document::{Node, excerpt};
use crate::limits::{Key, Limit};
use crate::manifest::fields::{Field, Kind, Text, keys, object};
use crate::manifest::reader::Reader;
use crate::manifest::schema::reference;
use crate::manifest::{ManifestError, Problem, StatedLimit};

/// The engine of a `runner` block.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Engine {
    /// The host's toolchain, sandboxed. `in-process` becomes this engine too.
    #[default]
    Subprocess,
    /// A root file system of its own, from an image.
    Sandbox,
}

impl Engine {
    /// Returns the name in a manifest.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Subprocess => "subprocess",
            Self::Sandbox => "sandbox",
        }
    }
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

impl Language {
    const ALL: [Self; 3] = [Self::Node, Self::Python, Self::Multi];

    /// Returns the name in a manifest or an image template.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Node => "node",
            Self::Python => "python",
            Self::Multi => "multi",
        }
    }
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
    /// Whether `in-process` was stated.
    pub downgraded: bool,
    pub image: Option<String>,
    pub needs: Needs,
    pub limits: Vec<StatedLimit>,
}

pub(crate) const FIELDS: [Field<RunnerBlock>; 7] = [
    Field::new(
        "engine",
        "Where the process runs: `subprocess`, the host's programs; `sandbox`, a root file system \
         of its own; `in-process` becomes `subprocess`, with a warning.",
        Kind::Other(
            || json!({"enum": ENGINES.map(|(word, _)| word), "default": "subprocess"}),
            |reader, node, block| {
                (block.engine, block.downgraded) = read_engine(reader, node)?;
                Ok(())
            },
        ),
    ),
    Field::new(
        "image",
        "The id of an image template of the host; only with `engine: sandbox`. Default: the \
         cheapest that satisfies `needs`.",
        Kind::Text(&IMAGE, |block, image| block.image = Some(image)),
    ),
    Field::new(
        "needs",
        "What the body expects to find. Advisory with `engine: subprocess`.",
        Kind::Map(
            || keys(&NEEDS),
            || object("What the body expects to find.", &NEEDS),
            |reader, node, block| reader.fields(node, &NEEDS, &mut block.needs),
        ),
    ),
    Field::new(
        "limits",
        "Limits of the run.",
        Kind::Map(
            limit_keys,
            || reference("limits"),
            |reader, node, block| {
                block.limits = read_limits(reader, node, "limits")?;
                Ok(())
            },
        ),
    ),
    // As for sandboxes (AIP-36).
    Field::new(
        "schema",
        "The kind of the document.",
        Kind::OfDocument(|reader, node, _| reader.word(node, &[("runner/v1", ())])),
    ),
    Field::new("id", "The id of the document.", Kind::OfDocument(read_line)),
    Field::new(
        "version",
        "The version of the document.",
        Kind::OfDocument(read_line),
    ),
];

const NEEDS: [Field<Needs>; 4] = [
    Field::new(
        "language",
        "The language of the program.",
        Kind::Other(
            || json!({"enum": Language::ALL.map(Language::name)}),
            |reader, node, needs| {
                let languages = Language::ALL.map(|language| (language.name(), language));
                needs.language = Some(reader.word(node, &languages)?);
                Ok(())
            },
        ),
    ),
    Field::new(
        "native",
        "Packages of the operating system, by their Debian names.",
        Kind::Texts(&PACKAGE, |needs, names| needs.native = names),
    ),
    Field::new(
        "npm",
        "npm packages, `name@range`.",
        Kind::Texts(&PACKAGE, |needs, names| needs.npm = names),
    ),
    Field::new(
        "pip",
        "Python packages, `name==version`.",
        Kind::Texts(&PACKAGE, |needs, names| needs.pip = names),
    ),
];

/// The values of `engine`, and whether the engine is another one than stated.
pub(crate) const ENGINES: [(&str, (Engine, bool)); 3] = [
    (Engine::Subprocess.name(), (Engine::Subprocess, false)),
    (Engine::Sandbox.name(), (Engine::Sandbox, false)),
    (IN_PROCESS, (Engine::Subprocess, true)),
];
pub(crate) const IN_PROCESS: &str = "in-process";

static IMAGE: Text = Text {
    schema: || json!({"type": "string", "pattern": "^[A-Za-z0-9_][A-Za-z0-9._-]*$"}),
    read: read_image,
};

/// An installer reads a leading `-` as an option.
static PACKAGE: Text = Text {
    schema: || json!({"type": "string", "pattern": r"^(?!-)[^\s\x00-\x1f\x7f-\x9f]+$"}),
    read: |reader, node| {
        let name = reader.name(node)?;
        if name.starts_with('-') || name.contains(char::is_whitespace) {
            return Err(reader.wrong_type(node, "the name of a package, without spaces"));
        }
        Ok(name.to_owned())
    },
};

/// Reads the block of the key `name`.
pub(crate) fn read<'document>(
    reader: &mut Reader<'document>,
    node: &'document Node,
    name: &str,
) -> Result<RunnerBlock, ManifestError> {
    let node = reader.block(node, "runner")?;
    let mut block = RunnerBlock::default();
    let read = reader.fields(node, &FIELDS, &mut block);
    reader.keep(read);
    for limit in &mut block.limits {
        limit.source = format!("{name}.{}", limit.source);
    }
    if let (Some(image), Engine::Subprocess) = (node.get("image"), block.engine) {
        reader.warn(
            "image_ignored",
            image,
            "`image` has an effect only with `engine: sandbox`",
        );
    }
    Ok(block)
}

fn read_line<'document>(
    reader: &mut Reader<'document>,
    node: &'document Node,
    _: &mut RunnerBlock,
) -> Result<(), ManifestError> {
    reader.name(node).map(|_| ())
}

pub(crate) fn read_engine<'document>(
    reader: &mut Reader<'document>,
    node: &'document Node,
) -> Result<(Engine, bool), ManifestError> {
    let (engine, downgraded) = reader.word(node, &ENGINES)?;
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
    let is_id = image
        .bytes()
        .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.'))
        && !image.starts_with(['-', '.']);
    if is_id {
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

/// The limits that a manifest states, with their keys.
pub(crate) fn limits_with_keys() -> impl Iterator<Item = (Limit, Key)> {
    let keyed = |limit: Limit| Some((limit, limit.row().key?));
    Limit::ALL.into_iter().filter_map(keyed)
}

pub(crate) fn limit_keys() -> Vec<&'static str> {
    limits_with_keys().map(|(_, key)| key.name).collect()
}

pub(crate) fn read_limit(
    reader: &Reader<'_>,
    node: &Node,
    limit: Limit,
    source: String,
) -> Result<StatedLimit, ManifestError> {
    let Some(key) = limit.row().key else {
        return Err(reader.wrong_type(node, "a limit"));
    };
    let value = reader.whole_number(node, key.max)?.saturating_mul(key.unit);
    Ok(StatedLimit {
        limit,
        value,
        source,
    })
}

pub(crate) fn read_limits<'document>(
    reader: &Reader<'document>,
    node: &'document Node,
    source: &str,
) -> Result<Vec<StatedLimit>, ManifestError> {
    // Names that other programs have for limits that are flags here.
    const OTHER_NAMES: [&str; 5] = [
        "vcpus",
        "fsize",
        "output_bytes",
        "disk_mb",
        "ephemeral_storage_mb",
    ];
    let is_flag = |name: &str| {
        let limit = Limit::of_flag(name);
        OTHER_NAMES.contains(&name) || limit.is_some_and(|limit| limit.row().key.is_none())
    };
    let known = limit_keys();
    let mut limits = Vec::new();
    for (key, value) in reader.map(node)? {
        let name = key.name.as_str();
        let Some((limit, _)) = limits_with_keys().find(|(_, key)| key.name == name) else {
            let advice = is_flag(name).then(|| {
                let without_key = Limit::ALL
                    .into_iter()
                    .filter(|limit| limit.row().key.is_none());
                let flags = without_key.filter_map(|limit| limit.row().flag);
                let flags: Vec<String> = flags.map(|flag| format!("`--{}`", flag.long)).collect();
                let flags = flags.join(", ");
                format!("this limit is a flag of the command line: see {flags}")
            });
            reader.note(reader.unknown_key(node, key, &known, advice.as_deref()));
            continue;
        };
        let source = format!("{source}.{name}");
        limits.extend(reader.keep(read_limit(reader, value, limit, source)));
    }
    Ok(limits)
}
