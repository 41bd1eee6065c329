//! Unpacks an untrusted tar.gz beneath an open directory.

use std::io::Read;
use std::os::fd::BorrowedFd;

use crate::ahead::Ahead;
use crate::compressed::{Compression, Hashed, decode};
use crate::entries::{Entries, EntryLimits, Member};
use crate::entry_rules::{MemberKind, Rules};
use crate::error::{Refusal, UnpackError, shown};
use crate::inflated::Inflated;
use crate::path_mapping::PathMapping;
use crate::tree::{Entry, Tree, TreeLimits};
use crate::tree_writer::{TreeWriter, is_in_version_control};
use spec::digest::Digest;
use spec::parse_permit::ParsePermit;
use spec::path::RelPath;
use spec::report::WarningReport;

/// Limits of a bundle.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UnpackLimits {
    /// Size of the archive as read.
    pub compressed_bytes: u64,
    /// Bytes of all files, including those that a later entry replaces or that are excluded.
    pub unpacked_bytes: u64,
    /// Files, links and directories, including implied parent directories. Names may take 120 bytes and
    /// headers 4 KiB for each on average.
    pub entries: u64,
}

impl Default for UnpackLimits {
    /// 100 MiB, 1 GiB, 100,000.
    fn default() -> Self {
        Self {
            compressed_bytes: 100 * 1024 * 1024,
            unpacked_bytes: 1024 * 1024 * 1024,
            entries: 100_000,
        }
    }
}

impl UnpackLimits {
    pub(crate) fn entry_limits(&self) -> EntryLimits {
        const HEADER_BYTES_PER_ENTRY: u64 = 4096;
        const HEADER_BYTES_MIN: u64 = 2 * 1024 * 1024;
        EntryLimits {
            entries: self.entries,
            file_bytes: self.unpacked_bytes,
            header_bytes: self
                .entries
                .saturating_mul(HEADER_BYTES_PER_ENTRY)
                .saturating_add(HEADER_BYTES_MIN),
        }
    }

    /// Limits of the tree: the entries, and 120 bytes of names for each on average.
    pub fn tree_limits(&self) -> TreeLimits {
        // A higher value needs more than 64 MiB of memory for the longest lists of names.
        const NAME_BYTES_PER_ENTRY: u64 = 120;
        const NAME_BYTES_MIN: u64 = 1024 * 1024;
        TreeLimits {
            entries: self.entries,
            name_bytes: NAME_BYTES_MIN.max(self.entries.saturating_mul(NAME_BYTES_PER_ENTRY)),
        }
    }
}

/// The result of unpacking.
#[derive(Debug, Clone)]
pub struct Unpacked {
    /// SHA-256 of the canonical tar: the bundle's identity.
    pub content_digest: Digest,
    /// SHA-256 of the archive's bytes as read; `None` for a directory.
    pub archive_digest: Option<Digest>,
    /// Bytes of all files.
    pub bytes: u64,
    /// Files, directories and links.
    pub entries: u64,
    pub tree: Tree,
    /// Warnings about excluded entries and portability.
    pub warnings: Vec<WarningReport>,
}

/// Unpacks `archive`, a gzip-compressed tar, into the empty directory `into`.
///
/// Each entry is checked before it is created; links are created last, after the whole archive is read
/// and valid. At most a few hundred KiB of contents are in memory. After an error, `into` contains some
/// of the entries: discard it.
///
/// # Errors
/// The first rule that the archive breaks, or a file system error: [`UnpackError::is_refusal`]
/// distinguishes them.
pub fn unpack(
    permit: &ParsePermit,
    archive: impl Read + Send,
    into: BorrowedFd<'_>,
    limits: &UnpackLimits,
) -> Result<Unpacked, UnpackError> {
    let mut writer = TreeWriter::new(into, limits.tree_limits(), None);
    let (digest, _) = read_archive(permit, archive, &mut writer, limits, PathMapping::Unchanged)?;
    writer.finish(into, Some(digest))
}

/// Number of inflated bytes after which [`unpack_ahead`] should start its thread: unpacking fewer bytes
/// takes no longer than starting a thread.
pub const AHEAD_FROM_BYTES: u64 = 512 * 1024;

/// As [`unpack`], with a second thread that reads and inflates `archive` ahead after `ahead_from_bytes`
/// inflated bytes ([`AHEAD_FROM_BYTES`]), and without the digest of the archive. The thread has ended when
/// this returns.
///
/// For archives whose reads do not block, such as files: a refusal is returned only after a read in
/// progress has returned.
///
/// # Errors
/// As [`unpack`].
pub fn unpack_ahead(
    permit: &ParsePermit,
    archive: impl Read + Send,
    into: BorrowedFd<'_>,
    limits: &UnpackLimits,
    ahead_from_bytes: u64,
) -> Result<Unpacked, UnpackError> {
    let mut writer = TreeWriter::new(into, limits.tree_limits(), None);
    write_ahead(
        permit,
        archive,
        &mut writer,
        limits,
        ahead_from_bytes,
        Rules::Bundle,
    )?;
    writer.finish(into, None)
}

/// As [`unpack_ahead`], for the snapshot of a source: links, devices and all other entries except files
/// and directories are refused by name before anything is created for them.
///
/// # Errors
/// As [`unpack`]; an entry that is neither a file nor a directory.
pub fn unpack_snapshot(
    permit: &ParsePermit,
    archive: impl Read + Send,
    into: BorrowedFd<'_>,
    limits: &UnpackLimits,
) -> Result<Unpacked, UnpackError> {
    let mut writer = TreeWriter::new(into, limits.tree_limits(), None);
    let mut archive = Hashed::new(archive);
    write_ahead(
        permit,
        &mut archive,
        &mut writer,
        limits,
        AHEAD_FROM_BYTES,
        Rules::Snapshot,
    )?;
    writer.finish(into, Some(archive.digest()))
}

