//! Reads a bundle without unpacking it: the same rules and the same tree, but no files are created.

use std::collections::BTreeMap;
use std::io::Read;
use std::os::fd::BorrowedFd;

use crate::error::UnpackError;
use crate::pack::read_directory;
use crate::path_mapping::PathMapping;
use crate::tree::{Entry, Tree};
use crate::tree_writer::TreeWriter;
use crate::unpack::{UnpackLimits, read_archive};
use spec::digest::Digest;
use spec::parse_permit::ParsePermit;
use spec::path::RelPath;
use spec::report::WarningReport;

/// One byte more than the limit for documents, so that readers detect a longer one.
const DOCUMENT_BYTES_MAX: u64 = (1 << 20) + 1;
/// Bytes that the kernel reads to find a program's interpreter (BINPRM_BUF_SIZE of linux/binfmts.h).
const PROGRAM_HEAD_BYTES: u64 = 256;
/// Maximum number of bytes kept of all files except the named ones, with their paths.
const KEPT_BYTES_MAX: u64 = 16 << 20;

/// Maximum number of bytes kept of all files, with their paths, if `named` are named.
#[must_use]
pub fn kept_bytes_max(named: &[&str]) -> u64 {
    let paths = named.iter().map(|name| name.len() as u64);
    KEPT_BYTES_MAX + paths.map(|path| path + DOCUMENT_BYTES_MAX).sum::<u64>()
}
/// Estimate of what an entry of the map takes besides the path and the contents.
const KEPT_ENTRY_BYTES: u64 = 150;
/// Extensions of files that may contain a manifest or a block of one.
const DOCUMENT_EXTENSIONS: [&[u8]; 4] = [b".json", b".md", b".yaml", b".yml"];

/// The result of reading a bundle.
#[derive(Debug)]
pub struct Surveyed {
    /// SHA-256 of the canonical tar; `None` if the entries were not in canonical order, so that the
    /// digest requires unpacking.
    pub content_digest: Option<Digest>,
    /// SHA-256 of the archive's bytes as read; `None` for a directory.
    pub archive_digest: Option<Digest>,
    /// Bytes of all files.
    pub bytes: u64,
    /// Files, directories and links.
    pub entries: u64,
    pub tree: Tree,
    /// Warnings about skipped entries and portability.
    pub warnings: Vec<WarningReport>,
    /// The first bytes of files: see [`Self::head`].
    pub kept: BTreeMap<RelPath, Vec<u8>>,
}

impl Surveyed {
    /// The first bytes of a file: all of a named file and of most other documents, up to 1 MiB and one
    /// byte, 256 bytes of a program; `None` if nothing was kept.
    #[must_use]
    pub fn head(&self, path: &RelPath) -> Option<&[u8]> {
        match self.tree.get(path)? {
            Entry::File { bytes: 0, .. } => Some(&[]),
            Entry::File { .. } => self.kept.get(path).map(Vec::as_slice),
            Entry::Directory | Entry::Symlink { .. } => None,
        }
    }
}

/// File contents of a bundle that is not unpacked.
#[derive(Debug, Default)]
pub(crate) struct KeptContents {
    /// Kept regardless of the limit for all files.
    named: Vec<RelPath>,
    files: BTreeMap<RelPath, KeptFile>,
    /// Counted against [`KEPT_BYTES_MAX`].
    reserved_bytes: u64,
}

#[derive(Debug)]
struct KeptFile {
    bytes: Vec<u8>,
    bytes_max: usize,
}

impl KeptContents {
    fn with_named_files(named: &[&str]) -> Self {
        let named = named
            .iter()
            .filter_map(|name| RelPath::parse(name.as_bytes()).ok());
        Self {
            named: named.collect(),
            ..Self::default()
        }
    }

    /// Starts a file of `bytes` bytes.
    pub(crate) fn begin_file(&mut self, path: &RelPath, executable: bool, bytes: u64) {
        self.files.remove(path);
        if bytes == 0 {
            return;
        }
        let is_document = DOCUMENT_EXTENSIONS
            .iter()
            .any(|extension| path.file_name().ends_with(extension));
        let is_named = self.named.contains(path);
        let bytes_max = if is_named || is_document {
            bytes.min(DOCUMENT_BYTES_MAX)
        } else if executable {
            bytes.min(PROGRAM_HEAD_BYTES)
        } else {
            return;
        };
        if !is_named {
            let path_bytes = path.as_bytes().len() as u64;
            let entry_bytes = path_bytes + KEPT_ENTRY_BYTES + bytes_max;
            let reserved = self.reserved_bytes.saturating_add(entry_bytes);
            if reserved > KEPT_BYTES_MAX {
                return;
            }
            self.reserved_bytes = reserved;
        }
        let file = KeptFile {
            bytes: Vec::new(),
            bytes_max: usize::try_from(bytes_max).unwrap_or(0),
        };
        self.files.insert(path.clone(), file);
    }

