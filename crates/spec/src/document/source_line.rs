//! The line of a text that an error is about.

use crate::credential::may_hold_credential;
use crate::document::Place;
use crate::path::is_hidden;

/// Most columns on each side of the place, characters counted as they are escaped.
const SIDE_COLUMNS_MAX: usize = 40;

/// The line of a text that an error is about, safe for a terminal: control and invisible characters are
/// escaped, and of a long line only the surroundings of the place are kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourceLine {
    /// Counted from 1.
    pub number: u32,
    pub text: String,
    /// The byte of `text` at which the error is; its length: after the last character.
    pub at: usize,
}

impl SourceLine {
    /// Finds the line of `place`. `None`: the text has no such place, the line is blank or may hold a
    /// credential, or a carriage return alone ends a line: formats count such lines differently.
    #[must_use]
    pub fn find(text: &[u8], place: Place) -> Option<Self> {
        let text = text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(text);
        let text = String::from_utf8_lossy(text);
        if text.split("\r\n").any(|part| part.contains('\r')) {
            return None;
        }
        let line = usize::try_from(place.line).ok()?.checked_sub(1)?;
        let column = usize::try_from(place.column).ok()?.checked_sub(1)?;
        if may_hold_credential(&text, line) {
            return None;
        }
        let found = text.split('\n').nth(line)?;
        let found = found.strip_suffix('\r').unwrap_or(found);
        if found.trim().is_empty() || column > found.chars().count() {
            return None;
        }
        let at = found
            .char_indices()
            .nth(column)
            .map_or(found.len(), |(at, _)| at);
        let (before, after) = found.split_at(at);
        let mut reversed = take_columns(before.chars().rev());
        reversed.reverse();
        let before = reversed.concat();
        Some(Self {
            number: place.line,
            at: before.len(),
            text: before + &take_columns(after.chars()).concat(),
        })
    }
}

/// The first characters, each escaped, and `…` if there are more than fit.
fn take_columns(characters: impl Iterator<Item = char>) -> Vec<String> {
    let mut taken = Vec::new();
    let mut columns = 0;
    for character in characters {
        let shown = match character {
            '\t' => "\\t".to_owned(),
            hidden if is_hidden(hidden) => hidden.escape_unicode().to_string(),
            plain => plain.to_string(),
        };
        columns += shown.chars().count();
        if columns > SIDE_COLUMNS_MAX {
            taken.push("…".to_owned());
            break;
        }
        taken.push(shown);
    }
    taken
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn no_text_panics_or_shows_what_a_terminal_would_obey(
            text in "(?s)([a-z:\\-\" ]|\\PC|.){0,200}",
            line in 0..4_u32,
            column in 0..220_u32,
        ) {
            if let Some(found) = SourceLine::find(text.as_bytes(), Place { line, column }) {
                prop_assert!(found.text.is_char_boundary(found.at));
                prop_assert!(!found.text.chars().any(is_hidden));
                prop_assert!(found.text.chars().count() <= 2 * (SIDE_COLUMNS_MAX + 1));
            }
        }
    }

    fn find(text: &str, line: u32, column: u32) -> Option<(String, usize)> {
        let found = SourceLine::find(text.as_bytes(), Place { line, column })?;
        assert_eq!(found.number, line);
        assert!(found.text.is_char_boundary(found.at), "{found:?}");
        Some((found.text, found.at))
    }

    fn line(text: &str, at: usize) -> Option<(String, usize)> {
        Some((text.to_owned(), at))
    }

    #[test]
    fn the_line_of_a_place_is_found() {
        for (text, place, expected) in [
            ("a: 1\nb: x\n", (2, 4), line("b: x", 3)),
            ("a: 1\r\nb: x\r\n", (2, 1), line("b: x", 0)),
            ("\u{feff}a: 1", (1, 1), line("a: 1", 0)),
            ("é: 1", (1, 4), line("é: 1", 4)),
            // After the last character.
            ("a: [", (1, 5), line("a: [", 4)),
            ("a: [", (1, 6), None),
            ("a: [\n\nb", (2, 1), None),
            ("a: 1\n", (3, 1), None),
            ("a: 1\rb: 2\n", (1, 1), None),
            ("a: 1", (0, 1), None),
            ("a: 1", (1, 0), None),
        ] {
            assert_eq!(find(text, place.0, place.1), expected, "{text:?} {place:?}");
        }
        let invalid = SourceLine::find(b"a: \xff x", Place { line: 1, column: 4 });
        assert_eq!(invalid.expect("a line").text, "a: \u{fffd} x");
    }

    #[test]
    fn control_and_invisible_characters_are_escaped() {
        let hostile = "a\t\u{1b}[31m\u{202e}b\u{200b}: 1";
        let (text, at) = find(hostile, 1, 9).expect("a line");
        assert_eq!(text, "a\\t\\u{1b}[31m\\u{202e}b\\u{200b}: 1");
        assert!(text[at..].starts_with('b'), "{text} {at}");
        assert!(!text.chars().any(is_hidden));
    }

    #[test]
    fn of_a_long_line_the_surroundings_are_kept() {
        let long = format!("{}X{}", "é".repeat(500_000), "\u{202e}".repeat(500_000));
        let (text, at) = find(&long, 1, 500_001).expect("a line");
        assert!(text.starts_with("…é") && text.ends_with("}…"), "{text}");
        assert!(text[at..].starts_with('X'), "{text}");
        assert!(text.chars().count() <= 2 * (SIDE_COLUMNS_MAX + 1), "{text}");
    }

    #[test]
    fn a_line_that_may_hold_a_credential_is_not_repeated() {
        for (text, line) in [
            ("api_key: hunter2\n", 1),
            ("\"apiKey\" : hunter2\n", 1),
            ("{x: 1, 'db.password': hunter2}\n", 1),
            ("run: [a, ghp_0123456789abcdef]\n", 1),
            ("export TOKEN=hunter2\n", 1),
            ("password:\n  hunter2\n", 2),
            ("a: |\n  -----BEGIN KEY-----\n  x\n  abcdef\nb: 1\n", 4),
            ("secrets:\n- slug: a\n  x: hunter2\n", 3),
            (
                "{\"secrets\": [\n{\"slug\": \"a\"},\n{\"x\": \"hunter2\"}]}\n",
                3,
            ),
        ] {
            assert_eq!(find(text, line, 1), None, "{text}");
        }
        for text in [
            "api_key_ref: x",
            "keyboard: x",
            "run: main.py # token",
            "slugs: 1",
        ] {
            assert!(find(text, 1, 1).is_some(), "{text}");
        }
        assert!(find("token: x\nb: 1\nc: 2\n", 3, 1).is_some());
    }
}
