//! Unpacks a layer of an image, an untrusted tar, to a directory for overlayfs mounted with `userxattr`.
//!
//! Names are resolved against the symbolic links of this layer and of the layers below ([`LayerView`]),
//! so that `lib/x` goes to `usr/lib/x` if `lib` is a link to `usr/lib`. Entries are created beneath one
//! open directory, without following links. A later entry replaces an earlier one of any type. Devices
//! and fifos are skipped, owners and extended attributes are ignored: an archive cannot create a device
//! or an overlayfs attribute except by whiteouts, and these only if they hide something in a layer below.

use std::io::Read;
use std::os::fd::BorrowedFd;

use crate::ahead::Ahead;
use crate::compressed::{Compression, decode};
use crate::entries::{Entries, Member};
use crate::entry_rules::{MemberKind, Rules};
use crate::error::{Refusal, UnpackError};
use crate::hiding::Hiding;
use crate::inflated::{Cancellable, Inflated};
use crate::layer_view::LayerView;
use crate::layer_writer::{EntryPosition, LayerWriter};
use crate::path_mapping::PathMapping;
use crate::unpack::{AHEAD_FROM_BYTES, UnpackLimits};
use crate::whiteout::{self, LayerEntry};
use spec::digest::Digest;
use spec::parse_permit::ParsePermit;
use spec::path::RelPath;
use spec::report::WarningReport;

/// The result of unpacking a layer.
#[derive(Debug)]
pub struct UnpackedLayer {
    /// SHA-256 of the tar, as in the configuration of the image (`DiffID`).
    pub diff_id: Digest,
    /// The state of this layer and those below it that the next layer needs.
    pub view: LayerView,
    /// The layer hides all layers below: its root is opaque, which overlayfs itself ignores.
    pub hides_all: bool,
    /// What it hides otherwise: to be written once the layers below are at hand.
    pub hiding: Hiding,
    /// Bytes of all files of the archive, including those that a later entry replaced.
    pub bytes: u64,
    /// Approximate size on disk.
    pub disk_bytes: u64,
    /// Files, directories and links.
    pub entries: u64,
    pub files: u64,
    /// Warnings about skipped entries.
    pub warnings: Vec<WarningReport>,
}

/// Unpacks `archive`, one layer of an image, into the empty directory `into`. `view` describes the layers
/// below. Nothing is hidden of them yet ([`UnpackedLayer::hiding`]).
///
/// All files belong to the user of this process. Permission bits are kept except set-user-id and
/// set-group-id; the owner may read every file and change every directory. After an error, `into`
/// contains some of the entries: discard it. All helper threads have ended when this returns.
///
/// # Errors
/// The first rule that the archive breaks, a file system error ([`UnpackError::is_refusal`] distinguishes
/// them), or [`UnpackError::Cancelled`] once `is_cancelled` returns true.
pub fn unpack_layer(
    permit: &ParsePermit,
    archive: impl Read + Send,
    compression: Compression,
    into: BorrowedFd<'_>,
    view: LayerView,
    limits: &UnpackLimits,
    is_cancelled: &dyn Fn() -> bool,
) -> Result<UnpackedLayer, UnpackError> {
    let mut writer = LayerWriter::new(into, view, limits.tree_limits());
    let visitor = &mut LayerVisitor(&mut writer);
    let tar = read_compressed(permit, archive, compression, limits, is_cancelled, visitor)?;
    writer.finish(tar.digest, tar.bytes)
}

/// The entries of an archive with any compression.
pub(crate) type AnyEntries<'a> = Entries<'a, dyn Inflated + 'a>;

/// Processes the entries of an archive.
pub(crate) trait Visit {
    /// Data of the entry that is not read is skipped. An error ends the reading.
    fn visit(&mut self, entries: &mut AnyEntries<'_>, member: Member) -> Result<(), UnpackError>;
}

/// The digest of a tar, and the bytes of all its files.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ReadTar {
    pub digest: Digest,
    pub bytes: u64,
}

/// Passes every entry of `archive` to `visitor`.
pub(crate) fn read_compressed(
    permit: &ParsePermit,
    archive: impl Read + Send,
    compression: Compression,
    limits: &UnpackLimits,
    is_cancelled: &dyn Fn() -> bool,
    visitor: &mut dyn Visit,
) -> Result<ReadTar, UnpackError> {
    let mut source = decode(permit, archive, compression, limits.compressed_bytes);
    std::thread::scope(|scope| {
        // A thread does not speed up reading a plain file.
        let from_bytes = match compression {
            Compression::Plain => u64::MAX,
            Compression::Gzip | Compression::Zstd | Compression::Xz => AHEAD_FROM_BYTES,
        };
        let ahead = Ahead::new(scope, &mut source, from_bytes);
        let mut source = Cancellable::new(ahead, is_cancelled);
        let bytes = visit_entries(&mut source, limits, visitor);
        let (digest, ahead) = source.finish();
        ahead.end();
        bytes.map(|bytes| ReadTar { digest, bytes })
    })
}

