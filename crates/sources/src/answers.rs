//! JSON that others wrote: a process without rights parses it.

use serde::de::DeserializeOwned;
use serde_json::Value;

use spec::document::Format;

/// Parses `text`.
///
/// # Errors
/// What is wrong with it. The text may quote it.
pub(crate) fn parse(text: &[u8]) -> Result<Value, String> {
    let root = reader::parse_document(text, Format::Json);
    root.and_then(|root| root.to_json())
        .map_err(|error| error.to_string())
}

/// Parses `text` as a `T`.
///
/// # Errors
/// As [`parse`].
pub(crate) fn parse_as<T: DeserializeOwned>(text: &[u8]) -> Result<T, String> {
    serde_json::from_value(parse(text)?).map_err(|error| error.to_string())
}