fn write_ahead(
    permit: &ParsePermit,
    mut archive: impl Read + Send,
    writer: &mut TreeWriter<'_>,
    limits: &UnpackLimits,
    ahead_from_bytes: u64,
    rules: Rules,
) -> Result<(), UnpackError> {
    let mut source = decode(
        permit,
        &mut archive,
        Compression::Gzip,
        limits.compressed_bytes,
    );
    std::thread::scope(|scope| {
        let mut ahead = Ahead::new(scope, &mut source, ahead_from_bytes);
        let mapping = PathMapping::Unchanged;
        let written = write_entries(&mut ahead, writer, limits, rules, mapping);
        ahead.end();
        written
    })?;
    Ok(())
}

/// An archive from a repository hosting service.
#[derive(Debug)]
pub struct HostedArchive {
    /// The files of the requested folder.
    pub unpacked: Unpacked,
    /// The comment of `git archive`: the commit.
    pub comment: Option<Vec<u8>>,
    /// What the archive contains instead of the requested folder; `None` if it has the folder.
    pub instead: Option<&'static str>,
}

/// Unpacks an archive of a repository hosting service, with all entries in one top folder, which is
/// stripped. Only entries below `folder` are unpacked, with `folder` as the root.
///
/// # Errors
/// As [`unpack`]; entries outside `folder` count towards the limits, but their links are not checked.
pub fn unpack_hosted(
    permit: &ParsePermit,
    archive: impl Read + Send,
    into: BorrowedFd<'_>,
    limits: &UnpackLimits,
    folder: Option<RelPath>,
) -> Result<HostedArchive, UnpackError> {
    let mut writer = TreeWriter::new(into, limits.tree_limits(), None);
    let mapping = PathMapping::below_top_folder(folder);
    let (digest, facts) = read_archive(permit, archive, &mut writer, limits, mapping)?;
    Ok(HostedArchive {
        unpacked: writer.finish(into, Some(digest))?,
        comment: facts.comment,
        instead: facts.instead,
    })
}

/// Fields of [`HostedArchive`] that are known after the last entry.
pub(crate) struct ArchiveFacts {
    comment: Option<Vec<u8>>,
    instead: Option<&'static str>,
}

/// Passes every entry of `archive` to `writer`; returns the digest of the archive's bytes.
pub(crate) fn read_archive(
    permit: &ParsePermit,
    archive: impl Read + Send,
    writer: &mut TreeWriter<'_>,
    limits: &UnpackLimits,
    mapping: PathMapping,
) -> Result<(Digest, ArchiveFacts), UnpackError> {
    let mut archive = Hashed::new(archive);
    let mut source = decode(
        permit,
        &mut archive,
        Compression::Gzip,
        limits.compressed_bytes,
    );
    let facts = write_entries(&mut source, writer, limits, Rules::Bundle, mapping)?;
    drop(source);
    Ok((archive.digest(), facts))
}

fn write_entries(
    source: &mut impl Inflated,
    writer: &mut TreeWriter<'_>,
    limits: &UnpackLimits,
    rules: Rules,
    mapping: PathMapping,
) -> Result<ArchiveFacts, UnpackError> {
    let mut entries = Entries::new(source, limits.entry_limits(), rules, mapping);
    let mut copied_bytes = 0;
    while let Some(member) = entries.next_member()? {
        let executable = member.executable();
        let Member {
            index, path, kind, ..
        } = member;
        // The bundle's root directory exists and stays unchanged; entries outside the requested folder
        // are skipped.
        let Some(path) = path else {
            continue;
        };
        if is_in_version_control(&path) {
            writer.leave_out(path);
            continue;
        }
        match kind {
            MemberKind::Directory => writer.add_directory(index, path)?,
            MemberKind::Symlink { target } => writer.add_symlink(index, path, target)?,
            MemberKind::File { bytes } => {
                let mut file = writer.add_file(index, path, executable, bytes)?;
                entries.read_data(&mut |data| file.write(data))?;
                file.end();
            }
            MemberKind::HardLink { target } => {
                let (executable, bytes) = linked_file(writer.tree(), index, &path, &target)?;
                copied_bytes += bytes;
                if entries.file_bytes() + copied_bytes > limits.unpacked_bytes {
                    return Err(UnpackError::TooManyBytes {
                        index,
                        name: shown(path.as_bytes()),
                        limit_bytes: limits.unpacked_bytes,
                    });
                }
                writer.add_copy(index, path, &target, executable, bytes)?;
            }
            // The rules of bundles and snapshots refuse special files.
            MemberKind::Special { what } => {
                let refusal = Refusal::not_in_snapshot(what);
                return Err(UnpackError::entry(index, path.as_bytes(), refusal));
            }
        }
    }
    Ok(ArchiveFacts {
        comment: entries.comment().map(<[u8]>::to_vec),
        instead: entries.mapping().found_instead(),
    })
}

/// Mode and size of the earlier regular file that is the target of a hard link.
fn linked_file(
    tree: &Tree,
    index: u64,
    path: &RelPath,
    target: &RelPath,
) -> Result<(bool, u64), UnpackError> {
    let refusal = match tree.get(target) {
        _ if path == target => Refusal::hard_link_to_itself(),
        Some(Entry::File { executable, bytes }) => return Ok((*executable, *bytes)),
        Some(other) => Refusal::hard_link_not_file(target.as_bytes(), other.kind()),
        None => Refusal::hard_link_missing(target.as_bytes()),
    };
    Err(UnpackError::entry(index, path.as_bytes(), refusal))
}
