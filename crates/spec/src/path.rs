//! Relative paths that cannot leave their directory: a bundle, a workspace or a scratch root.

use std::fmt;
use std::path::Path;

/// Longest path, in bytes without the NUL (PATH_MAX is 4,096 with it).
pub const PATH_BYTES_MAX: usize = 4_095;
/// Longest segment, in bytes (NAME_MAX).
pub const SEGMENT_BYTES_MAX: usize = 255;

/// A relative path of one or more segments, none of them empty, `.` or `..`, without a NUL byte.
///
/// Bytes, because names in archives may not be UTF-8. Symbolic links are not checked: open the path
/// with `openat2` and `RESOLVE_BENEATH`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RelPath(Vec<u8>);

/// Why a byte string is not a [`RelPath`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PathError {
    #[error("is empty")]
    Empty,
    #[error("is absolute")]
    Absolute,
    #[error("contains a `..` segment")]
    Parent,
    /// A segment is `.`, or empty as in `a//b` or `a/`.
    #[error("contains an empty or `.` segment")]
    EmptySegment,
    #[error("contains a NUL byte")]
    Nul,
    #[error("is longer than 4095 bytes")]
    TooLong,
    #[error("has a segment longer than 255 bytes")]
    SegmentTooLong,
}

impl RelPath {
    /// Parses `bytes` without normalisation.
    ///
    /// # Errors
    /// The first rule that the path breaks.
    pub fn parse(bytes: &[u8]) -> Result<Self, PathError> {
        if bytes.is_empty() {
            return Err(PathError::Empty);
        }
        if bytes.contains(&0) {
            return Err(PathError::Nul);
        }
        if bytes[0] == b'/' {
            return Err(PathError::Absolute);
        }
        if bytes.len() > PATH_BYTES_MAX {
            return Err(PathError::TooLong);
        }
        for segment in bytes.split(|byte| *byte == b'/') {
            match segment {
                b"" | b"." => return Err(PathError::EmptySegment),
                b".." => return Err(PathError::Parent),
                long if long.len() > SEGMENT_BYTES_MAX => return Err(PathError::SegmentTooLong),
                _ => (),
            }
        }
        Ok(Self(bytes.to_vec()))
    }

    /// The path as bytes, segments joined by one `/`.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// The segments, first to last.
    pub fn segments(&self) -> impl DoubleEndedIterator<Item = &[u8]> {
        self.0.split(|byte| *byte == b'/')
    }

    /// The path without its last segment; `None` if it has only one.
    #[must_use]
    pub fn parent(&self) -> Option<Self> {
        let cut = self.0.iter().rposition(|byte| *byte == b'/')?;
        Some(Self(self.0[..cut].to_vec()))
    }

    /// The last segment.
    #[must_use]
    pub fn file_name(&self) -> &[u8] {
        self.0
            .rsplit(|byte| *byte == b'/')
            .next()
            .unwrap_or(&self.0)
    }

    /// Joins the paths: `self/other`.
    ///
    /// # Errors
    /// [`PathError::TooLong`] if the result is longer than [`PATH_BYTES_MAX`].
    pub fn join(&self, other: &Self) -> Result<Self, PathError> {
        let mut bytes = self.0.clone();
        bytes.push(b'/');
        bytes.extend_from_slice(&other.0);
        if bytes.len() > PATH_BYTES_MAX {
            return Err(PathError::TooLong);
        }
        Ok(Self(bytes))
    }

    /// The path `name` in the directory `parent`; `None` is the root.
    ///
    /// # Errors
    /// [`PathError`]: `name` is not a path, or the result is too long.
    pub fn parse_in(parent: Option<&Self>, name: &[u8]) -> Result<Self, PathError> {
        let name = Self::parse(name)?;
        match parent {
            Some(parent) => parent.join(&name),
            None => Ok(name),
        }
    }
}

impl fmt::Display for RelPath {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&escape(&self.0))
    }
}

impl fmt::Debug for RelPath {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "RelPath({})", escape(&self.0))
    }
}

