//! Why a text is not a document.

use crate::document::Place;
use crate::path::escape;
use crate::units::limit;

/// Characters of the document that a message repeats at most.
const EXCERPT_CHARACTERS_MAX: usize = 60;

/// Why a text is not a document, and where.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{problem}")]
pub struct DocumentError {
    /// Where, if one place is to blame.
    pub place: Option<Place>,
    pub problem: DocumentProblem,
}

impl DocumentError {
    pub(super) const fn new(place: Option<Place>, problem: DocumentProblem) -> Self {
        Self { place, problem }
    }
}

/// Why a text is not a document.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DocumentProblem {
    /// Longer than [`super::TEXT_BYTES_MAX`].
    #[error("found {bytes} bytes, expected at most {}", limit(.bytes_max))]
    TooLarge { bytes: usize, bytes_max: usize },
    /// A byte order mark of UTF-16 or UTF-32.
    #[error("found UTF-16 or UTF-32, expected UTF-8")]
    OtherEncoding,
    /// Not UTF-8.
    #[error("found the byte 0x{byte:02x}, which is not UTF-8 here")]
    NotUtf8 {
        /// The first byte that is not part of a character.
        byte: u8,
    },
    #[error("found a NUL character")]
    NulCharacter,
    /// The parser cannot read it.
    #[error("{reason}")]
    Syntax { reason: String },
    /// The parser cannot read it, and what the author did is known.
    #[error("{reason}")]
    Mistake { reason: String, hint: String },
    /// Nothing is in it.
    #[error("found nothing but white space or comments, expected a map")]
    Empty,
    /// A second YAML document.
    #[error("found a second document, expected one")]
    SecondDocument,
    /// Nested deeper than [`super::DEPTH_MAX`].
    #[error("lists and maps are nested deeper than {depth_max}")]
    TooDeep { depth_max: usize },
    /// More than `super::VALUES_MAX` values or `super::EXPANDED_BYTES_MAX` bytes of text.
    #[error("holds more than {values_max} values or {}, aliases replaced", limit(.bytes_max))]
    TooMuch {
        values_max: usize,
        /// The limit of bytes of text.
        bytes_max: usize,
    },
    /// An alias inside the value that it stands for.
    #[error("the alias is inside the value that it names")]
    AliasCycle,
    /// One name twice in a map.
    #[error("duplicate key `{name}` in this map, first at {first}")]
    DuplicateKey { name: String, first: Place },
    #[error("found the tag `{tag}`, expected a value without a tag")]
    Tag { tag: String },
    /// `<<`.
    #[error("found the merge key `<<`, which YAML 1.2 does not have")]
    MergeKey,
    /// A key that is a number, a list or something else.
    #[error("found {found} as a key, expected text")]
    KeyNotText { found: String },
    /// A number that readers of YAML disagree about.
    #[error("found `{found}`, which is not the same number to every reader of YAML")]
    AmbiguousNumber { found: String },
    /// Not a number, or infinite.
    #[error("found `{found}`, expected a finite number")]
    NotFinite { found: String },
    /// A number that 64 bits cannot hold.
    #[error("the number `{found}` does not fit into 64 bits")]
    NumberOutOfRange { found: String },
    /// A Markdown file without front matter.
    #[error("the first line is not `---`")]
    NoFrontMatter,
    /// Front matter without an end.
    #[error("the front matter is not closed by a line `---`")]
    FrontMatterUnclosed,
}

impl DocumentProblem {
    /// Stable name of the problem.
    #[must_use]
    pub const fn code(&self) -> &'static str {
        match self {
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

    /// What to do about it.
    #[must_use]
    pub fn hint(&self) -> Option<&str> {
        match self {
            Self::TooLarge { .. } | Self::TooMuch { .. } => {
                Some("put large data into a file of the bundle")
            }
            Self::OtherEncoding | Self::NotUtf8 { .. } => Some("save the file as UTF-8"),
            Self::NulCharacter => Some("remove the NUL character"),
            Self::Syntax { .. } | Self::TooDeep { .. } => None,
            Self::Mistake { hint, .. } => Some(hint),
            Self::Empty => Some("a manifest has at least `run: PROGRAM`"),
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
                Some("start the file with a line `---`, the manifest, and a line `---`")
            }
            Self::FrontMatterUnclosed => Some("end the manifest with a line `---`"),
        }
    }
}

/// Text of the document for a message: escaped and shortened.
pub(super) fn excerpt(text: &str) -> String {
    let short: String = text.chars().take(EXCERPT_CHARACTERS_MAX).collect();
    let more = if short.len() < text.len() { "…" } else { "" };
    format!("{}{more}", escape(short.as_bytes()))
}
