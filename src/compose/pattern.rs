//! Shell patterns: which files of a directory a source takes.
//!
//! `*` and `?` stay within one segment and match a leading dot too; `**` between two `/` passes
//! through any number of segments; `[a-z]` and `[!a-z]` match one character. Bytes of a name that
//! are not UTF-8 are matched by wildcards only.

use glob::{MatchOptions, Pattern};

use crate::compose::error::SourceProblem;
use crate::spec::path::{RelPath, escape};

const OPTIONS: MatchOptions = MatchOptions {
    case_sensitive: true,
    require_literal_separator: true,
    require_literal_leading_dot: false,
};

/// A pattern for relative paths.
#[derive(Debug, Clone)]
pub(crate) struct PathPattern(Pattern);

impl PathPattern {
    /// Reads a pattern.
    ///
    /// # Errors
    /// [`SourceProblem::Pattern`].
    pub(crate) fn parse(text: &[u8]) -> Result<Self, SourceProblem> {
        let refused = |reason: String| SourceProblem::Pattern {
            pattern: escape(text),
            reason,
        };
        let text = std::str::from_utf8(text).map_err(|_error| refused("it is not UTF-8".into()))?;
        Pattern::new(text)
            .map(Self)
            .map_err(|error| refused(format!("{} (byte {})", error.msg, error.pos)))
    }

    /// Whether it matches the whole of `path`.
    pub(crate) fn matches(&self, path: &RelPath) -> bool {
        let text = String::from_utf8_lossy(path.as_bytes());
        self.0.matches_with(&text, OPTIONS)
    }
}

/// Whether a segment or a path holds a wildcard.
pub(crate) fn has_wildcard(text: &[u8]) -> bool {
    text.iter().any(|byte| matches!(byte, b'*' | b'?' | b'['))
}

/// Splits a path with wildcards: the directories before the first of them, and the rest.
pub(crate) fn split_base(path: &RelPath) -> (Option<RelPath>, Vec<u8>) {
    let mut base: Option<RelPath> = None;
    let mut at = 0;
    for segment in path.segments() {
        if has_wildcard(segment) {
            break;
        }
        at += segment.len() + 1;
    }
    if let Some(end) = at.checked_sub(1) {
        base = RelPath::parse(&path.as_bytes()[..end.min(path.as_bytes().len())]).ok();
    }
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
