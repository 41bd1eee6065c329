//! `.staxignore`, `.bundleignore` and `.gitignore`, in the syntax of gitignore(5).
//!
//! Each directory may have one; it applies to the paths below. The nearest file is checked first,
//! and its last matching pattern decides. Entries of an ignored directory cannot be included again.
//! The ignore file itself is included, so that bundling the result again gives the same result.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use ignore::Match;
use ignore::gitignore::{Gitignore, GitignoreBuilder};

use crate::error::BundleError;
use crate::files::{DirectoryFiles, FoundKind};
use crate::matching::Matching;
use crate::walk::{join, parse};
use spec::parse_permit::ParsePermit;
use spec::path::{RelPath, escape};

const BYTES_MAX: u64 = 1 << 20;
const PATTERNS_MAX: usize = 20_000;

/// The line, if known, and the reason.
pub(crate) type PatternError = (Option<usize>, String);

/// All ignore files of one name, such as `.gitignore`.
pub(crate) struct IgnoreFiles {
    pub(crate) name: &'static str,
    /// The index of `name` in the names of the source.
    kind: usize,
    pattern_count: usize,
}

impl IgnoreFiles {
    pub(crate) fn new(kind: usize, name: &'static str) -> Self {
        Self {
            name,
            kind,
            pattern_count: 0,
        }
    }

    /// Adds the ignore file of `directory`, if it exists, to `matching`.
    pub(crate) fn read(
        &mut self,
        files: &DirectoryFiles,
        directory: Option<&RelPath>,
        matching: &mut Matching,
    ) -> Result<(), BundleError> {
        let path = join(directory, &parse(self.name.as_bytes())?)?;
        let unreadable = |error| BundleError::unreadable(&path, error);
        let Some(found) = files.find(&path).map_err(unreadable)? else {
            return Ok(());
        };
        let refused = |line, reason: String| BundleError::IgnoreFile {
            path: path.clone(),
            line,
            reason,
        };
        // An error: without the ignore file, the files that it excludes would be published.
        let FoundKind::File { bytes, .. } = found.kind else {
            let reason = format!("it is {}, expected a file", found.kind.name());
            return Err(refused(None, reason));
        };
        if bytes > BYTES_MAX {
            let reason = format!("it has {bytes} bytes, expected at most {BYTES_MAX}");
            return Err(refused(None, reason));
        }
        let text = files.read_start(&path, BYTES_MAX).map_err(unreadable)?;
        let added = matching.add_ignore_file(self.kind, directory, &text);
        let count = added.map_err(|(line, reason)| refused(line, reason))?;
        self.pattern_count = self.pattern_count.saturating_add(count);
        if self.pattern_count > PATTERNS_MAX {
            let name = self.name;
            let reason =
                format!("more than {PATTERNS_MAX} patterns in this and earlier {name} files");
            return Err(refused(None, reason));
        }
        Ok(())
    }
}

/// The patterns of all ignore files of one name.
#[derive(Default)]
pub(crate) struct IgnoreRules {
    /// The empty path is the root.
    by_directory: BTreeMap<Vec<u8>, Patterns>,
}

impl IgnoreRules {
    /// Adds the text of the ignore file of `directory`, and returns its number of patterns.
    pub(crate) fn add(
        &mut self,
        permit: &ParsePermit,
        directory: &[u8],
        text: &str,
    ) -> Result<usize, PatternError> {
        let patterns = Patterns::parse(permit, text)?;
        let count = patterns.count;
        self.by_directory.insert(directory.to_vec(), patterns);
        Ok(count)
    }

    /// As [`Patterns::ignores`], for a path relative to the root. No parent of `path` may be ignored.
    pub(crate) fn ignores(&self, path: &[u8], is_directory: bool) -> Option<bool> {
        let matched = |directory: &[u8], below: &[u8]| {
            self.by_directory
                .get(directory)?
                .ignores(below, is_directory)
        };
        let mut slashes = (0..path.len()).rev().filter(|at| path[*at] == b'/');
        slashes
            .find_map(|slash| matched(&path[..slash], &path[slash + 1..]))
            .or_else(|| matched(b"", path))
    }
}

