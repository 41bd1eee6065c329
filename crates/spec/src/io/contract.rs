//! Validates structured input and output by a JSON Schema (2020-12). Schema and document are
//! untrusted.
//!
//! Time and memory are unbounded: a schema of one kilobyte can take years and all memory. Validate
//! untrusted schemas in a separate process. The pattern engine takes linear time. `format` is an
//! annotation, not an assertion, as in the draft.

use jsonschema::error::ValidationErrorKind;
use jsonschema::{Draft, PatternOptions, ValidationError, Validator};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::document::escape_pointer_step;
use crate::io::SCHEMA_BYTES_MAX;
use crate::parse_permit::ParsePermit;
use crate::path::escape;
use crate::units::limit;

/// Largest document, in bytes.
pub const DOCUMENT_BYTES_MAX: usize = 16 << 20;
/// Deepest nesting of lists and maps.
pub const DOCUMENT_DEPTH_MAX: usize = 100;
/// Most bytes of memory that a parsed document may take, without its text. One kilobyte of
/// `[0],[0]` takes fifty kilobytes, so this limit matters more than the one on the text.
pub const DOCUMENT_MEMORY_MAX: usize = 42 << 20;

const PATTERN_BYTES_MAX: usize = 512 << 10;
/// Most mismatches of [`Contract::validate`].
pub const MISMATCHES_MAX: usize = 8;
const ALL_MISMATCHES_MAX: usize = 1_000;
const MESSAGE_CHARACTERS_MAX: usize = 240;

/// A compiled schema.
#[derive(Debug)]
pub struct Contract {
    validator: Validator,
}

/// Why a schema is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
pub enum ContractError {
    #[error("the schema has {bytes} bytes, expected at most {}", limit(.bytes_max))]
    TooLarge {
        /// Size as JSON.
        bytes: usize,
        bytes_max: usize,
    },
    #[error("the schema is written for `{found}`, expected JSON Schema 2020-12")]
    Draft {
        /// The value of `$schema`, escaped.
        found: String,
    },
    #[error("{}{reason}", at(pointer))]
    Invalid {
        /// Into the schema; empty: the whole schema.
        pointer: String,
        /// The validator's message.
        reason: String,
    },
    #[error("validation by the schema is too costly: {reason}")]
    TooCostly {
        /// The exceeded resource.
        reason: String,
    },
}

fn at(pointer: &str) -> String {
    match pointer {
        "" => String::new(),
        pointer => format!("at {pointer}: "),
    }
}

impl ContractError {
    /// Stable name of the problem.
    #[must_use]
    pub const fn code(&self) -> &'static str {
        match self {
            Self::TooCostly { .. } => "schema_too_costly",
            _ => "schema_invalid",
        }
    }

    /// A hint for the user.
    #[must_use]
    pub const fn hint(&self) -> &'static str {
        match self {
            Self::TooLarge { .. } | Self::TooCostly { .. } => {
                "make the schema smaller, with fewer references and patterns, or the document"
            }
            Self::Draft { .. } => "remove `$schema`, or write it for 2020-12",
            Self::Invalid { .. } => {
                "references lead to a part of the same schema, and nothing is fetched; patterns have \
                 no look-around and no back-references; see json-schema.org"
            }
        }
    }
}

/// A part of a document that the schema does not accept.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mismatch {
    /// Escaped and shortened, like the message.
    pub pointer: String,
    pub message: String,
}

/// Why a text is not a document.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
pub enum ReadDocumentError {
    #[error("the document has {bytes} bytes, expected at most {}", limit(.bytes_max))]
    TooLarge { bytes: usize, bytes_max: usize },
    #[error("the document is nested deeper than {depth_max}")]
    TooDeep { depth_max: usize },
    #[error("the document would take more than {} of memory", limit(.memory_max))]
    TooMuch { memory_max: usize },
    /// An integer that the parser would change.
    #[error("the whole number {found} at byte {at} needs more than 64 bits: write it as text")]
    WideInteger { found: String, at: usize },
    #[error("not JSON: {reason}")]
    Syntax {
        /// The parser's message, with line and column.
        reason: String,
    },
    /// The process that parses the text gave no answer that can be used.
    #[error("could not be parsed: {reason}")]
    Reader { reason: String },
}

