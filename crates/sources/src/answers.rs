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
use sys::allocator::keep_from_children;

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

/// Parses `text`, which has a credential, as a `T`. No process but the one that parses it, which is sent it,
/// has it.
///
/// # Errors
/// As [`parse_large`].
pub(crate) fn parse_secret<T: DeserializeOwned>(text: &[u8]) -> Result<T, String> {
    keep_from_children(|| {
        serde_json::from_value(parse_large(text)?).map_err(|error| error.to_string())
    })
}

/// Parses `text` within the limits of documents of a body: 16 MiB of text, 42 MiB of memory.
///
/// # Errors
/// What is wrong with it. The text may quote it.
pub(crate) fn parse_large(text: &[u8]) -> Result<Value, String> {
    reader::parse_json(&mut &*text, DOCUMENT_MEMORY_MAX, WaitLimit::default()).map_err(|unparsed| {
        match unparsed {
            Unparsed::Document(ReadDocumentError::Syntax { reason }) => reason,
            Unparsed::Document(error) => error.to_string(),
            Unparsed::Cancelled(_) => Errno::CANCELED.to_string(),
            Unparsed::Host(errno) => format!("its reader could not be started: {errno}"),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A-61.
    #[test]
    fn what_would_take_the_stack_or_the_memory_is_refused() {
        let deep = "[".repeat(4 << 20);
        let wide = format!("[{}0]", "[0],".repeat(1 << 20));
        for (text, expected) in [
            (&deep[..], "nested deeper than 100"),
            (&wide, "would take more than 42 MiB of memory"),
            ("[1", "EOF while parsing a list at line 1 column 2"),
        ] {
            let problem = parse_large(text.as_bytes()).expect_err("refused");
            assert!(problem.contains(expected), "{problem}");
        }
        assert!(parse(deep.as_bytes()).is_err());
    }

    #[test]
    fn the_longest_list_of_references_is_parsed() {
        let url = "https://api.github.com/repos/organisation/repository/git/refs/tags/v1.2.3";
        let one = format!(
            r#"{{"ref":"refs/tags/v1.2.3","node_id":"{}","url":"{url}","object":{{"sha":"{}","type":"commit","url":"{url}"}}}}"#,
            "x".repeat(40),
            "0".repeat(40)
        );
        let count = (4 << 20) / (one.len() + 1) - 1;
        let text = format!("[{}{one}]", format!("{one},").repeat(count - 1));
        let list = parse_large(text.as_bytes()).expect("a list");
        assert_eq!(list.as_array().map(Vec::len), Some(count));
    }
}
