//! The message of the reader of a bundle: a header in JSON and the list of the tree, the length of each
//! before it. What else the reader tells follows.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use archive::{Tree, UnpackError, UnpackLimits, Unpacked, listing};
use rustix::io::Errno;
use spec::digest::Digest;
use spec::report::{WarningReport, with_causes};
use sys::file::is_full;

use crate::worker::MALFORMED;

/// Maximum length of each text.
pub(crate) const TEXT_BYTES_MAX: usize = 8 << 10;
const WARNINGS_MAX: usize = 8;
/// A header with the longest texts, escaped.
pub(crate) const HEADER_BYTES_MAX: u64 = 1 << 20;

/// What caused a problem.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Cause {
    /// The bundle: it is refused.
    Bundle,
    /// The archive is damaged or incomplete: it is refused, and another copy may be whole.
    Damaged,
    /// The unpacked files are too large for the limits of the call.
    TooManyBytes,
    /// The file system is full.
    Full,
    Host,
}

/// What the reader tells of a bundle.
#[derive(Debug)]
pub(crate) struct Told {
    pub(crate) content_digest: Option<Digest>,
    pub(crate) tree: Tree,
    pub(crate) warnings: Vec<WarningReport>,
}

impl From<Unpacked> for Told {
    fn from(unpacked: Unpacked) -> Self {
        Self {
            content_digest: Some(unpacked.content_digest),
            tree: unpacked.tree,
            warnings: unpacked.warnings,
        }
    }
}

impl Told {
    /// `None` without a content digest. The archive's digest is missing: the caller hashed what it sent.
    pub(crate) fn unpacked(self) -> Option<Unpacked> {
        Some(Unpacked {
            content_digest: self.content_digest?,
            archive_digest: None,
            bytes: self.tree.file_bytes(),
            entries: self.tree.len() as u64,
            tree: self.tree,
            warnings: self.warnings,
        })
    }
}

/// Why nothing was unpacked, as the reader told it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{message}")]
pub struct Problem {
    pub code: String,
    /// With its causes.
    pub message: String,
    pub hint: Option<String>,
    pub cause: Cause,
}

impl Problem {
    /// Whether the archive is the cause (refused) or this host (failed).
    #[must_use]
    pub fn is_refusal(&self) -> bool {
        match self.cause {
            Cause::Bundle | Cause::Damaged | Cause::TooManyBytes => true,
            Cause::Full | Cause::Host => false,
        }
    }

    /// The problem that is `error`.
    #[must_use]
    pub fn of(error: &UnpackError) -> Self {
        Self {
            code: error.code().to_owned(),
            message: with_causes(error),
            hint: error.hint(),
            cause: match error {
                UnpackError::TooManyBytes { .. } => Cause::TooManyBytes,
                UnpackError::Target { source, .. } if is_full(source.errno) => Cause::Full,
                error if error.is_damage() => Cause::Damaged,
                error if error.is_refusal() => Cause::Bundle,
                _ => Cause::Host,
            },
        }
    }

    /// The reader gave no answer that can be used; `problem` says why.
    #[must_use]
    pub fn of_reader(problem: &str) -> Self {
        Self {
            code: "archive_unreadable".to_owned(),
            message: format!("the archive could not be unpacked: {problem}"),
            hint: None,
            cause: Cause::Bundle,
        }
    }

    pub(crate) fn not_started(errno: Errno) -> Self {
        Self {
            code: "reader_not_started".to_owned(),
            message: format!("the process that unpacks it could not be started: {errno}"),
            hint: None,
            cause: Cause::Host,
        }
    }

    pub(crate) fn is_plain(&self) -> bool {
        let is_code = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_';
        self.code.len() <= 64
            && self.code.bytes().all(is_code)
            && is_plain(&self.message)
            && self.hint.as_deref().is_none_or(is_plain)
    }
}

/// Whether `text` may stand in a report and on a terminal.
pub(crate) fn is_plain(text: &str) -> bool {
    text.len() <= TEXT_BYTES_MAX && !text.chars().any(char::is_control)
}

#[derive(Debug, Serialize, Deserialize)]
enum Header {
    /// The list of the tree follows.
    Tree {
        content_digest: Option<String>,
        /// Codes and messages.
        warnings: Vec<(String, String)>,
    },
    Problem(Problem),
}