#[derive(Debug)]
pub(crate) struct Patterns {
    matcher: Gitignore,
    count: usize,
}

impl Patterns {
    /// Compiles the lines of an ignore file.
    pub(crate) fn parse(_permit: &ParsePermit, text: &str) -> Result<Self, PatternError> {
        let mut builder = GitignoreBuilder::new("");
        let mut count = 0;
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        for (index, line) in text.lines().enumerate() {
            let line = escape_braces(line);
            let added = builder.add_line(None, &line);
            added.map_err(|error| (Some(index + 1), escape(error.to_string().as_bytes())))?;
            count += usize::from(!line.is_empty());
        }
        let matcher = builder
            .build()
            .map_err(|error| (None, escape(error.to_string().as_bytes())))?;
        Ok(Self { matcher, count })
    }

    /// Whether the last matching pattern ignores or, with `!`, includes `path`, which is relative to the
    /// ignore file; `None` if no pattern matches.
    pub(crate) fn ignores(&self, path: &[u8], is_directory: bool) -> Option<bool> {
        let path = Path::new(OsStr::from_bytes(path));
        match self.matcher.matched(path, is_directory) {
            Match::None => None,
            Match::Ignore(_) => Some(true),
            Match::Whitelist(_) => Some(false),
        }
    }
}

/// Escapes `{` and `}` outside brackets: git takes them literally, the matcher as alternatives.
fn escape_braces(line: &str) -> String {
    let mut text = String::with_capacity(line.len());
    let mut in_brackets = false;
    let mut characters = line.chars();
    while let Some(character) = characters.next() {
        match character {
            '\\' => {
                text.push(character);
                text.extend(characters.next());
                continue;
            }
            '[' => in_brackets = true,
            ']' => in_brackets = false,
            '{' | '}' if !in_brackets => text.push('\\'),
            _ => (),
        }
        text.push(character);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_as_in_git() {
        let permit = ParsePermit::for_trusted_text();
        for (text, path, is_directory, expected) in [
            ("*.o", "a.o", false, Some(true)),
            ("*.o", "deep/er/a.o", false, Some(true)),
            ("/a.o", "deep/a.o", false, None),
            ("/a.o", "a.o", false, Some(true)),
            ("doc/*.txt", "doc/a.txt", false, Some(true)),
            ("doc/*.txt", "doc/in/a.txt", false, None),
            ("doc/*.txt", "x/doc/a.txt", false, None),
            ("**/doc/*.txt", "x/doc/a.txt", false, Some(true)),
            ("doc/**", "doc/in/a.txt", false, Some(true)),
            ("doc/**", "doc", true, None),
            ("a/**/b", "a/b", false, Some(true)),
            ("a/**/b", "a/x/y/b", false, Some(true)),
            ("target/", "target", true, Some(true)),
            ("target/", "target", false, None),
            ("*.o\n!keep.o", "keep.o", false, Some(false)),
            ("!keep.o\n*.o", "keep.o", false, Some(true)),
            ("# note\n\n  \nx", "x", false, Some(true)),
            ("\\#x", "#x", false, Some(true)),
            ("\\!x", "!x", false, Some(true)),
            ("x   ", "x", false, Some(true)),
            ("x\r\ny\r\n", "y", false, Some(true)),
            ("\u{feff}x", "x", false, Some(true)),
            ("a{b,c}", "ab", false, None),
            ("a{b,c}", "a{b,c}", false, Some(true)),
            ("a[{]b", "a{b", false, Some(true)),
            ("[a-c].txt", "b.txt", false, Some(true)),
            // By bytes, as git does.
            ("?", "é", false, None),
            ("??", "é", false, Some(true)),
            ("a?b", "a/b", false, None),
        ] {
            let patterns = Patterns::parse(&permit, text).map_err(|(_, reason)| reason);
            let patterns = patterns.expect(text);
            assert_eq!(
                patterns.ignores(path.as_bytes(), is_directory),
                expected,
                "{text:?} of {path:?}"
            );
        }
        let (line, reason) = Patterns::parse(&permit, "a\n[z-a]")
            .map(|_| ())
            .expect_err("refused");
        assert_eq!(line, Some(2), "{reason}");
    }
}
