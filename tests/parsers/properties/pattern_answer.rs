//! The answers of the process that matches patterns.

use bundler::matching::{read_pattern_answer, read_verdicts};

/// What is accepted is a count, an error that may be shown, or as many verdicts as there are names.
pub(crate) fn check(bytes: &[u8]) {
    accepts(bytes);
}

/// Whether it is an answer about a pattern, or about names.
pub(crate) fn accepts(bytes: &[u8]) -> bool {
    let of_pattern = read_pattern_answer(bytes);
    if let Some(Err((line, reason))) = &of_pattern {
        assert_ne!(*line, Some(0));
        assert!(!reason.contains(char::is_control), "{reason:?}");
    }
    let names = bytes.len();
    let verdicts = read_verdicts(bytes, names);
    assert!(verdicts.as_ref().is_none_or(|read| read.len() == names));
    assert_eq!(read_verdicts(bytes, names + 1), None);
    of_pattern.is_some() || verdicts.is_some()
}