/// Whether `character` is invisible or controls the terminal: control characters, line and
/// paragraph separators, bidirectional controls, and Unicode default ignorables (joiners, fillers,
/// variation selectors, tags). With these, different names look the same.
#[must_use]
pub const fn is_hidden(character: char) -> bool {
    matches!(
        character,
        '\u{0}'..='\u{1f}'
            | '\u{7f}'..='\u{9f}'
            | '\u{ad}'
            | '\u{34f}'
            | '\u{61c}'
            | '\u{115f}'..='\u{1160}'
            | '\u{17b4}'..='\u{17b5}'
            | '\u{180b}'..='\u{180f}'
            | '\u{200b}'..='\u{200f}'
            | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}'
            | '\u{3164}'
            | '\u{fe00}'..='\u{fe0f}'
            | '\u{feff}'
            | '\u{ffa0}'
            | '\u{fff0}'..='\u{fffb}'
            | '\u{1bca0}'..='\u{1bca3}'
            | '\u{1d173}'..='\u{1d17a}'
            | '\u{e0000}'..='\u{e0fff}'
    )
}

/// Escapes bytes for the terminal. [`is_hidden`] characters and bytes that are not UTF-8 become
/// `\x..` or `\u{..}`; a backslash is doubled.
#[must_use]
pub fn escape(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    let mut text = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        for character in chunk.valid().chars() {
            match character {
                '\\' => text.push_str("\\\\"),
                '\u{0}'..='\u{1f}' | '\u{7f}' => {
                    let _written = write!(text, "\\x{:02x}", u32::from(character));
                }
                hidden if is_hidden(hidden) => {
                    let _written = write!(text, "\\u{{{:x}}}", u32::from(character));
                }
                _ => text.push(character),
            }
        }
        for byte in chunk.invalid() {
            let _written = write!(text, "\\x{byte:02x}");
        }
    }
    text
}

/// As [`escape`], for a path of the host.
#[must_use]
pub fn escape_path(path: &Path) -> String {
    escape(path.as_os_str().as_encoded_bytes())
}

/// Quotes a word for the shell if needed.
#[must_use]
pub fn quoted(word: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_./=:@%+,".contains(&byte);
    if !word.is_empty() && word.bytes().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn absolute_leaving_and_ambiguous_paths_are_refused() {
        for (bytes, error) in [
            (&b""[..], PathError::Empty),
            (b"/a", PathError::Absolute),
            (b"../a", PathError::Parent),
            (b"a/../b", PathError::Parent),
            (b"a//b", PathError::EmptySegment),
            (b"a/", PathError::EmptySegment),
            (b"./a", PathError::EmptySegment),
            (b"a\0b", PathError::Nul),
        ] {
            assert_eq!(RelPath::parse(bytes), Err(error), "{}", escape(bytes));
        }
        assert_eq!(RelPath::parse(&[b'a'; 256]), Err(PathError::SegmentTooLong));
        assert_eq!(
            RelPath::parse("a/".repeat(2_100).as_bytes()),
            Err(PathError::TooLong)
        );
    }

    #[test]
    fn control_characters_and_invalid_utf_8_are_escaped() {
        assert_eq!(escape(b"a\x1b[31mb\xff\n"), "a\\x1b[31mb\\xff\\x0a");
        assert_eq!(escape("ab\u{202e}c ü".as_bytes()), "ab\\u{202e}c ü");
    }

    #[test]
    fn hidden_characters_are_escaped() {
        for hidden in [
            0xad, 0x34f, 0x61c, 0x115f, 0x180e, 0x200b, 0x200e, 0x2028, 0x202a, 0x2060, 0x2062,
            0x2064, 0x2066, 0x206f, 0x3164, 0xfe0f, 0xfeff, 0xffa0, 0xfffb, 0x1d173, 0xe0000,
            0xe0001, 0xe0041, 0xe007f, 0xe0100,
        ] {
            let character = char::from_u32(hidden).expect("a character");
            let expected = format!("a\\u{{{hidden:x}}}b");
            assert_eq!(escape(format!("a{character}b").as_bytes()), expected);
        }
        for shown in ["é", "日本", "😀", "ا", "\u{301}"] {
            assert_eq!(escape(shown.as_bytes()), shown);
        }
    }
}
