//! A bundle that is read and not unpacked: the same rules and the same tree, and nothing is made.

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

/// Of a longer document a byte more stays, so that whoever reads it sees that it is longer.
const DOCUMENT_BYTES_MAX: u64 = (1 << 20) + 1;
/// What the kernel reads of a program to learn who runs it (BINPRM_BUF_SIZE of linux/binfmts.h).
const HEAD_BYTES: u64 = 256;
/// What stays of all files but those that were named.
const KEPT_BYTES_MAX: u64 = 16 << 20;
/// Files in which a manifest or a block of one may stand.
const DOCUMENT_ENDINGS: [&[u8]; 4] = [b".json", b".md", b".yaml", b".yml"];

/// What was found in a bundle.
#[derive(Debug)]
pub struct Surveyed {
    /// SHA-256 of the canonical tar; `None` where its entries did not come in that order, so that
    /// only unpacking tells.
    pub content_digest: Option<Digest>,
    /// SHA-256 of the archive's bytes as they were read; `None` for a directory.
    pub archive_digest: Option<Digest>,
    /// Bytes of all files.
    pub bytes: u64,
    /// Files, directories and links.
    pub entries: u64,
    pub tree: Tree,
    /// What would be left out, and what may surprise elsewhere.
    pub warnings: Vec<WarningReport>,
    pub(crate) kept: Kept,
}

impl Surveyed {
    /// The first bytes of a file: all of a named one and of most other documents, up to 1 MiB and
    /// one byte, 256 of a program; `None` where nothing of it was kept.
    #[must_use]
    pub fn head(&self, path: &RelPath) -> Option<&[u8]> {
        match self.tree.get(path)? {
            Entry::File { .. } => self.kept.files.get(path).map(|file| file.bytes.as_slice()),
            Entry::Directory | Entry::Symlink { .. } => None,
        }
    }
}

/// What stays of the files of a bundle that is not unpacked.
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
    /// Whatever else there is, of the files of these names there will be as much as is wanted.
    fn with_all_of(named: &[&str]) -> Self {
        let named = named
            .iter()
            .filter_map(|name| RelPath::parse(name.as_bytes()).ok());
        Self {
            named: named.collect(),
            ..Self::default()
        }
    }

    /// A file of `bytes` bytes begins.
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

    /// More of the file that began last.
    pub fn data(&mut self, path: &RelPath, data: &[u8]) {
        if let Some(file) = self.files.get_mut(path) {
            let left = file.wanted.saturating_sub(file.bytes.len());
            file.bytes.extend_from_slice(&data[..left.min(data.len())]);
        }
    }

    /// What was kept of a file.
    pub fn of(&self, path: &RelPath) -> Option<Vec<u8>> {
        self.files.get(path).map(|file| file.bytes.clone())
    }
}

/// Reads `archive` as [`crate::unpack()`] does, and makes nothing of it. `named` are files
/// whose contents are wanted whatever their number and size.
///
/// # Errors
/// As [`crate::unpack()`], but for what only a file system can refuse.
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
/// As [`crate::unpack_directory`], but for what only a file system can refuse.
pub fn survey_directory(
    source: BorrowedFd<'_>,
    limits: &UnpackLimits,
    named: &[&str],
) -> Result<Surveyed, UnpackError> {
    let writer = TreeWriter::without_image(limits.tree(), Kept::with_all_of(named));
    read_directory(source, writer, limits)?.survey(None)
}