    pub(crate) fn add_data(&mut self, path: &RelPath, data: &[u8]) {
        if let Some(file) = self.files.get_mut(path) {
            let left = file.bytes_max.saturating_sub(file.bytes.len());
            file.bytes.extend_from_slice(&data[..left.min(data.len())]);
        }
    }

    /// Removes the contents of a copy if less was kept of the copied file.
    pub(crate) fn remove_incomplete(&mut self, path: &RelPath) {
        let is_incomplete = |file: &KeptFile| file.bytes.len() < file.bytes_max;
        if self.files.get(path).is_some_and(is_incomplete) {
            self.files.remove(path);
        }
    }

    pub(crate) fn contents(&self, path: &RelPath) -> Option<&[u8]> {
        self.files.get(path).map(|file| file.bytes.as_slice())
    }

    pub(crate) fn finish(self) -> BTreeMap<RelPath, Vec<u8>> {
        let files = self.files.into_iter();
        files.map(|(path, file)| (path, file.bytes)).collect()
    }
}

/// Reads `archive` as [`crate::unpack()`] does, without creating files. The contents of the `named` files
/// are kept regardless of the limit for all files.
///
/// # Errors
/// As [`crate::unpack()`], except file system errors.
pub fn survey(
    permit: &ParsePermit,
    archive: impl Read + Send,
    limits: &UnpackLimits,
    named: &[&str],
) -> Result<Surveyed, UnpackError> {
    let kept = KeptContents::with_named_files(named);
    let mut writer = TreeWriter::without_files(limits.tree_limits(), kept);
    let (archive_digest, _) =
        read_archive(permit, archive, &mut writer, limits, PathMapping::Unchanged)?;
    writer.finish_survey(Some(archive_digest))
}

/// As [`survey`], for a directory: see [`crate::unpack_directory`].
///
/// # Errors
/// As [`crate::unpack_directory`], except file system errors of the target.
pub fn survey_directory(
    source: BorrowedFd<'_>,
    limits: &UnpackLimits,
    named: &[&str],
) -> Result<Surveyed, UnpackError> {
    let kept = KeptContents::with_named_files(named);
    let writer = TreeWriter::without_files(limits.tree_limits(), kept);
    read_directory(source, writer, limits)?.finish_survey(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_contents_of_a_hard_link_are_those_of_the_file_or_unknown() {
        let path = |text: &str| RelPath::parse(text.as_bytes()).expect("a path");
        let limits = UnpackLimits::default().tree_limits();
        let mut writer = TreeWriter::without_files(limits, KeptContents::default());
        for (name, link) in [("notes", "notes.md"), ("a.yaml", "b.yaml")] {
            let mut file = writer.add_file(1, path(name), false, 4).expect("fits");
            file.write(b"text").expect("kept");
            file.end();
            let copied = writer.add_copy(2, path(link), &path(name), false, 4);
            copied.expect("fits");
        }
        let empty = writer.add_file(3, path("empty"), true, 0);
        empty.expect("fits").end();
        let surveyed = writer.finish_survey(None).expect("no links");
        assert_eq!(surveyed.head(&path("empty")), Some(&[][..]));
        assert_eq!(surveyed.head(&path("notes.md")), None);
        assert_eq!(surveyed.head(&path("b.yaml")), Some(&b"text"[..]));
    }

    #[test]
    fn what_is_kept_of_many_programs_is_limited_with_their_paths() {
        let path = |number: u32| RelPath::parse(format!("{number:0>200}").as_bytes());
        let mut kept = KeptContents::default();
        for number in 0..100_000 {
            kept.begin_file(&path(number).expect("a path"), true, 0);
        }
        assert_eq!(kept.files.len(), 0);
        for number in 0..100_000 {
            kept.begin_file(&path(number).expect("a path"), true, 1);
        }
        let bytes = kept.files.keys().map(|path| path.as_bytes().len() as u64);
        assert!(bytes.sum::<u64>() <= KEPT_BYTES_MAX, "{}", kept.files.len());
        assert!(kept.files.len() > 10_000, "{}", kept.files.len());
    }
}
