//! Why a text is not a document.

use serde::{Deserialize, Serialize};

use crate::document::Place;
use crate::path::escape;
use crate::units::limit;

const EXCERPT_CHARACTERS_MAX: usize = 60;

/// Why a text is not a document, and where.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{problem}")]
pub struct DocumentError {
    pub place: Option<Place>,
    pub problem: DocumentProblem,
}

impl DocumentError {
    pub(super) const fn new(place: Option<Place>, problem: DocumentProblem) -> Self {
        Self { place, problem }
    }
}

/// Why a text is not a document.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum DocumentProblem {
    /// The process that parses the text gave no answer that can be used.
    #[error("could not be parsed: {reason}")]
    Reader { reason: String },
    #[error("found {bytes} bytes, expected at most {}", limit(.bytes_max))]
    TooLarge { bytes: usize, bytes_max: usize },
    /// A byte order mark of UTF-16 or UTF-32.
    #[error("found UTF-16 or UTF-32, expected UTF-8")]
    OtherEncoding,
    #[error("found the byte 0x{byte:02x}, which is not UTF-8 here")]
    NotUtf8 { byte: u8 },
    #[error("found a NUL character")]
    NulCharacter,
    #[error("{reason}")]
    Syntax { reason: String },
    /// The parser's message for a known mistake.
    #[error("{reason}")]
    Mistake { reason: String, hint: String },
    #[error("found nothing but white space or comments, expected a map")]
    Empty,
    #[error("found a second document, expected one")]
    SecondDocument,
    #[error("lists and maps are nested deeper than {depth_max}")]
    TooDeep { depth_max: usize },
    #[error("has more than {values_max} values or {}, with aliases expanded", limit(.bytes_max))]
    TooMuch { values_max: usize, bytes_max: usize },
    #[error("the alias is inside the value that it names")]
    AliasCycle,
    #[error("duplicate key `{name}` in this map, first at {first}")]
    DuplicateKey { name: String, first: Place },
    #[error("found the tag `{tag}`, expected a value without a tag")]
    Tag { tag: String },
    #[error("found the merge key `<<`, which YAML 1.2 does not have")]
    MergeKey,
    #[error("found {found} as a key, expected text")]
    KeyNotText { found: String },
    #[error("found `{found}`, which YAML parsers read as different numbers")]
    AmbiguousNumber { found: String },
    #[error("found `{found}`, expected a finite number")]
    NotFinite { found: String },
    #[error("the number `{found}` does not fit into 64 bits")]
    NumberOutOfRange { found: String },
    #[error("the first line is not `---`")]
    NoFrontMatter,
    #[error("the front matter is not closed by a line `---`")]
    FrontMatterUnclosed,
}

impl DocumentProblem {
    /// Stable name of the problem.
    #[must_use]
    pub const fn code(&self) -> &'static str {
        match self {
            Self::Reader { .. } => "manifest_unparsed",
            Self::TooLarge { .. } => "manifest_too_large",
            Self::OtherEncoding | Self::NotUtf8 { .. } => "manifest_not_utf8",
            Self::NulCharacter => "manifest_nul_character",
            Self::Syntax { .. } | Self::Mistake { .. } => "manifest_syntax",
            Self::Empty => "manifest_empty",
            Self::SecondDocument => "manifest_second_document",
            Self::TooDeep { .. } => "manifest_too_deep",
            Self::TooMuch { .. } => "manifest_too_much",
            Self::AliasCycle => "alias_cycle",
            Self::DuplicateKey { .. } => "duplicate_key",
            Self::Tag { .. } => "tag_refused",
            Self::MergeKey => "merge_key_refused",
            Self::KeyNotText { .. } => "key_not_text",
            Self::AmbiguousNumber { .. } => "ambiguous_number",
            Self::NotFinite { .. } => "number_not_finite",
            Self::NumberOutOfRange { .. } => "number_out_of_range",
            Self::NoFrontMatter | Self::FrontMatterUnclosed => "front_matter_missing",
        }
    }

    /// A hint for the user.
    #[must_use]
    pub fn hint(&self) -> Option<&str> {
        match self {
            Self::TooLarge { .. } | Self::TooMuch { .. } => {
                Some("put large data into a file of the bundle")
            }
            Self::OtherEncoding | Self::NotUtf8 { .. } => Some("save the file as UTF-8"),
            Self::NulCharacter => Some("remove the NUL character"),
            Self::Reader { .. } | Self::Syntax { .. } | Self::TooDeep { .. } => None,
            Self::Mistake { hint, .. } => Some(hint),
            Self::Empty => Some("write a map; a manifest has at least `run: PROGRAM`"),
            Self::SecondDocument => Some("remove everything from the second `---` on"),
            Self::AliasCycle | Self::MergeKey => Some("write the values out"),
            Self::DuplicateKey { .. } => Some("remove one of the two"),
            Self::Tag { .. } => Some("remove the tag; put text that looks like a number in quotes"),
            Self::KeyNotText { .. } => Some("put the key in quotes"),
            Self::AmbiguousNumber { .. } => {
                Some("write a plain decimal number, or put the text in quotes")
            }
            Self::NotFinite { .. } => Some("write a finite number, or put the text in quotes"),
            Self::NumberOutOfRange { .. } => Some("write a smaller number, or put it in quotes"),
            Self::NoFrontMatter => {
                Some("start the file with a line `---`, its keys, and a line `---`")
            }
            Self::FrontMatterUnclosed => Some("write a line `---` after the keys"),
        }
    }
}

/// An excerpt of the document for messages: escaped, at most 60 characters.
#[must_use]
pub fn excerpt(text: &str) -> String {
    let short: String = text.chars().take(EXCERPT_CHARACTERS_MAX).collect();
    let more = if short.len() < text.len() { "…" } else { "" };
    format!("{}{more}", escape(short.as_bytes()))
}
