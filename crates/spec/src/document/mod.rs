//! Parses a document to a tree. Every value and key has its line and column.
//!
//! Three formats give the same tree: YAML 1.2 (core schema), strict JSON (RFC 8259), and YAML front
//! matter between two `---` lines of a Markdown file.
//!
//! Refused: more than one YAML document, tags, merge keys (`<<`, YAML 1.1), directives, duplicate
//! keys, keys that are not text, numbers that parsers read differently (`010`, `0x10`, `+1`, `.5`),
//! numbers that are not finite, and encodings other than UTF-8. `no`, `on`, `1_000` and `12:30:00`
//! are text, as in YAML 1.2. A UTF-8 byte order mark at the start is skipped: editors write one.

mod budget;
mod flat;
mod json;
mod mistake;
mod place;
mod problem;
mod read;
mod source_line;
mod yaml;

pub use flat::{FlatNode, flatten, restore};
pub use place::Place;
pub use problem::{DocumentError, DocumentProblem, excerpt};
pub use read::{ReadError, ReadProblem};
pub(crate) use read::{from_node, nullable};
pub use source_line::SourceLine;

use crate::parse_permit::ParsePermit;

/// Longest text, in bytes.
pub const TEXT_BYTES_MAX: usize = 1 << 20;
/// Most values in one document, counted after alias expansion.
pub(crate) const VALUES_MAX: usize = 20_000;
/// Deepest nesting of lists and maps.
pub const DEPTH_MAX: usize = 64;
/// Most bytes of text in one document, counted after alias expansion.
pub(crate) const EXPANDED_BYTES_MAX: usize = 4 << 20;

/// The format of a document.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    Yaml,
    Json,
    FrontMatter,
}

/// A value and its place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Node {
    /// Start of the value. For a YAML alias: start of the alias.
    pub place: Place,
    pub value: Value,
}

/// A value of a document.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Value {
    Null,
    Bool(bool),
    /// As written, in the grammar of JSON: finite, decimal, no leading zero.
    Number(String),
    Text(String),
    List(Vec<Node>),
    /// In the order of the text; names are unique.
    Map(Vec<(Key, Node)>),
}

/// The name of a map entry and its place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Key {
    pub name: String,
    pub place: Place,
}

/// Parses a document.
///
/// # Errors
/// [`DocumentError`] with the place of the first error.
pub fn parse(_permit: &ParsePermit, text: &[u8], format: Format) -> Result<Node, DocumentError> {
    check_size(text)?;
    let text = decode(text)?;
    let root = match format {
        Format::Yaml => yaml::parse(text, 0)?,
        Format::Json => json::parse(text)?,
        Format::FrontMatter => {
            let (head, lines_before) = front_matter(text)?;
            yaml::parse(head, lines_before)?
        }
    };
    if root.value == Value::Null {
        return Err(DocumentError::new(Some(root.place), DocumentProblem::Empty));
    }
    Ok(root)
}

/// Refuses a text that [`parse`] refuses unseen.
///
/// # Errors
/// It is too large.
pub fn check_size(text: &[u8]) -> Result<(), DocumentError> {
    if text.len() > TEXT_BYTES_MAX {
        let problem = DocumentProblem::TooLarge {
            bytes: text.len(),
            bytes_max: TEXT_BYTES_MAX,
        };
        return Err(DocumentError::new(None, problem));
    }
    Ok(())
}

fn decode(bytes: &[u8]) -> Result<&str, DocumentError> {
    let utf_16_or_32 = [&b"\xff\xfe"[..], b"\xfe\xff", b"\0\0\xfe\xff"]
        .iter()
        .any(|mark| bytes.starts_with(mark));
    if utf_16_or_32 {
        return Err(DocumentError::new(
            Some(Place::START),
            DocumentProblem::OtherEncoding,
        ));
    }
    let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
    match str::from_utf8(bytes) {
        Ok(text) => match text.find('\0') {
            Some(at) => Err(DocumentError::new(
                Some(Place::after(&text[..at])),
                DocumentProblem::NulCharacter,
            )),
            None => Ok(text),
        },
        Err(error) => {
            let (valid, rest) = bytes.split_at(error.valid_up_to());
            Err(DocumentError::new(
                Some(Place::after(&String::from_utf8_lossy(valid))),
                DocumentProblem::NotUtf8 {
                    byte: rest.first().copied().unwrap_or(0),
                },
            ))
        }
    }
}

