//! Errors of archives: refused bundles and failures while unpacking.

use rustix::io::Errno;

use spec::path::{PathError, escape};
use spec::units::limit;
use sys::file::CallError;

/// Maximum length of a name in a message, in characters after escaping.
const SHOWN_NAME_CHARS_MAX: usize = 200;

/// Why an archive or one of its entries is refused.
///
/// Code, message and hint are stated where the rule is checked.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Refusal {
    code: &'static str,
    message: String,
    hint: Option<&'static str>,
}

impl Refusal {
    pub(crate) const MAKE_AGAIN: &str = "the archive is damaged: make or fetch it again";
    pub(crate) const MAKE_AN_ARCHIVE: &str = "make one with `runner bundle MANIFEST -o bundle.tar.gz` \
         or `tar -czf bundle.tar.gz -C DIR .`, or give the directory itself";
    pub(crate) const NOT_JOINED: &str =
        "make the archive anew; archives that were joined with `cat` are not read";
    pub(crate) const LEAVE_OUT: &str =
        "leave out what the body does not need; the host policy sets the limits";
    pub(crate) const COPY_OR_RELATIVE: &str = "replace the link by a copy of what it points to, or by a relative link \
         to a file or directory inside the bundle";

    pub(crate) fn new(code: &'static str, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
            hint: None,
        }
    }

    pub(crate) fn with_hint(self, hint: &'static str) -> Self {
        Self {
            hint: Some(hint),
            ..self
        }
    }

    /// The name of an entry is not a path inside the bundle.
    pub(crate) fn path(error: PathError) -> Self {
        let refusal = Self::new(
            match error {
                PathError::Empty => "path_empty",
                PathError::Absolute => "path_absolute",
                PathError::Parent => "path_parent",
                PathError::EmptySegment => "path_empty_segment",
                PathError::Nul => "path_nul",
                PathError::TooLong => "path_too_long",
                PathError::SegmentTooLong => "path_segment_too_long",
            },
            format!("its name {error}; expected a relative path of plain segments"),
        );
        match error {
            PathError::Absolute | PathError::Parent | PathError::EmptySegment => refusal
                .with_hint("pack from inside the directory: `tar -czf bundle.tar.gz -C DIR .`"),
            _ => refusal,
        }
    }

    pub(crate) fn too_deep(segments: usize, limit: usize) -> Self {
        let message = format!("its name has {segments} segments; expected at most {limit}");
        Self::new("path_too_deep", message)
    }

    pub(crate) fn hard_link_to_itself() -> Self {
        Self::new("hard_link_itself", "it is a hard link to itself")
    }

    /// For the first entry beyond the limit.
    pub fn too_many_entries(limit: u64) -> Self {
        let message = format!("more than {limit} entries, directories included");
        Self::new("entries_limit", message).with_hint(Self::LEAVE_OUT)
    }

    /// Paths and link targets together are too long; the limit is derived from that for entries.
    pub fn too_long_names(limit_bytes: u64) -> Self {
        let message = format!("more than {} in all names", limit(&limit_bytes));
        Self::new("name_bytes_limit", message).with_hint(Self::LEAVE_OUT)
    }

    /// The target of a hard link does not occur earlier in the archive.
    pub(crate) fn hard_link_missing(target: &[u8]) -> Self {
        let target = shown(target);
        Self::new(
            "hard_link_missing",
            format!(
                "it is a hard link to `{target}`, which is not an earlier entry of the archive"
            ),
        )
        .with_hint("pack with `tar --hard-dereference`")
    }

    pub(crate) fn hard_link_not_file(target: &[u8], found: &str) -> Self {
        let target = shown(target);
        Self::new(
            "hard_link_not_file",
            format!("it is a hard link to `{target}`, which is {found}; expected a regular file"),
        )
    }

    pub(crate) fn beneath_file(file: &impl std::fmt::Display) -> Self {
        Self::new(
            "bundle_path_conflict",
            format!("it lies beneath `{file}`, which is a file"),
        )
    }

    pub(crate) fn beneath_link(link: &impl std::fmt::Display) -> Self {
        Self::new(
            "entry_through_link",
            format!("it lies beneath `{link}`, which is a symlink; nothing is written through one"),
        )
    }

    /// The snapshot of a source may contain only files and directories.
    pub(crate) fn not_in_snapshot(what: &str) -> Self {
        Self::new(
            "snapshot_entry_type",
            format!("it is {what}; the snapshot of a source holds files and directories only"),
        )
        .with_hint(
            "build the source again with `runner source build`, which leaves such things out",
        )
    }

    /// Puts `subject` before the message.
    pub(crate) fn about(self, subject: impl std::fmt::Display) -> Self {
        Self {
            message: format!("{subject} {}", self.message),
            ..self
        }
    }

    /// Stable identifier of the cause, in snake case.
    #[must_use]
    pub fn code(&self) -> &'static str {
        self.code
    }
}

