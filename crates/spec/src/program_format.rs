//! What the first bytes of a program say, as the kernel reads them (linux/fs/binfmt_script.c).

use serde::{Deserialize, Serialize};

use crate::parse_permit::ParsePermit;

/// Bytes that the kernel reads of a program (BINPRM_BUF_SIZE of linux/binfmts.h).
pub const HEAD_BYTES: u64 = 256;
/// The UTF-8 byte order mark, which Windows editors write.
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// What the first bytes say about a program.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Format {
    Empty,
    Elf,
    /// The words of the first line after `#!`, the interpreter first.
    Script(Vec<String>),
    ByteOrderMark,
    /// Other bytes with a zero.
    Binary,
    Text,
}

impl Format {
    /// `None` for a first line that is not UTF-8.
    #[must_use]
    pub fn parse(_permit: &ParsePermit, head: &[u8]) -> Option<Self> {
        Some(match head {
            [] => Self::Empty,
            [0x7f, b'E', b'L', b'F', ..] => Self::Elf,
            [b'#', b'!', rest @ ..] => {
                let line = rest.split(|byte| *byte == b'\n').next()?;
                let words = std::str::from_utf8(line).ok()?.split([' ', '\t']);
                let words = words.filter(|word| !word.is_empty());
                Self::Script(words.map(str::to_owned).collect())
            }
            head if head.starts_with(BYTE_ORDER_MARK) => Self::ByteOrderMark,
            head if head.contains(&0) => Self::Binary,
            _ => Self::Text,
        })
    }

    /// Whether a head can say so: it may come from a process that a program took over.
    #[must_use]
    pub fn is_possible(&self) -> bool {
        let Self::Script(words) = self else {
            return true;
        };
        let bytes: usize = words.iter().map(|word| word.len() + 1).sum();
        bytes as u64 <= HEAD_BYTES && !words.iter().any(|word| word.contains(['\n', '\0']))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_that_no_head_has_are_unknown() {
        for word in ["x".repeat(256), "x\n".to_owned(), "\0".to_owned()] {
            assert!(!Format::Script(vec![word]).is_possible());
        }
        assert!(Format::Script(vec!["x".repeat(255)]).is_possible());
    }
}