/// The text between the two `---` lines, and the number of lines before it.
fn front_matter(text: &str) -> Result<(&str, u32), DocumentError> {
    let mut lines = text.split_inclusive('\n');
    let first = lines.next().unwrap_or_default();
    if first.trim_end() != "---" {
        return Err(DocumentError::new(
            Some(Place::START),
            DocumentProblem::NoFrontMatter,
        ));
    }
    let rest = &text[first.len()..];
    let mut end = 0;
    for line in lines {
        if line.trim_end() == "---" {
            return Ok((&rest[..end], 1));
        }
        end += line.len();
    }
    Err(DocumentError::new(
        Some(Place::START),
        DocumentProblem::FrontMatterUnclosed,
    ))
}

impl Node {
    /// The JSON Pointer (RFC 6901) of `target` below this node; `None`: `target` is not part of it.
    ///
    /// Nodes are compared by identity. Pointers are computed on demand: stored in every node they
    /// would multiply the memory of a small hostile text.
    #[must_use]
    pub(crate) fn pointer_to(&self, target: &Self) -> Option<String> {
        if std::ptr::eq(self, target) {
            return Some(String::new());
        }
        match &self.value {
            Value::List(items) => items.iter().enumerate().find_map(|(index, item)| {
                let below = item.pointer_to(target)?;
                Some(format!("/{index}{below}"))
            }),
            Value::Map(entries) => entries.iter().find_map(|(key, value)| {
                let below = value.pointer_to(target)?;
                Some(format!("/{}{below}", pointer_step(&key.name)))
            }),
            _ => None,
        }
    }

    /// The value of `name`, if this is a map.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Self> {
        self.entry(name).map(|(_, node)| node)
    }

    /// One step of a JSON Pointer: the entry of a map, or the item of a list.
    #[must_use]
    pub fn child(&self, step: &str) -> Option<&Self> {
        match &self.value {
            Value::List(items) => items.get(step.parse::<usize>().ok()?),
            _ => self.get(step),
        }
    }

    /// The entry of `name`, if this is a map.
    #[must_use]
    pub fn entry(&self, name: &str) -> Option<(&Key, &Self)> {
        match &self.value {
            Value::Map(entries) => entries
                .iter()
                .find(|(key, _)| key.name == name)
                .map(|(key, node)| (key, node)),
            _ => None,
        }
    }

    /// Converts the value to `serde_json`.
    ///
    /// # Errors
    /// The first number that fits neither a 64-bit integer nor a finite double.
    pub fn to_json(&self) -> Result<serde_json::Value, DocumentError> {
        Ok(match &self.value {
            Value::Null => serde_json::Value::Null,
            Value::Bool(value) => serde_json::Value::Bool(*value),
            Value::Text(text) => serde_json::Value::String(text.clone()),
            Value::Number(text) => serde_json::Value::Number(self.to_json_number(text)?),
            Value::List(items) => {
                serde_json::Value::Array(items.iter().map(Self::to_json).collect::<Result<_, _>>()?)
            }
            Value::Map(entries) => serde_json::Value::Object(
                entries
                    .iter()
                    .map(|(key, node)| Ok((key.name.clone(), node.to_json()?)))
                    .collect::<Result<_, DocumentError>>()?,
            ),
        })
    }

    fn to_json_number(&self, text: &str) -> Result<serde_json::Number, DocumentError> {
        let number: Option<serde_json::Number> = text.parse().ok();
        let whole = !text.contains(['.', 'e', 'E']);
        number
            .filter(|number| !whole || !number.is_f64() || text == "-0")
            .ok_or_else(|| {
                DocumentError::new(
                    Some(self.place),
                    DocumentProblem::NumberOutOfRange {
                        found: excerpt(text),
                    },
                )
            })
    }
}

/// One step of a JSON Pointer for messages: `~` and `/` escaped as in RFC 6901, control characters
/// escaped, shortened.
#[must_use]
pub fn pointer_step(name: &str) -> String {
    excerpt(&escape_pointer_step(name))
}

/// One step of a JSON Pointer (RFC 6901), escaped.
#[must_use]
pub fn escape_pointer_step(name: &str) -> String {
    name.replace('~', "~0").replace('/', "~1")
}
