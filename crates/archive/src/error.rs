//! Why a bundle is refused or could not be unpacked: one variant per cause, each with its place.

use rustix::io::Errno;

use crate::gzip::GzipError;
use crate::layer_view::LeadsNowhere;
use crate::links::LinkError;
use crate::pax::PaxError;
use crate::tar_header::HeaderError;
use crate::whiteout::WhiteoutError;
use spec::path::{PathError, RelPath, escape};
use spec::units::limit;
use sys::file::CallError;

/// Longest name in a message, in characters after escaping.
const SHOWN_NAME_CHARS_MAX: usize = 200;
const LINK_HINT: &str = "replace the link by a copy of what it points to, or by a relative link \
                         to a file or directory inside the bundle";

/// Why a bundle is refused or could not be unpacked.
#[derive(Debug, thiserror::Error)]
pub enum UnpackError {
    /// The bundle could not be opened.
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
    /// The compressed stream is damaged, too large, or something else altogether.
    #[error(transparent)]
    Gzip(#[from] GzipError),
    /// The compressed data is damaged, needs too much memory, or is something else altogether.
    #[error("the {compression} data is malformed")]
    Malformed {
        compression: &'static str,
        /// What the decoder says.
        #[source]
        source: std::io::Error,
    },
    /// What was compressed is not a tar.
    #[error("the gzip data holds {found}; expected a tar archive")]
    NotTar { found: &'static str },
    /// The stream ends without the two zero blocks that end a tar.
    #[error("the tar ends after {entries} entries without the two zero blocks that end it")]
    EndMissing { entries: u64 },
    /// Something other than zeros follows the end of the tar, or too many zeros do.
    #[error("more data follows the end of the tar, after {entries} entries; expected only zeros")]
    DataAfterEnd { entries: u64 },
    /// One entry is refused.
    #[error("entry {index}, `{name}`: {refusal}")]
    Entry {
        /// Position among the headers of the archive, from 1; in a directory, of the visit.
        index: u64,
        name: String,
        refusal: EntryRefusal,
    },
    /// A symbolic link is refused in view of the whole bundle.
    #[error("`{name}` {error}")]
    Link { name: String, error: LinkError },
    /// More entries than allowed.
    #[error("entry {index}, `{name}`: more than {limit} entries, directories included")]
    TooManyEntries {
        /// Position of the first entry that is too many.
        index: u64,
        name: String,
        limit: u64,
    },
    /// More bytes than allowed.
    #[error("entry {index}, `{name}`: more than {} in all files", limit(.limit_bytes))]
    TooManyBytes {
        /// Position of the first entry that is too large.
        index: u64,
        name: String,
        limit_bytes: u64,
    },
    /// Paths and link targets together are too long.
    #[error("entry {index}, `{name}`: more than {} in all names", limit(.limit_bytes))]
    TooLongNames {
        /// Position of the first entry that is too much.
        index: u64,
        name: String,
        /// The limit, which follows from the limit for entries.
        limit_bytes: u64,
    },
    /// Headers and extended headers are too long together.
    #[error("entry {index}: more than {} of headers", limit(.limit_bytes))]
    TooLongHeaders {
        /// Position of the header that is too much.
        index: u64,
        /// The limit, which follows from the limit for entries.
        limit_bytes: u64,
    },
    /// A file of the source directory changed while it was read.
    #[error("`{name}` changed while it was read: {expected_bytes} bytes expected")]
    SourceChanged {
        name: String,
        /// Its size when it was opened.
        expected_bytes: u64,
    },
    /// Something in the source directory could not be read.
    #[error("`{name}` could not be read")]
    Source {
        name: String,
        #[source]
        source: CallError,
    },
    /// A directory of a layer could not be marked as hiding what lies below it.
    #[error("`{name}` could not be marked as opaque: user.overlay.opaque was not kept")]
    NotOpaque {
        name: String,
        #[source]
        source: CallError,
    },
    /// An entry could not be written, or not be read back.
    #[error("`{name}` could not be unpacked")]
    Target {
        name: String,
        #[source]
        source: CallError,
    },
    /// Whoever asked for it wants it no more.
    #[error("the unpacking was cancelled")]
    Cancelled,
    /// The canonical tar could not be written.
    #[error("the canonical tar could not be written")]
    Canonical(#[source] std::io::Error),
}

/// Why one entry is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EntryRefusal {
    /// The name is not a path inside the bundle.
    #[error("its name {0}; expected a relative path of plain segments")]
    Path(PathError),
    #[error("its name has {segments} segments; expected at most {limit}")]
    TooDeep { segments: usize, limit: usize },
    /// Something other than a directory is named like one.
    #[error("it is {kind} whose name ends in `/`")]
    SlashAfterName { kind: &'static str },
    /// The root is something other than a directory.
    #[error("it is {kind} named like the top directory itself")]
    RootNotDirectory { kind: &'static str },
    /// The header is malformed.
    #[error(transparent)]
    Header(HeaderError),
    /// The pax header is malformed.
    #[error(transparent)]
    Pax(PaxError),
    /// A type that bundles do not hold.
    #[error("it is {what} (type `{type_flag}`); expected a file, a directory or a link")]
    Type {
        type_flag: String,
        what: &'static str,
    },
    /// Something that the snapshot of a source does not hold.
    #[error("it is {what}; the snapshot of a source holds files and directories only")]
    NotInSnapshot { what: &'static str },
    /// Something in the source directory that bundles do not hold.
    #[error("it is {what}; expected a file, a directory or a link")]
    SourceType { what: &'static str },
    /// A directory or link with data.
    #[error("it is {kind} with {bytes} bytes of data; expected none")]
    DataWithoutFile { kind: &'static str, bytes: u64 },
    /// Two sizes, so that two readers would see two different archives.
    #[error("its size is {header_bytes} in the header and {pax_bytes} in the pax header")]
    TwoSizes { header_bytes: u64, pax_bytes: u64 },
    /// An extended header that is too long.
    #[error("its {what} is {bytes} bytes long; expected at most {}", limit(.limit_bytes))]
    ExtensionTooLong {
        what: &'static str,
        bytes: u64,
        limit_bytes: u64,
    },
    /// Two extended headers that may contradict each other.
    #[error("it has both a {first} and a {second}; expected one")]
    TwoExtensions {
        first: &'static str,
        second: &'static str,
    },
    /// An extended header at the end of the archive.
    #[error("no entry follows its {what}")]
    ExtensionWithoutEntry { what: &'static str },
    /// A GNU long name with a NUL byte in it.
    #[error("its {what} contains a NUL byte")]
    NulInLongName { what: &'static str },
    /// A global pax header that would change the entries after it.
    #[error("it is a global pax header with `{key}`, which would apply to every entry after it")]
    GlobalOverride { key: &'static str },
    /// The archive ends inside the entry.
    #[error("the tar ends in the middle of it")]
    Truncated,
    /// A symbolic link that is not kept.
    #[error("it {0}")]
    Link(LinkError),
    /// The target of a hard link is not a path inside the bundle.
    #[error("it is a hard link to `{target}`, which {error}")]
    HardLinkPath { target: String, error: PathError },
    /// The target of a hard link does not come earlier.
    #[error("it is a hard link to `{target}`, which is not an earlier entry of the archive")]
    HardLinkMissing { target: String },
    /// The target of a hard link is no file.
    #[error("it is a hard link to `{target}`, which is {found}; expected a regular file")]
    HardLinkNotFile { target: String, found: &'static str },
    /// A hard link to itself.
    #[error("it is a hard link to itself")]
    HardLinkItself,
    /// An earlier entry of the same name has another type.
    #[error("it is {here}, and an earlier entry of that name is {there}")]
    OtherType {
        there: &'static str,
        here: &'static str,
    },
    /// A second top folder, where everything should lie in one.
    #[error("it lies outside of `{top}`, the one top folder of the entries before it")]
    SecondTopFolder {
        /// The first one, escaped and shortened.
        top: String,
    },
    /// A path of a layer leads nowhere.
    #[error("its name {0}")]
    Leads(LeadsNowhere),
    /// What a layer says of those below it is wrong.
    #[error("it is a whiteout {0}")]
    Whiteout(WhiteoutError),
    /// A parent is a file.
    #[error("it lies beneath `{at}`, which is a file")]
    FileInTheWay { at: RelPath },
    /// A parent is a symbolic link.
    #[error("it lies beneath `{link}`, which is a symlink; nothing is written through one")]
    ThroughLink { link: RelPath },
}

impl EntryRefusal {
    /// Stable name of the cause.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::Path(error) => path_code(*error),
            Self::TooDeep { .. } => "path_too_deep",
            Self::SlashAfterName { .. } => "path_slash_after_name",
            Self::RootNotDirectory { .. } => "path_root",
            Self::Header(error) => error.code(),
            Self::Pax(error) => error.code(),
            Self::Type { .. } | Self::SourceType { .. } => "entry_type",
            Self::NotInSnapshot { .. } => "snapshot_entry_type",
            Self::DataWithoutFile { .. } => "data_without_file",
            Self::TwoSizes { .. } => "two_sizes",
            Self::ExtensionTooLong { .. } => "extension_too_long",
            Self::TwoExtensions { .. } => "two_extensions",
            Self::ExtensionWithoutEntry { .. } => "extension_without_entry",
            Self::NulInLongName { .. } => "long_name_nul",
            Self::GlobalOverride { .. } => "global_override",
            Self::Truncated => "tar_truncated",
            Self::Link(error) => error.code(),
            Self::HardLinkPath { .. } => "hard_link_path",
            Self::HardLinkMissing { .. } => "hard_link_missing",
            Self::HardLinkNotFile { .. } => "hard_link_not_file",
            Self::HardLinkItself => "hard_link_itself",
            Self::OtherType { .. } => "entry_other_type",
            Self::SecondTopFolder { .. } => "second_top_folder",
            Self::Leads(LeadsNowhere::Links) => "layer_path_links",
            Self::Leads(LeadsNowhere::TooLong) => "path_too_long",
            Self::Leads(LeadsNowhere::Root) => "path_root",
            Self::Whiteout(error) => error.code(),
            Self::FileInTheWay { .. } => "bundle_path_conflict",
            Self::ThroughLink { .. } => "entry_through_link",
        }
    }

    fn hint(&self) -> Option<&'static str> {
        Some(match self {
            Self::Path(PathError::Absolute | PathError::Parent | PathError::EmptySegment) => {
                "pack from inside the directory: `tar -czf bundle.tar.gz -C DIR .`"
            }
            Self::Link(_) => LINK_HINT,
            Self::Type { .. } => "leave it out, e.g. with `tar --exclude`",
            Self::NotInSnapshot { .. } => {
                "build the source again with `runner source build`, which leaves such things out"
            }
            Self::Pax(PaxError::Sparse { .. }) => "pack without `tar --sparse`",
            Self::Header(HeaderError::Star) => "pack with `tar --format=pax`",
            Self::Truncated => "the archive is incomplete: make or fetch it again",
            Self::HardLinkMissing { .. } => "pack with `tar --hard-dereference`",
            _ => return None,
        })
    }
}

impl UnpackError {
    /// An error about entry `index`.
    pub fn entry(index: u64, name: &[u8], refusal: EntryRefusal) -> Self {
        Self::Entry {
            index,
            name: shown(name),
            refusal,
        }
    }

    /// Stable name of the cause, in snake case.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::Open { .. } => "bundle_unopened",
            Self::NotAFile { .. } => "bundle_not_a_file",
            Self::Gzip(error) => error.code(),
            Self::Malformed { compression, .. } => match *compression {
                "zstd" => "zstd_malformed",
                _ => "xz_malformed",
            },
            Self::NotTar { .. } => "not_tar",
            Self::EndMissing { .. } => "tar_end_missing",
            Self::DataAfterEnd { .. } => "tar_data_after_end",
            Self::Entry { refusal, .. } => refusal.code(),
            Self::Link { error, .. } => error.code(),
            Self::TooManyEntries { .. } => "entries_limit",
            Self::TooManyBytes { .. } => "unpacked_bytes_limit",
            Self::TooLongNames { .. } => "name_bytes_limit",
            Self::TooLongHeaders { .. } => "header_bytes_limit",
            Self::SourceChanged { .. } => "source_changed",
            Self::Source { .. } => "source_unreadable",
            Self::Target { source, .. } if source.errno == Errno::NOSPC => "unpack_no_space",
            Self::Target { .. } => "unpack_failed",
            Self::NotOpaque { .. } => "layer_not_opaque",
            Self::Cancelled => "unpack_cancelled",
            Self::Canonical(_) => "canonical_unwritten",
        }
    }

    /// What to do about it, where something can be said.
    #[must_use]
    pub fn hint(&self) -> Option<String> {
        let text = match self {
            Self::Gzip(GzipError::NotGzip { .. }) | Self::NotTar { .. } => {
                "make one with `runner bundle MANIFEST -o bundle.tar.gz` or \
                 `tar -czf bundle.tar.gz -C DIR .`, or give the directory itself"
            }
            Self::Gzip(
                GzipError::Truncated { .. }
                | GzipError::Deflate { .. }
                | GzipError::Stalled { .. }
                | GzipError::Checksum { .. }
                | GzipError::Length { .. },
            )
            | Self::EndMissing { .. } => "the archive is damaged: make or fetch it again",
            Self::Gzip(GzipError::TrailingBytes { .. }) | Self::DataAfterEnd { .. } => {
                "make the archive anew; archives that were joined with `cat` are not read"
            }
            Self::Gzip(GzipError::TooLarge { .. })
            | Self::TooManyEntries { .. }
            | Self::TooManyBytes { .. }
            | Self::TooLongNames { .. }
            | Self::TooLongHeaders { .. } => {
                "leave out what the body does not need; the host policy sets the limits"
            }
            Self::NotAFile { found, .. } if *found == "a symlink" => {
                "give the path that it points to: `readlink -f` prints it"
            }
            Self::Target { source, .. } if source.errno == Errno::NOSPC => {
                "the writable space is smaller than the bundle: raise its limit"
            }
            Self::NotOpaque { .. } => {
                "layers need a file system with user.* extended attributes: name a directory on \
                 another one (oci.directory), such as ext4, xfs or btrfs"
            }
            Self::SourceChanged { .. } => "run it again once nothing writes to the directory",
            Self::Link { .. } => LINK_HINT,
            Self::Entry { refusal, .. } => return refusal.hint().map(str::to_owned),
            _ => return None,
        };
        Some(text.to_owned())
    }

    /// Whether the bundle is to blame (refused) or this host (failed).
    #[must_use]
    pub fn is_refusal(&self) -> bool {
        !matches!(
            self,
            Self::Gzip(GzipError::Read(_))
                | Self::Source { .. }
                | Self::SourceChanged { .. }
                | Self::Target { .. }
                | Self::NotOpaque { .. }
                | Self::Cancelled
                | Self::Canonical(_)
        )
    }
}

fn path_code(error: PathError) -> &'static str {
    match error {
        PathError::Empty => "path_empty",
        PathError::Absolute => "path_absolute",
        PathError::Parent => "path_parent",
        PathError::EmptySegment => "path_empty_segment",
        PathError::Nul => "path_nul",
        PathError::TooLong => "path_too_long",
        PathError::SegmentTooLong => "path_segment_too_long",
    }
}

/// A name for a message: escaped, and cut where it is long.
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
        let error = UnpackError::entry(7, &long, EntryRefusal::Path(PathError::TooLong));
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
