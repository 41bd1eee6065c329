//! Reads a bundle without unpacking it: the same rules and the same tree, but no files are created.

use std::collections::BTreeMap;
use std::io::Read;
use std::os::fd::BorrowedFd;

use crate::error::UnpackError;
use crate::pack::read_directory;
use crate::placing::Placing;
use crate::tree::{Entry, Tree};
use crate::tree_writer::TreeWriter;
use crate::unpack::{UnpackLimits, read_archive};
use spec::digest::Digest;
use spec::path::RelPath;
use spec::report::WarningReport;

/// One byte more than the maximum of a document, so that readers detect a longer one.
const DOCUMENT_BYTES_MAX: u64 = (1 << 20) + 1;
/// Bytes that the kernel reads to find a program's interpreter (BINPRM_BUF_SIZE of linux/binfmts.h).
const HEAD_BYTES: u64 = 256;
/// Maximum number of bytes kept of all files except the named ones.
const KEPT_BYTES_MAX: u64 = 16 << 20;
/// Extensions of files that may contain a manifest or a block of one.
const DOCUMENT_ENDINGS: [&[u8]; 4] = [b".json", b".md", b".yaml", b".yml"];

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
    pub(crate) kept: Kept,
}

impl Surveyed {
    /// The first bytes of a file: all of a named file and of most other documents, up to 1 MiB and one
    /// byte, 256 bytes of a program; `None` if nothing was kept.
    #[must_use]
    pub fn head(&self, path: &RelPath) -> Option<&[u8]> {
        match self.tree.get(path)? {
            Entry::File { .. } => self.kept.files.get(path).map(|file| file.bytes.as_slice()),
            Entry::Directory | Entry::Symlink { .. } => None,
        }
    }
}

/// The kept contents of a bundle that is not unpacked.
#[derive(Debug, Default)]
pub struct Kept {
    named: Vec<RelPath>,
    files: BTreeMap<RelPath, KeptFile>,
    spent_bytes: u64,
}

#[derive(Debug)]
struct KeptFile {
    bytes: Vec<u8>,
    wanted: usize,
}

impl Kept {
    /// Creates a store that keeps the named files regardless of the total limit.
    fn with_all_of(named: &[&str]) -> Self {
        let named = named
            .iter()
            .filter_map(|name| RelPath::parse(name.as_bytes()).ok());
        Self {
            named: named.collect(),
            ..Self::default()
        }
    }

    /// Starts a file of `bytes` bytes.
    pub fn begin(&mut self, path: &RelPath, executable: bool, bytes: u64) {
        self.files.remove(path);
        let is_document = DOCUMENT_ENDINGS
            .iter()
            .any(|ending| path.file_name().ends_with(ending));
        let is_named = self.named.contains(path);
        let wanted = match (is_named || is_document, executable) {
            (true, _) => bytes.min(DOCUMENT_BYTES_MAX),
            (false, true) => bytes.min(HEAD_BYTES),
            (false, false) => return,
        };
        if !is_named {
            let spent = self.spent_bytes.saturating_add(wanted);
            if KEPT_BYTES_MAX < spent {
                return;
            }
            self.spent_bytes = spent;
        }
        let file = KeptFile {
            bytes: Vec::new(),
            wanted: usize::try_from(wanted).unwrap_or(0),
        };
        self.files.insert(path.clone(), file);
    }

    /// Adds data of the current file.
    pub fn data(&mut self, path: &RelPath, data: &[u8]) {
        if let Some(file) = self.files.get_mut(path) {
            let left = file.wanted.saturating_sub(file.bytes.len());
            file.bytes.extend_from_slice(&data[..left.min(data.len())]);
        }
    }

    /// The kept contents of a file.
    pub fn of(&self, path: &RelPath) -> Option<Vec<u8>> {
        self.files.get(path).map(|file| file.bytes.clone())
    }
}

/// Reads `archive` as [`crate::unpack()`] does, without creating files. The contents of the `named` files
/// are kept regardless of the limit for all files.
///
/// # Errors
/// As [`crate::unpack()`], except file system errors.
pub fn survey(
    archive: impl Read + Send,
    limits: &UnpackLimits,
    named: &[&str],
) -> Result<Surveyed, UnpackError> {
    let mut writer = TreeWriter::without_image(limits.tree(), Kept::with_all_of(named));
    let (archive_digest, _) = read_archive(archive, &mut writer, limits, Placing::AsNamed)?;
    writer.survey(Some(archive_digest))
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
    let writer = TreeWriter::without_image(limits.tree(), Kept::with_all_of(named));
    read_directory(source, writer, limits)?.survey(None)
}
