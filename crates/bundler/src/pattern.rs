//! Shell patterns that select files of a directory.
//!
//! `*` and `?` match within one segment, also a leading dot. `**` matches any number of segments.
//! `[a-z]` and `[!a-z]` match one character. Only wildcards match bytes that are not UTF-8.

use glob::{MatchOptions, Pattern};

use crate::ignored::PatternError;
use spec::parse_permit::ParsePermit;
use spec::path::RelPath;

const OPTIONS: MatchOptions = MatchOptions {
    case_sensitive: true,
    require_literal_separator: true,
    require_literal_leading_dot: false,
};

/// A pattern for relative paths, one [`Pattern`] per segment: over a whole path, `Pattern`
/// backtracks in time exponential in the number of wildcards.
#[derive(Debug, Clone)]
pub(crate) struct PathPattern(Vec<SegmentPattern>);

#[derive(Debug, Clone)]
enum SegmentPattern {
    /// `**`
    AnyNumber,
    One(Pattern),
}

impl PathPattern {
    pub(crate) fn parse(_permit: &ParsePermit, text: &[u8]) -> Result<Self, PatternError> {
        let refused = |reason: String| (None, reason);
        let text = std::str::from_utf8(text).map_err(|_error| refused("it is not UTF-8".into()))?;
        let mut segments = Vec::new();
        let mut segment_start = 0;
        let whole = if text.ends_with("**/") {
            &text[..text.len() - 1]
        } else {
            text
        };
        for segment in whole.split('/') {
            segments.push(match segment {
                "**" => SegmentPattern::AnyNumber,
                _ => Pattern::new(segment)
                    .map(SegmentPattern::One)
                    .map_err(|error| {
                        refused(format!(
                            "{} (byte {})",
                            error.msg,
                            segment_start + error.pos
                        ))
                    })?,
            });
            segment_start += segment.len() + 1;
        }
        // A trailing `**` matches the content of a folder, not the folder.
        if let Some(SegmentPattern::AnyNumber) = segments.last() {
            let any = Pattern::new("*").map_err(|error| refused(error.msg.into()))?;
            segments.push(SegmentPattern::One(any));
        }
        Ok(Self(segments))
    }

    pub(crate) fn matches(&self, path: &[u8]) -> bool {
        let text = String::from_utf8_lossy(path);
        let names: Vec<&str> = text.split('/').collect();
        let (mut pattern_index, mut name_index) = (0, 0);
        // Position after the last `**`, and the next name to try there. Only the last `**` needs
        // backtracking: it can match everything that an earlier one could.
        let mut backtrack = None;
        loop {
            match (self.0.get(pattern_index), names.get(name_index)) {
                (Some(SegmentPattern::AnyNumber), _) => {
                    pattern_index += 1;
                    backtrack = Some((pattern_index, name_index));
                    continue;
                }
                (Some(SegmentPattern::One(pattern)), Some(name))
                    if pattern.matches_with(name, OPTIONS) =>
                {
                    (pattern_index, name_index) = (pattern_index + 1, name_index + 1);
                    continue;
                }
                (None, None) => return true,
                // Too few names are left.
                (Some(_), None) => return false,
                (_, Some(_)) => (),
            }
            let Some((after, tried)) = backtrack else {
                return false;
            };
            (pattern_index, name_index) = (after, tried + 1);
            backtrack = Some((pattern_index, name_index));
        }
    }
}

pub(crate) fn has_wildcard(text: &[u8]) -> bool {
    text.iter().any(|byte| matches!(byte, b'*' | b'?' | b'['))
}