/// The longest message for trees within `limits`.
pub(crate) fn bytes_max(limits: &UnpackLimits) -> u64 {
    let tree = limits.tree_limits();
    let list = tree.entries.saturating_mul(listing::ENTRY_BYTES_MAX as u64);
    HEADER_BYTES_MAX.saturating_add(list.saturating_add(tree.name_bytes))
}

pub(crate) fn write(result: Result<&Told, &UnpackError>) -> Vec<u8> {
    let (header, list) = match result {
        Ok(told) => {
            let header = Header::Tree {
                content_digest: told.content_digest.map(|digest| digest.to_string()),
                warnings: write_warnings(&told.warnings),
            };
            (header, listing::write(&told.tree))
        }
        Err(error) => (Header::Problem(Problem::of(error)), Vec::new()),
    };
    let mut bytes = write_header(&header);
    put_part(&list, &mut bytes);
    bytes
}

/// A header in JSON, as the first part of a message.
pub(crate) fn write_header(header: &impl Serialize) -> Vec<u8> {
    let mut bytes = Vec::new();
    let header = serde_json::to_vec(header).unwrap_or_default();
    put_part(&header, &mut bytes);
    bytes
}

/// The header, and what follows it.
pub(crate) fn read_header<T: DeserializeOwned>(bytes: &[u8]) -> Result<(T, &[u8]), Problem> {
    let (header, rest) = split_part(bytes).ok_or_else(malformed)?;
    let header = serde_json::from_slice(header).map_err(|_error| malformed())?;
    Ok((header, rest))
}

/// Codes and messages.
pub(crate) fn write_warnings(warnings: &[WarningReport]) -> Vec<(String, String)> {
    let texts = |warning: &WarningReport| (warning.code.clone(), warning.message.clone());
    warnings.iter().map(texts).collect()
}

pub(crate) fn read_warnings(
    warnings: Vec<(String, String)>,
) -> Result<Vec<WarningReport>, Problem> {
    let is_plain = |(code, message): &(String, String)| is_plain(code) && is_plain(message);
    if warnings.len() > WARNINGS_MAX || !warnings.iter().all(is_plain) {
        return Err(malformed());
    }
    let warnings = warnings.into_iter();
    Ok(warnings
        .map(|(code, message)| WarningReport::new(&code, message))
        .collect())
}

/// Adds a part of a message, its length before it.
pub fn put_part(part: &[u8], bytes: &mut Vec<u8>) {
    bytes.extend((part.len() as u64).to_le_bytes());
    bytes.extend_from_slice(part);
}

/// The next part of a message, and what follows it.
pub(crate) fn split_part(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (length, rest) = bytes.split_first_chunk::<8>()?;
    rest.split_at_checked(usize::try_from(u64::from_le_bytes(*length)).ok()?)
}

/// The parts of a message that consists of them. `None`: it does not.
#[must_use]
pub fn split_parts(mut bytes: &[u8]) -> Option<Vec<&[u8]>> {
    let mut parts = Vec::new();
    while !bytes.is_empty() {
        let (part, rest) = split_part(bytes)?;
        parts.push(part);
        bytes = rest;
    }
    Some(parts)
}

/// Parses a message, and returns what follows it.
///
/// # Errors
/// The reader's problem; a message that it cannot have written.
pub(crate) fn read<'bytes>(
    bytes: &'bytes [u8],
    limits: &UnpackLimits,
) -> Result<(Told, &'bytes [u8]), Problem> {
    let (header, rest) = read_header(bytes)?;
    let (list, rest) = split_part(rest).ok_or_else(malformed)?;
    match header {
        Header::Problem(problem) if problem.is_plain() && list.is_empty() => Err(problem),
        Header::Problem(_) => Err(malformed()),
        Header::Tree {
            content_digest,
            warnings,
        } => {
            let warnings = read_warnings(warnings)?;
            let tree = listing::read_untrusted(list, limits.tree_limits()).ok_or_else(malformed)?;
            if tree.file_bytes() > limits.unpacked_bytes {
                return Err(malformed());
            }
            let content_digest = match content_digest {
                Some(text) => Some(Digest::parse(&text).ok_or_else(malformed)?),
                None => None,
            };
            let told = Told {
                content_digest,
                tree,
                warnings,
            };
            Ok((told, rest))
        }
    }
}

pub(crate) fn malformed() -> Problem {
    Problem::of_reader(MALFORMED)
}

