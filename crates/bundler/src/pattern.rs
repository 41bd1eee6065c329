//! Shell patterns that select files of a directory.
//!
//! `*` and `?` match within one segment, also a leading dot. `**` matches any number of segments.
//! `[a-z]` and `[!a-z]` match one character. Only wildcards match bytes that are not UTF-8.

use glob::{MatchOptions, Pattern};

use crate::error::BundleError;
use spec::path::{RelPath, escape};

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
    Any,
    One(Pattern),
}

impl PathPattern {
    /// Parses a pattern.
    ///
    /// # Errors
    /// [`BundleError::Pattern`].
    pub(crate) fn parse(text: &[u8]) -> Result<Self, BundleError> {
        let refused = |reason: String| BundleError::Pattern {
            pattern: escape(text),
            reason,
        };
        let text = std::str::from_utf8(text).map_err(|_error| refused("it is not UTF-8".into()))?;
        let mut segments = Vec::new();
        let mut begin = 0;
        let whole = if text.ends_with("**/") {
            &text[..text.len() - 1]
        } else {
            text
        };
        for segment in whole.split('/') {
            segments.push(match segment {
                "**" => SegmentPattern::Any,
                _ => Pattern::new(segment)
                    .map(SegmentPattern::One)
                    .map_err(|error| {
                        refused(format!("{} (byte {})", error.msg, begin + error.pos))
                    })?,
            });
            begin += segment.len() + 1;
        }
        // A trailing `**` matches the content of a folder, not the folder.
        if let Some(SegmentPattern::Any) = segments.last() {
            let one = Pattern::new("*").map_err(|error| refused(error.msg.into()))?;
            segments.push(SegmentPattern::One(one));
        }
        Ok(Self(segments))
    }

    pub(crate) fn matches(&self, path: &RelPath) -> bool {
        let text = String::from_utf8_lossy(path.as_bytes());
        let names: Vec<&str> = text.split('/').collect();
        let (mut wanted, mut at) = (0, 0);
        // Position after the last `**` and the next name to try there. Only the last `**` needs
        // backtracking: it can match everything that an earlier one could.
        let mut again = None;
        loop {
            match (self.0.get(wanted), names.get(at)) {
                (Some(SegmentPattern::Any), _) => {
                    wanted += 1;
                    again = Some((wanted, at));
                    continue;
                }
                (Some(SegmentPattern::One(one)), Some(name)) if one.matches_with(name, OPTIONS) => {
                    (wanted, at) = (wanted + 1, at + 1);
                    continue;
                }
                (None, None) => return true,
                // Too few names are left.
                (Some(_), None) => return false,
                (_, Some(_)) => (),
            }
            let Some((behind, tried)) = again else {
                return false;
            };
            (wanted, at) = (behind, tried + 1);
            again = Some((behind, tried + 1));
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
    let at: usize = literal.map(|segment| segment.len() + 1).sum();
    // A prefix of a path that ends before a `/` is a path.
    let base = at
        .checked_sub(1)
        .and_then(|end| RelPath::parse(&path.as_bytes()[..end]).ok());
    let rest = path.as_bytes().get(at..).unwrap_or_default().to_vec();
    (base, rest)
}

#[cfg(test)]
mod tests {
    use super::*;

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
            let parsed = PathPattern::parse(pattern.as_bytes()).expect("a pattern");
            assert_eq!(
                parsed.matches(&path(name)),
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
            let parsed = PathPattern::parse(pattern.as_bytes()).expect("a pattern");
            assert_eq!(parsed.matches(&path(name)), expected, "{pattern}");
        }
    }

    #[test]
    fn a_pattern_of_many_wildcards_is_matched_at_once() {
        // Trying every way to share the letters out would be days.
        let name = format!("{}/{}/x", "a".repeat(200), "a".repeat(200));
        for pattern in [
            format!("{}b/x", "*a".repeat(40)),
            format!("{}b", "**/*a*/".repeat(40)),
            format!("**/{}b/*", "*a".repeat(40)),
        ] {
            let parsed = PathPattern::parse(pattern.as_bytes()).expect("a pattern");
            assert!(!parsed.matches(&path(name.as_bytes())), "{pattern}");
        }
    }

    #[test]
    fn a_pattern_that_cannot_be_read_says_why() {
        for text in [&b"a**b"[..], b"[a", b"***", b"\xff*"] {
            let problem = PathPattern::parse(text).expect_err("unreadable");
            assert_eq!(problem.code(), "source_pattern");
            assert!(problem.to_string().contains("cannot be read"), "{problem}");
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
