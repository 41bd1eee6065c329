//! The answer of the process that parses documents.

use reader::read_document_answer;
use spec::document::{flatten, restore};

/// What is accepted is a document within the limits, or an error that may be shown.
pub(crate) fn check(bytes: &[u8]) {
    match read_document_answer(bytes) {
        Ok(root) => {
            // It holds the limits of a document.
            assert_eq!(restore(flatten(&root)).as_ref(), Some(&root));
        }
        Err(error) => {
            // The lines of an excerpt.
            error.to_string().split('\n').for_each(super::assert_plain);
            let hint = error.problem.hint().unwrap_or_default();
            hint.split('\n').for_each(super::assert_plain);
        }
    }
}
