//! Hints for common YAML mistakes, found where the parser failed.

use serde_saphyr::granit_parser::ErrorKind;

use crate::document::{DocumentProblem, Place, excerpt};

/// Characters that look like a space but are not one in YAML.
const OTHER_SPACES: [char; 5] = ['\u{a0}', '\u{2007}', '\u{202f}', '\u{200b}', '\u{feff}'];

fn mistake(reason: String, hint: String) -> DocumentProblem {
    DocumentProblem::Mistake { reason, hint }
}

/// Finds one of [`OTHER_SPACES`] as a separator in a plain scalar: at its start, or after a colon;
/// in a key anywhere.
pub(super) fn other_space(text: &str, is_key: bool) -> Option<DocumentProblem> {
    let separates = |(at, space): &(usize, char)| {
        OTHER_SPACES.contains(space) && (is_key || *at == 0 || text[..*at].ends_with(':'))
    };
    let (_, space) = text.char_indices().find(separates)?;
    let number = u32::from(space);
    Some(mistake(
        format!("found a non-breaking or invisible space (U+{number:04X}), expected a space"),
        "delete it and type a space".to_owned(),
    ))
}

/// Finds one of [`OTHER_SPACES`] after a colon in line `index`.
fn space_after_colon(index: usize, line: &str) -> Option<(Place, DocumentProblem)> {
    let (at, _) = line
        .match_indices(OTHER_SPACES)
        .find(|(at, _)| line[..*at].ends_with(':'))?;
    let problem = other_space(&line[at..], true)?;
    Some((place_at(index, line[..at].chars().count()), problem))
}

/// The place of a character, by line and column counted from 0.
fn place_at(line: usize, column: usize) -> Place {
    let from_1 = |number: usize| u32::try_from(number).unwrap_or(u32::MAX).saturating_add(1);
    Place {
        line: from_1(line),
        column: from_1(column),
    }
}

/// Finds the mistake for a parser error at `place`, counted from the first line of `text`.
pub(super) fn recognise(
    kind: &ErrorKind,
    text: &str,
    place: Place,
) -> Option<(Place, DocumentProblem)> {
    let lines: Vec<&str> = text.lines().collect();
    let index = usize::try_from(place.line).ok()?.checked_sub(1)?;
    let line = lines.get(index).copied().unwrap_or("");
    let column = usize::try_from(place.column).ok()?.saturating_sub(1);
    let rest: String = line.chars().skip(column).collect();
    let problem = match kind {
        ErrorKind::RecursionLimitExceeded => return None,
        ErrorKind::TabInBlockIndentation
        | ErrorKind::TabInIndentation
        | ErrorKind::TabNotAllowed
        | ErrorKind::TabInPlainScalar => mistake(
            "found a tab, expected spaces".to_owned(),
            "replace each tab by two spaces".to_owned(),
        ),
        ErrorKind::MismatchedFlowCollectionEnd { open, close } => {
            let needed = if *open == '[' { ']' } else { '}' };
            mistake(
                format!("the `{open}` here is closed by `{close}`"),
                format!("write `{needed}` before that `{close}`, or remove the extra bracket"),
            )
        }
        ErrorKind::UnknownAnchor | ErrorKind::UnexpectedCharacter { .. } => {
            let word = rest.split([',', ']', '}']).next().unwrap_or("").trim();
            let first = word.chars().next()?;
            let found = excerpt(&first.to_string());
            if first.is_control() {
                let hint = "remove it; only double quotes can have it, as an escape".to_owned();
                mistake(format!("found the control character `{found}`"), hint)
            } else {
                let hint = format!("write `'{}'`", excerpt(word));
                mistake(
                    format!("text that starts with `{found}` needs quotes"),
                    hint,
                )
            }
        }
        // The key has no value, because its colon has no space after it.
        ErrorKind::SimpleKeyExpected if space_after_colon(index, line).is_some() => {
            return space_after_colon(index, line);
        }
        ErrorKind::SimpleKeyExpected if line.trim_start().starts_with('-') => mistake(
            "found no space after `-`".to_owned(),
            format!(
                "write `- {}`",
                excerpt(line.trim_start().trim_start_matches('-'))
            ),
        ),
        ErrorKind::SimpleKeyExpected if open_at(&lines, index).is_none() => not_an_entry(line),
        ErrorKind::MappingValueNotAllowed if open_at(&lines, index).is_none() => {
            if let Some((number, above)) = not_an_entry_above(&lines, index) {
                return Some((place_at(number, indentation(above)), not_an_entry(above)));
            }
            match content(line).split_once(": ") {
                Some((key, value)) if value.contains(": ") || value.ends_with(':') => mistake(
                    "found a second `: ` in a text without quotes".to_owned(),
                    format!(
                        "put the text in quotes: `{}: '{}'`",
                        excerpt(key),
                        excerpt(&value.replace('\'', "''"))
                    ),
                ),
                _ => mistake(
                    "this line is indented more than the key above it, which already has a value"
                        .to_owned(),
                    "indent the keys of one map by the same number of spaces".to_owned(),
                ),
            }
        }
        _ => {
            let (open, sign) = open_at(&lines, index)?;
            let close = match sign {
                '[' => ']',
                '{' => '}',
                quote => quote,
            };
            let problem = mistake(
                format!("the `{sign}` is not closed"),
                format!("add `{close}` where it ends"),
            );
            return Some((open, problem));
        }
    };
    Some((place, problem))
}