impl Contract {
    /// Compiles a schema.
    ///
    /// # Errors
    /// [`ContractError`].
    pub fn compile(_permit: &ParsePermit, schema: &Value) -> Result<Self, ContractError> {
        let bytes = schema.to_string().len();
        if bytes > SCHEMA_BYTES_MAX {
            return Err(ContractError::TooLarge {
                bytes,
                bytes_max: SCHEMA_BYTES_MAX,
            });
        }
        let draft = schema.get("$schema").and_then(Value::as_str);
        let known = "https://json-schema.org/draft/2020-12/schema";
        if let Some(found) = draft.filter(|draft| draft.trim_end_matches('#') != known) {
            return Err(ContractError::Draft {
                found: shorten(found),
            });
        }
        let patterns = PatternOptions::regex()
            .size_limit(PATTERN_BYTES_MAX)
            .dfa_size_limit(PATTERN_BYTES_MAX);
        let validator = jsonschema::options()
            .with_draft(Draft::Draft202012)
            .with_pattern_options(patterns)
            .offline()
            .build(schema)
            .map_err(|error| ContractError::Invalid {
                pointer: shorten(error.instance_path().as_str()),
                reason: shorten(&error.to_string()),
            })?;
        Ok(Self { validator })
    }

    /// Validates a document from [`read_document`], or a smaller one. Returns the first mismatches.
    pub fn validate(&self, document: &Value) -> Result<(), Vec<Mismatch>> {
        self.validate_up_to(document, MISMATCHES_MAX)
    }

    /// Like [`Contract::validate`], but returns up to 1,000 mismatches, in the order of the schema.
    pub(crate) fn validate_all(&self, document: &Value) -> Result<(), Vec<Mismatch>> {
        self.validate_up_to(document, ALL_MISMATCHES_MAX)
    }

    fn validate_up_to(&self, document: &Value, count_max: usize) -> Result<(), Vec<Mismatch>> {
        if self.validator.is_valid(document) {
            return Ok(());
        }
        let mismatches: Vec<Mismatch> = self
            .validator
            .iter_errors(document)
            .flat_map(|error| at_fields(&error))
            .take(count_max)
            .collect();
        if mismatches.is_empty() {
            return Err(vec![Mismatch {
                pointer: String::new(),
                message: "does not match".to_owned(),
            }]);
        }
        Err(mismatches)
    }
}

/// The mismatches of `error`. Missing and unknown fields have their own pointer, not that of the map
/// around them.
fn at_fields(error: &ValidationError<'_>) -> Vec<Mismatch> {
    let at = error.instance_path().as_str();
    let below = |name: &str| format!("{at}/{}", escape_pointer_step(name));
    let pointers = match error.kind() {
        ValidationErrorKind::Required { property } => {
            vec![below(property.as_str().unwrap_or_default())]
        }
        ValidationErrorKind::AdditionalProperties { unexpected }
        | ValidationErrorKind::UnevaluatedProperties { unexpected } => {
            unexpected.iter().map(|name| below(name)).collect()
        }
        _ => vec![at.to_owned()],
    };
    let message = shorten(&error.to_string());
    pointers
        .into_iter()
        .map(|pointer| Mismatch {
            pointer: shorten(&pointer),
            message: message.clone(),
        })
        .collect()
}

fn shorten(text: &str) -> String {
    let short: String = text.chars().take(MESSAGE_CHARACTERS_MAX).collect();
    let more = if short.len() < text.len() { "…" } else { "" };
    format!("{}{more}", escape(short.as_bytes()))
}

/// Parses a structured input or output as JSON. Limits are checked before memory is allocated: the
/// value takes at most `memory_max` bytes, and at most [`DOCUMENT_MEMORY_MAX`].
pub fn read_document(
    _permit: &ParsePermit,
    text: &[u8],
    memory_max: usize,
) -> Result<Value, ReadDocumentError> {
    if text.len() > DOCUMENT_BYTES_MAX {
        return Err(ReadDocumentError::TooLarge {
            bytes: text.len(),
            bytes_max: DOCUMENT_BYTES_MAX,
        });
    }
    check_size(text, memory_max.min(DOCUMENT_MEMORY_MAX))?;
    let value = serde_json::from_slice(text).map_err(|error| ReadDocumentError::Syntax {
        reason: error.to_string(),
    })?;
    match wide_integer(text) {
        Some((at, digits)) => Err(ReadDocumentError::WideInteger {
            found: shorten(&String::from_utf8_lossy(digits)),
            at,
        }),
        None => Ok(value),
    }
}

