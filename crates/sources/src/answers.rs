//! JSON that others wrote: a process without rights parses it.
//!
//! [`parse`] is strict, for what identifies something: no key twice, and small. [`parse_large`] takes lists
//! of thousands of objects, of which a reader looks for one.

use serde::de::DeserializeOwned;
use serde_json::Value;

use reader::{Unparsed, WaitLimit};
use rustix::io::Errno;
use spec::document::Format;
use spec::io::ReadDocumentError;
use spec::io::contract::DOCUMENT_MEMORY_MAX;

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

/// Parses `text` within the limits of documents of a body: 16 MiB of text, 42 MiB of memory.
///
/// # Errors
/// What is wrong with it. The text may quote it.
pub(crate) fn parse_large(text: &[u8]) -> Result<Value, String> {
    reader::parse_json(text, DOCUMENT_MEMORY_MAX, WaitLimit::default()).map_err(|unparsed| {
        match unparsed {
            Unparsed::Document(ReadDocumentError::Syntax { reason }) => reason,
            Unparsed::Document(error) => error.to_string(),
            Unparsed::Cancelled(_) => Errno::CANCELED.to_string(),
            Unparsed::Host(errno) => format!("its reader could not be started: {errno}"),
        }
    })
}