/// Why a bundle is refused or cannot be unpacked.
#[derive(Debug, thiserror::Error)]
pub enum UnpackError {
    #[error("the bundle `{path}` could not be opened")]
    Open {
        /// As the caller wrote it, escaped.
        path: String,
        #[source]
        source: CallError,
    },
    /// The bundle is neither a regular file nor a directory.
    #[error("the bundle `{path}` is {found}; expected a regular file or a directory")]
    NotAFile {
        /// As the caller wrote it, escaped.
        path: String,
        found: &'static str,
    },
    #[error("the archive could not be read")]
    Read(#[source] std::io::Error),
    /// The compressed data is damaged, or its decoder needs too much memory.
    #[error("the {compression} data is malformed")]
    Malformed {
        compression: &'static str,
        /// The error of the decoder.
        #[source]
        source: std::io::Error,
    },
    /// The archive ends too early.
    #[error(transparent)]
    Damaged(Refusal),
    /// The archive as a whole breaks a rule.
    #[error(transparent)]
    Refused(Refusal),
    /// One entry breaks a rule.
    #[error("entry {index}, `{name}`: {refusal}")]
    Entry {
        /// Position among the headers of the archive, from 1; in a directory, of the visit.
        index: u64,
        name: String,
        refusal: Refusal,
    },
    #[error("entry {index}, `{name}`: more than {} in all files", limit(.limit_bytes))]
    TooManyBytes {
        /// Position of the first entry beyond the limit.
        index: u64,
        name: String,
        limit_bytes: u64,
    },
    /// A file changed during reading.
    #[error("`{name}` changed while it was read: {expected_bytes} bytes expected")]
    SourceChanged {
        name: String,
        /// Its size when opened.
        expected_bytes: u64,
    },
    /// A file or directory cannot be read.
    #[error("`{name}` could not be read")]
    Source {
        name: String,
        #[source]
        source: CallError,
    },
    /// A directory of a layer cannot be marked as opaque.
    #[error(
        "`{name}` could not be marked as opaque: the extended attribute user.overlay.opaque was not stored"
    )]
    NotOpaque {
        name: String,
        #[source]
        source: CallError,
    },
    /// An entry cannot be created in the target directory.
    #[error("`{name}` could not be unpacked")]
    Target {
        name: String,
        #[source]
        source: CallError,
    },
    #[error("the unpacking was cancelled")]
    Cancelled,
    #[error("the canonical tar could not be written")]
    Canonical(#[source] std::io::Error),
}

impl UnpackError {
    /// An error about entry `index`.
    pub fn entry(index: u64, name: &[u8], refusal: Refusal) -> Self {
        Self::Entry {
            index,
            name: shown(name),
            refusal,
        }
    }

    /// Stable identifier of the cause, in snake case.
    #[must_use]
    pub fn code(&self) -> &'static str {
        self.code_and_hint().0
    }

    /// What the user can do, if known.
    #[must_use]
    pub fn hint(&self) -> Option<String> {
        self.code_and_hint().1.map(str::to_owned)
    }

    fn code_and_hint(&self) -> (&'static str, Option<&'static str>) {
        let no_space = Errno::NOSPC;
        match self {
            Self::Open { .. } => ("bundle_unopened", None),
            Self::NotAFile { found, .. } => (
                "bundle_not_a_file",
                (*found == "a symlink")
                    .then_some("give the path that it points to: `readlink -f` prints it"),
            ),
            Self::Read(_) => ("archive_unreadable", None),
            Self::Malformed { compression, .. } => match *compression {
                "gzip" => ("gzip_malformed", Some(Refusal::MAKE_AGAIN)),
                "zstd" => ("zstd_malformed", None),
                _ => ("xz_malformed", None),
            },
            Self::Damaged(refusal) | Self::Refused(refusal) | Self::Entry { refusal, .. } => {
                (refusal.code, refusal.hint)
            }
            Self::TooManyBytes { .. } => ("unpacked_bytes_limit", Some(Refusal::LEAVE_OUT)),
            Self::SourceChanged { .. } => (
                "source_changed",
                Some("run it again once nothing writes to the directory"),
            ),
            Self::Source { .. } => ("source_unreadable", None),
            Self::Target { source, .. } if source.errno == no_space => (
                "unpack_no_space",
                Some("the writable space is smaller than the bundle: raise its limit"),
            ),
            Self::Target { .. } => ("unpack_failed", None),
            Self::NotOpaque { .. } => (
                "layer_not_opaque",
                Some(
                    "layers need a file system with user.* extended attributes: name a directory \
                     on another one (oci.directory), such as ext4, xfs or btrfs",
                ),
            ),
            Self::Cancelled => ("unpack_cancelled", None),
            Self::Canonical(_) => ("canonical_unwritten", None),
        }
    }

    /// Whether the bundle is the cause (refused) or this host (failed).
    #[must_use]
    pub fn is_refusal(&self) -> bool {
        !matches!(
            self,
            Self::Read(_)
                | Self::Source { .. }
                | Self::SourceChanged { .. }
                | Self::Target { .. }
                | Self::NotOpaque { .. }
                | Self::Cancelled
                | Self::Canonical(_)
        )
    }

    /// Whether the archive is damaged or incomplete, so that a second download may help.
    #[must_use]
    pub fn is_damage(&self) -> bool {
        matches!(self, Self::Damaged(_) | Self::Malformed { .. })
    }
}

/// A name for a message: escaped and truncated.
pub fn shown(name: &[u8]) -> String {
    let cut = name.get(..SHOWN_NAME_CHARS_MAX * 4).unwrap_or(name);
    let text = escape(cut);
    match text.char_indices().nth(SHOWN_NAME_CHARS_MAX) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_in_a_message_is_escaped_and_short() {
        let long = [&b"\x1b[31m"[..], &[b'a'; 400_000]].concat();
        let error = UnpackError::entry(7, &long, Refusal::path(PathError::TooLong));
        let text = error.to_string();
        assert!(text.starts_with("entry 7, `\\x1b[31maaa"), "{text}");
        assert!(
            text.ends_with("longer than 4095 bytes; expected a relative path of plain segments")
        );
        assert!(text.chars().count() < 400, "{}", text.len());
        assert_eq!(error.code(), "path_too_long");
        assert!(error.is_refusal());
    }
}