/// The line without its indentation and the `- ` of list items.
fn content(line: &str) -> &str {
    let line = line.trim();
    line.strip_prefix("- ").map_or(line, content)
}

fn indentation(line: &str) -> usize {
    line.trim_end().len() - content(line).len()
}

/// The line above line `index`, if it is at the same place of the same map but has no `: `: the
/// parser takes both lines as one key.
fn not_an_entry_above<'text>(lines: &[&'text str], index: usize) -> Option<(usize, &'text str)> {
    let own = indentation(lines.get(index)?);
    let mut above = lines[..index].iter().copied().enumerate().rev();
    let (number, line) = above.find(|(_, line)| !line.trim().is_empty())?;
    let has_colon = |line: &str| line.contains(": ") || line.trim_end().ends_with(':');
    // Below `key: text`, both lines are part of the text.
    let parent = above.find(|(_, line)| !line.trim().is_empty() && indentation(line) < own);
    let is_in_map = parent.is_none_or(|(_, line)| line.trim_end().ends_with(':'));
    (indentation(line) == own && !has_colon(line) && is_in_map).then_some((number, line))
}

/// A line of a map without `: `.
fn not_an_entry(line: &str) -> DocumentProblem {
    let text = content(line);
    let hint = match text.split_once(':') {
        Some((key, value)) if !value.starts_with("//") => {
            let (key, value) = (excerpt(key), excerpt(value.trim()));
            format!("write a space after the colon: `{key}: {value}`")
        }
        _ => "write a key and a value, or indent the rest of a text more than its key".to_owned(),
    };
    mistake(
        format!("found `{}`, expected `key: value`", excerpt(text)),
        hint,
    )
}

/// The innermost open bracket or quote at the end of line `last`, and its place.
fn open_at(lines: &[&str], last: usize) -> Option<(Place, char)> {
    let mut open: Vec<(Place, char)> = Vec::new();
    for (index, line) in lines.iter().enumerate().take(last.saturating_add(1)) {
        let mut before = ' ';
        let mut starts = true;
        for (column, sign) in line.chars().enumerate() {
            let place = place_at(index, column);
            let quote = open
                .last()
                .map(|(_, sign)| *sign)
                .filter(|sign| matches!(sign, '"' | '\''));
            // In single quotes a backslash is a character like others.
            let is_escaped = quote == Some('"') && before == '\\';
            match (quote, sign) {
                (Some(quote), _) if sign == quote && !is_escaped => {
                    open.pop();
                }
                (Some(_), _) => (),
                (None, '#') if before == ' ' => break,
                (None, '[' | '{' | '"' | '\'') if starts => open.push((place, sign)),
                (None, ']' | '}') => {
                    open.pop();
                }
                _ => (),
            }
            starts = match sign {
                ' ' => starts || matches!(before, ':' | '-'),
                '[' | '{' | ',' => true,
                _ => false,
            };
            before = if is_escaped { ' ' } else { sign };
        }
    }
    open.pop()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::{Format, parse};
    use crate::parse_permit::PERMIT;

    #[test]
    fn a_line_without_a_colon_and_a_space_is_named() {
        for (text, expected) in [
            ("name:tool\nrun: x\n", "1:1 `name: tool`"),
            ("run: x\nname:tool\n", "2:1 `name: tool`"),
            ("a:\n  b:c\n\n  d: e\n", "2:3 `b: c`"),
            ("a:\n  - b:c\n    d: e\n", "2:5 `b: c`"),
            ("run: x\nhttp://a\n", "2:1 a key and a value"),
            ("a: b\n  c\n  d: e\n", "3:4 indent the keys"),
            ("a: \u{1}\n", "1:4 remove it"),
        ] {
            let error = parse(&PERMIT, text.as_bytes(), Format::Yaml).expect_err(text);
            let (place, hint) = expected.split_once(' ').expect("a place");
            assert_eq!(error.place.expect("a place").to_string(), place, "{text}");
            let found = error.problem.hint().unwrap_or_default();
            assert!(found.contains(hint), "{text}: {error}: {found}");
        }
    }

    #[test]
    fn a_quote_is_open_until_a_quote_that_is_not_escaped() {
        for (line, expected) in [
            (r#"a: "b"#, Some('"')),
            (r#"a: "b\""#, Some('"')),
            (r#"a: "C:\\""#, None),
            (r"a: 'C:\'", None),
            (r"a: 'it''s'", None),
            (r"a: [b, 'c'", Some('[')),
        ] {
            let sign = open_at(&[line], 0).map(|(_, sign)| sign);
            assert_eq!(sign, expected, "{line}");
        }
    }
}