/// Parses the message of a process that unpacked, which nothing follows.
///
/// # Errors
/// The reader's problem; a message that it cannot have written.
pub fn read_archive_answer(bytes: &[u8], limits: &UnpackLimits) -> Result<Unpacked, Problem> {
    match read(bytes, limits)? {
        (told, []) => told.unpacked().ok_or_else(malformed),
        _ => Err(malformed()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use archive::Refusal;
    use proptest::prelude::*;
    use spec::path::RelPath;

    fn told() -> Told {
        Told {
            content_digest: Some(Digest::of(b"content")),
            tree: Tree::with_program(RelPath::parse(b"bin/tool").expect("a path")),
            warnings: vec![WarningReport::new(
                "bundle_left_out",
                "`.git/config` is left out",
            )],
        }
    }

    #[test]
    fn parts_are_read_back_and_half_of_one_is_not() {
        let parts = [&b"a"[..], b"", b"longer\0"];
        let mut bytes = Vec::new();
        for part in parts {
            put_part(part, &mut bytes);
        }
        assert_eq!(split_parts(&bytes), Some(parts.to_vec()));
        let ends = [0, 9, 17];
        for cut in 0..bytes.len() {
            assert_eq!(split_parts(&bytes[..cut]).is_some(), ends.contains(&cut));
        }
    }

    #[test]
    fn what_the_reader_writes_is_read_back() {
        let limits = UnpackLimits::default();
        let written = write(Ok(&told()));
        let found = read_archive_answer(&written, &limits).expect("read");
        let expected = told().unpacked().expect("a digest");
        assert_eq!(found.tree, expected.tree);
        assert_eq!(found.content_digest, expected.content_digest);
        assert_eq!(found.warnings, expected.warnings);
        let error = UnpackError::entry(3, b"a\x1b", Refusal::too_many_entries(2));
        let problem = Problem::of(&error);
        assert_eq!(
            read_archive_answer(&write(Err(&error)), &limits).expect_err("a problem"),
            problem
        );
        assert_eq!(
            (problem.code.as_str(), problem.cause),
            ("entries_limit", Cause::Bundle)
        );
    }

    #[test]
    fn what_a_reader_cannot_have_written_is_malformed() {
        let limits = UnpackLimits::default();
        let with_header = |header: &str, list: &[u8]| {
            let length = |bytes: usize| (bytes as u64).to_le_bytes();
            let (header_bytes, list_bytes) = (length(header.len()), length(list.len()));
            [&header_bytes[..], header.as_bytes(), &list_bytes, list].concat()
        };
        let problem = |message: &str| {
            let message = serde_json::to_string(message).expect("text");
            format!(
                r#"{{"Problem":{{"code":"x","message":{message},"hint":null,"cause":"Host"}}}}"#
            )
        };
        assert_eq!(
            read_archive_answer(&with_header(&problem("said"), b""), &limits)
                .expect_err("said")
                .message,
            "said"
        );
        let digest = Digest::of(b"");
        let tree = |warning: &str| {
            format!(r#"{{"Tree":{{"content_digest":"{digest}","warnings":[["w","{warning}"]]}}}}"#)
        };
        read_archive_answer(&with_header(&tree("good"), b""), &limits).expect("an empty tree");
        for bad in [
            Vec::new(),
            vec![0xff; 8],
            vec![0xff; 16],
            with_header("{}", b""),
            with_header(&problem("\u{1b}[31m"), b""),
            with_header(&problem(&"x".repeat(TEXT_BYTES_MAX + 1)), b""),
            with_header(&problem("said"), b"x"),
            with_header(&tree("\\u001b"), b""),
            with_header(&tree("good"), b"not a list"),
            with_header(&tree("good").replace("sha256:", "md5:"), b""),
        ] {
            let found = read_archive_answer(&bad, &limits).expect_err("malformed");
            assert_eq!(found.code, "archive_unreadable", "{bad:?}");
        }
        let small = UnpackLimits {
            unpacked_bytes: 0,
            ..limits
        };
        let mut list = listing::write(&Tree::with_program(
            RelPath::parse(b"tool").expect("a path"),
        ));
        list[1] = 1;
        read_archive_answer(&with_header(&tree("good"), &list), &small)
            .expect_err("more than the limit");
    }

    proptest! {
        #[test]
        fn no_message_panics(cut in any::<prop::sample::Index>(), byte: u8) {
            let mut bytes = write(Ok(&told()));
            let index = cut.index(bytes.len());
            bytes[index] = byte;
            let _read = read_archive_answer(&bytes, &UnpackLimits::default());
            bytes.truncate(index);
            let _read = read_archive_answer(&bytes, &UnpackLimits::default());
        }
    }
}