fn visit_entries(
    source: &mut dyn Inflated,
    limits: &UnpackLimits,
    visitor: &mut dyn Visit,
) -> Result<u64, UnpackError> {
    let mut entries = Entries::new(
        source,
        limits.entry_limits(),
        Rules::Layer,
        PathMapping::Unchanged,
    );
    while let Some(member) = entries.next_member()? {
        visitor.visit(&mut entries, member)?;
    }
    Ok(entries.file_bytes())
}

/// Writes the entries of an image layer, with whiteouts; a directory replaces a link.
struct LayerVisitor<'writer, 'a>(&'writer mut LayerWriter<'a>);

impl Visit for LayerVisitor<'_, '_> {
    fn visit(&mut self, entries: &mut AnyEntries<'_>, member: Member) -> Result<(), UnpackError> {
        let Self(writer) = self;
        // The mode of the root is that of the top layer, which belongs to the run.
        let Some(path) = &member.path else {
            return Ok(());
        };
        let at = position(&member);
        let entry =
            whiteout::classify(path, &member.kind).map_err(|refusal| at.refused(refusal))?;
        match entry {
            LayerEntry::Ordinary => {
                let path = writer.resolve(at, path)?;
                match &member.kind {
                    MemberKind::Directory => writer.add_directory(at, &path, member.mode),
                    _ => add_non_directory(entries, writer, path, &member),
                }
            }
            LayerEntry::Aufs => {
                writer.leave_out(&member.name, "an AUFS file");
                Ok(())
            }
            LayerEntry::Whiteout { directory, name } => {
                let directory = resolve_whiteout_directory(writer, at, directory.as_ref())?;
                writer.add_whiteout(at, &join(at, directory.as_ref(), &name)?)
            }
            LayerEntry::Opaque { directory } => {
                let directory = resolve_whiteout_directory(writer, at, directory.as_ref())?;
                writer.add_opaque(at, directory.as_ref())
            }
        }
    }
}

/// Writes the entries of a package, as dpkg treats them: no special names, and an existing directory
/// of the layer stays unchanged, even behind a link.
pub(crate) struct PackageVisitor<'writer, 'a>(pub &'writer mut LayerWriter<'a>);

impl Visit for PackageVisitor<'_, '_> {
    fn visit(&mut self, entries: &mut AnyEntries<'_>, member: Member) -> Result<(), UnpackError> {
        let Self(writer) = self;
        let Some(path) = &member.path else {
            return Ok(());
        };
        let at = position(&member);
        if member.kind != MemberKind::Directory {
            let path = writer.resolve(at, path)?;
            return add_non_directory(entries, writer, path, &member);
        }
        match writer.resolve_directory(at, path)? {
            Some(path) if !writer.has(&path) => writer.add_directory(at, &path, member.mode),
            _ => Ok(()),
        }
    }
}

pub(crate) fn add_non_directory(
    entries: &mut AnyEntries<'_>,
    writer: &mut LayerWriter<'_>,
    path: RelPath,
    member: &Member,
) -> Result<(), UnpackError> {
    let at = position(member);
    match &member.kind {
        MemberKind::Directory => Ok(()),
        MemberKind::Special { what } => {
            writer.leave_out(&member.name, what);
            Ok(())
        }
        MemberKind::Symlink { target } => writer.add_symlink(at, &path, target.clone()),
        MemberKind::HardLink { target } => {
            let from = writer.resolve(at, target)?;
            writer.add_hard_link(at, &path, &from)
        }
        MemberKind::File { .. } => {
            let mut file = writer.add_file(at, path, member.mode)?;
            entries.read_data(&mut |data| file.write(data))?;
            file.end(member.modified_s)
        }
    }
}

pub(crate) fn position(member: &Member) -> EntryPosition<'_> {
    EntryPosition {
        index: member.index,
        name: &member.name,
    }
}

/// `None` is the root.
fn resolve_whiteout_directory(
    writer: &LayerWriter<'_>,
    at: EntryPosition<'_>,
    directory: Option<&RelPath>,
) -> Result<Option<RelPath>, UnpackError> {
    match directory {
        Some(directory) => writer.resolve_directory(at, directory),
        None => Ok(None),
    }
}

pub(crate) fn join(
    at: EntryPosition<'_>,
    directory: Option<&RelPath>,
    name: &[u8],
) -> Result<RelPath, UnpackError> {
    RelPath::parse_in(directory, name).map_err(|error| at.refused(Refusal::path(error)))
}
