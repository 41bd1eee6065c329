//! The answer of the process that validates by JSON Schemas.

use reader::{Refused, read_schema_answer};

/// What is accepted has as many verdicts as were asked for, and errors that may be shown.
pub(crate) fn check(bytes: &[u8]) {
    let one = read_schema_answer(bytes, &["inputs"]);
    let two = read_schema_answer(bytes, &["inputs", "outputs"]);
    assert!(one.is_none() || two.is_none());
    match one.or(two) {
        Some(Err(Refused::Schema { error, .. })) => super::assert_plain(&error.to_string()),
        Some(Err(Refused::Document(found))) => {
            assert!((1..=8).contains(&found.len()));
            for mismatch in found {
                super::assert_plain(&mismatch.pointer);
                super::assert_plain(&mismatch.message);
            }
        }
        Some(Err(refused)) => panic!("{refused:?}"),
        Some(Ok(())) | None => (),
    }
}