/// Splits a pattern into the directories before the first wildcard, and the rest.
pub(crate) fn split_base(path: &RelPath) -> (Option<RelPath>, Vec<u8>) {
    let literal = path.segments().take_while(|segment| !has_wildcard(segment));
    // Each segment with its `/`.
    let base_bytes: usize = literal.map(|segment| segment.len() + 1).sum();
    let base = base_bytes
        .checked_sub(1)
        .and_then(|end| RelPath::parse(&path.as_bytes()[..end]).ok());
    let rest = path.as_bytes().get(base_bytes..).unwrap_or_default();
    let rest = rest.to_vec();
    (base, rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PERMIT: ParsePermit = ParsePermit::for_trusted_text();

    fn path(text: &[u8]) -> RelPath {
        RelPath::parse(text).expect("a path")
    }

    #[test]
    fn a_star_stays_in_its_folder_and_takes_dot_files() {
        for (pattern, name, expected) in [
            ("*.ts", &b"a.ts"[..], true),
            ("*.ts", b".a.ts", true),
            ("*.ts", b"lib/a.ts", false),
            ("**/*.ts", b"a.ts", true),
            ("**/*.ts", b"lib/x/a.ts", true),
            ("lib/**", b"lib/x/a.ts", true),
            ("lib/*/a.ts", b"lib/x/a.ts", true),
            ("?.ts", b"a.ts", true),
            ("[a-c].ts", b"b.ts", true),
            ("[!a-c].ts", b"b.ts", false),
            ("*.TS", b"a.ts", false),
            ("*", b"\xff\xfe", true),
            ("a", b"ab", false),
            ("\u{e9}", "e\u{301}".as_bytes(), false),
        ] {
            let parsed = PathPattern::parse(&PERMIT, pattern.as_bytes()).expect("a pattern");
            assert_eq!(
                parsed.matches(name),
                expected,
                "{pattern} {}",
                name.escape_ascii()
            );
        }
    }

    #[test]
    fn double_stars_match_any_number_of_folders() {
        for (pattern, name, expected) in [
            ("**", &b"a/b"[..], true),
            ("lib/**", b"lib", false),
            ("lib/**/", b"lib/x", true),
            ("**/a/**/b", b"x/a/y/a/b", true),
            ("**/a/**/b", b"a/b", true),
            ("**/a/**/b", b"b/a", false),
            ("**/**/c", b"a/b/c", true),
            ("**/x?/c", b"x1/x2/c", true),
            ("**/x?/c", b"x1/y/c", false),
            ("a/**/b/c", b"a/b/b/c", true),
            ("a//b", b"a/b", false),
        ] {
            let parsed = PathPattern::parse(&PERMIT, pattern.as_bytes()).expect("a pattern");
            assert_eq!(parsed.matches(name), expected, "{pattern}");
        }
    }

    #[test]
    fn a_pattern_of_many_wildcards_is_matched_in_a_short_time() {
        // Exponential backtracking would take days.
        let name = format!("{}/{}/x", "a".repeat(200), "a".repeat(200));
        for pattern in [
            format!("{}b/x", "*a".repeat(40)),
            format!("{}b", "**/*a*/".repeat(40)),
            format!("**/{}b/*", "*a".repeat(40)),
        ] {
            let parsed = PathPattern::parse(&PERMIT, pattern.as_bytes()).expect("a pattern");
            assert!(!parsed.matches(name.as_bytes()), "{pattern}");
        }
    }

    #[test]
    fn a_pattern_that_cannot_be_read_says_why() {
        for text in [&b"a**b"[..], b"[a", b"***", b"\xff*"] {
            let problem = PathPattern::parse(&PERMIT, text).expect_err("unreadable");
            assert!(!problem.1.is_empty(), "{problem:?}");
        }
    }

    #[test]
    fn the_folders_before_the_first_wildcard_are_the_base() {
        for (text, base, rest) in [
            ("src/*.ts", Some("src"), "*.ts"),
            ("a/b/**/c", Some("a/b"), "**/c"),
            ("*.ts", None, "*.ts"),
            ("a?/b", None, "a?/b"),
        ] {
            let (found, left) = split_base(&path(text.as_bytes()));
            assert_eq!(found, base.map(|base| path(base.as_bytes())), "{text}");
            assert_eq!(left, rest.as_bytes(), "{text}");
        }
    }
}