/// The first integer that does not fit 64 bits. The parser would change it silently.
fn wide_integer(text: &[u8]) -> Option<(usize, &[u8])> {
    let mut at = 0;
    while let Some(byte) = text.get(at) {
        let rest = text.get(at..)?;
        match byte {
            b'"' => at += length_of_text(rest),
            b'-' | b'0'..=b'9' => {
                let is_of_number = |byte: &u8| byte.is_ascii_digit() || b"+-.eE".contains(byte);
                let length = rest.iter().take_while(|byte| is_of_number(byte)).count();
                let number = rest.get(..length)?;
                let is_whole = !number.iter().any(|byte| b".eE".contains(byte));
                // Every integer of at most 18 digits fits.
                if is_whole && length > 18 {
                    let digits = std::str::from_utf8(number).ok()?;
                    if digits.parse::<i64>().is_err() && digits.parse::<u64>().is_err() {
                        return Some((at, number));
                    }
                }
                at += length;
            }
            _ => at += 1,
        }
    }
    None
}

/// Length in bytes of the JSON string at the start of `rest`, with its quotes.
fn length_of_text(rest: &[u8]) -> usize {
    let mut escaped = false;
    for (at, byte) in rest.iter().enumerate().skip(1) {
        match byte {
            b'"' if !escaped => return at + 1,
            b'\\' => escaped = !escaped,
            _ => escaped = false,
        }
    }
    rest.len()
}

/// Upper estimates of the memory of a document's parts, in bytes.
mod memory_of {
    use serde_json::Value;

    pub(super) const PLACE: usize = size_of::<Value>();
    /// Smallest block of the allocator: a short text.
    pub(super) const PIECE: usize = 32;
    pub(super) const KEY: usize = 64;
    /// The first push of a list reserves four places.
    pub(super) const LIST: usize = 4 * PLACE + PIECE;
    /// The first insert of a map reserves four entries and a table.
    pub(super) const MAP: usize = 4 * (PLACE + KEY) + 4 * PIECE;
}

/// Checks depth and memory of the document before it is parsed.
fn check_size(text: &[u8], memory_max: usize) -> Result<(), ReadDocumentError> {
    let (mut depth, mut memory): (usize, usize) = (0, memory_of::PLACE);
    let (mut in_text, mut escaped) = (false, false);
    for byte in text {
        if in_text {
            memory += 1;
            in_text = escaped || *byte != b'"';
            escaped = !escaped && *byte == b'\\';
            continue;
        }
        match byte {
            b'"' => {
                in_text = true;
                memory += memory_of::PIECE;
            }
            b'[' => {
                depth += 1;
                memory += memory_of::LIST;
            }
            b'{' => {
                depth += 1;
                memory += memory_of::MAP;
            }
            b']' | b'}' => depth = depth.saturating_sub(1),
            b',' => memory += memory_of::PLACE,
            b':' => memory += memory_of::KEY,
            _ => (),
        }
        if depth > DOCUMENT_DEPTH_MAX {
            return Err(ReadDocumentError::TooDeep {
                depth_max: DOCUMENT_DEPTH_MAX,
            });
        }
        if memory > memory_max {
            return Err(ReadDocumentError::TooMuch { memory_max });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parse_permit::PERMIT;
    use serde_json::json;

    #[test]
    fn an_error_of_a_schema_starts_with_its_pointer() {
        for (schema, start) in [
            (
                json!({"$ref": "https://example.org/x"}),
                "Resource 'https://example.org/x'",
            ),
            (json!(7), "7 is not of types"),
            (
                json!({"properties": {"a": {"type": "strin"}}}),
                "at /properties/a/type: \"strin\"",
            ),
        ] {
            let error = Contract::compile(&PERMIT, &schema)
                .expect_err("invalid")
                .to_string();
            assert!(error.starts_with(start), "{error}");
        }
    }
}
