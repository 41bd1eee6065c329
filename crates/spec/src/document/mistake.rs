//! Hints for common YAML mistakes, found where the parser failed.

use serde_saphyr::granit_parser::ErrorKind;

use crate::document::problem::excerpt;
use crate::document::{DocumentProblem, Place};

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

/// The first of [`OTHER_SPACES`] after a colon in a line, and its column.
fn space_after_colon(line: &str) -> Option<(u32, DocumentProblem)> {
    let (at, _) = line
        .match_indices(OTHER_SPACES)
        .find(|(at, _)| line[..*at].ends_with(':'))?;
    let column = u32::try_from(line[..at].chars().count()).unwrap_or(u32::MAX);
    let problem = other_space(&line[at..], true)?;
    Some((column.saturating_add(1), problem))
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
            mistake(
                format!(
                    "text that starts with `{}` needs quotes",
                    excerpt(&first.to_string())
                ),
                format!("write `'{}'`", excerpt(word)),
            )
        }
        // The key has no value, because its colon has no space after it.
        ErrorKind::SimpleKeyExpected if space_after_colon(line).is_some() => {
            let (column, problem) = space_after_colon(line)?;
            return Some((Place { column, ..place }, problem));
        }
        ErrorKind::SimpleKeyExpected if line.trim_start().starts_with('-') => mistake(
            "found no space after `-`".to_owned(),
            format!(
                "write `- {}`",
                excerpt(line.trim_start().trim_start_matches('-'))
            ),
        ),
        ErrorKind::MappingValueNotAllowed if open_at(&lines, index).is_none() => {
            let content = line.trim_start().trim_start_matches("- ");
            match content.split_once(": ") {
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

/// The innermost open bracket or quote at the end of line `last`, and its place.
fn open_at(lines: &[&str], last: usize) -> Option<(Place, char)> {
    let mut open: Vec<(Place, char)> = Vec::new();
    for (index, line) in lines.iter().enumerate().take(last.saturating_add(1)) {
        let mut before = ' ';
        let mut starts = true;
        for (column, sign) in line.chars().enumerate() {
            let place = Place {
                line: u32::try_from(index).unwrap_or(u32::MAX).saturating_add(1),
                column: u32::try_from(column).unwrap_or(u32::MAX).saturating_add(1),
            };
            let quote = open
                .last()
                .map(|(_, sign)| *sign)
                .filter(|sign| matches!(sign, '"' | '\''));
            match (quote, sign) {
                (Some(quote), _) if sign == quote && before != '\\' => {
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
            before = sign;
        }
    }
    open.pop()
}
