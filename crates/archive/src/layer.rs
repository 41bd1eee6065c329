//! Layers of images: unpacks an untrusted tar to a directory for overlayfs, mounted with `userxattr`.
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
use crate::inflated::{Inflated, Watched};
use crate::layer_view::LayerView;
pub use crate::layer_writer::Below;
use crate::layer_writer::{At, LayerWriter, WrittenLayer};
use crate::placing::Placing;
use crate::unpack::{AHEAD_FROM_BYTES, UnpackLimits};
use crate::whiteout::{Meaning, meaning};
use spec::digest::Digest;
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
    /// The layer is empty and hides nothing itself.
    pub is_empty: bool,
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
/// below, and `below` looks paths up in them.
///
/// All files belong to the user of this process. Permission bits are kept except set-user-id and
/// set-group-id; the owner may read every file and change every directory. After an error, `into`
/// contains some of the entries: discard it. All helper threads have ended when this returns.
///
/// # Errors
/// The first rule that the archive breaks, a file system error ([`UnpackError::is_refusal`] distinguishes
/// them), or [`UnpackError::Cancelled`] once `is_cancelled` returns true.
pub fn unpack_layer(
    archive: impl Read + Send,
    compression: Compression,
    into: BorrowedFd<'_>,
    view: LayerView,
    below: Below<'_>,
    limits: &UnpackLimits,
    is_cancelled: &dyn Fn() -> bool,
) -> Result<UnpackedLayer, UnpackError> {
    let mut writer = LayerWriter::new(into, view, below, limits.tree());
    let visitor = &mut LayerEntries(&mut writer);
    let read = read_compressed(archive, compression, limits, is_cancelled, visitor)?;
    Ok(UnpackedLayer::of(writer.finish()?, read.digest, read.bytes))
}

impl UnpackedLayer {
    pub(crate) fn of(written: WrittenLayer, diff_id: Digest, bytes: u64) -> Self {
        Self {
            diff_id,
            bytes,
            view: written.view,
            hides_all: written.hides_all,
            is_empty: written.is_empty,
            disk_bytes: written.disk_bytes,
            entries: written.entries,
            files: written.files,
            warnings: written.warnings,
        }
    }
}

/// The entries of an archive with any compression.
pub(crate) type AnyEntries<'a> = Entries<'a, dyn Inflated + 'a>;

/// Processes the entries of an archive.
pub(crate) trait Visit {
    /// Processes one entry; unread data is skipped.
    ///
    /// # Errors
    /// Any error that ends the reading.
    fn entry(&mut self, entries: &mut AnyEntries<'_>, member: Member) -> Result<(), UnpackError>;
}

/// The result of reading an archive.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ReadLayer {
    /// SHA-256 of the tar.
    pub digest: Digest,
    /// Bytes of all files.
    pub bytes: u64,
}

/// Passes every entry of `archive` to `visitor`.
///
/// # Errors
/// As [`unpack_layer`].
pub(crate) fn read_compressed(
    archive: impl Read + Send,
    compression: Compression,
    limits: &UnpackLimits,
    is_cancelled: &dyn Fn() -> bool,
    visitor: &mut dyn Visit,
) -> Result<ReadLayer, UnpackError> {
    let mut source = decode(archive, compression, limits.compressed_bytes);
    std::thread::scope(|scope| {
        // A thread does not speed up reading a plain file.
        let from_bytes = match compression {
            Compression::Plain => u64::MAX,
            Compression::Gzip | Compression::Zstd | Compression::Xz => AHEAD_FROM_BYTES,
        };
        let ahead = Ahead::new(scope, &mut source, from_bytes);
        let mut watched = Watched::new(ahead, is_cancelled);
        let bytes = show_entries(&mut watched, limits, visitor);
        let (digest, ahead) = watched.finish();
        ahead.end();
        bytes.map(|bytes| ReadLayer { digest, bytes })
    })
}

fn show_entries(
    source: &mut dyn Inflated,
    limits: &UnpackLimits,
    visitor: &mut dyn Visit,
) -> Result<u64, UnpackError> {
    let mut entries = Entries::new(source, limits.entry(), Rules::Layer, Placing::AsNamed);
    while let Some(member) = entries.next_member()? {
        visitor.entry(&mut entries, member)?;
    }
    Ok(entries.file_bytes())
}

/// Entries of an image layer, with whiteouts; a directory replaces a link.
struct LayerEntries<'writer, 'a>(&'writer mut LayerWriter<'a>);

impl Visit for LayerEntries<'_, '_> {
    fn entry(&mut self, entries: &mut AnyEntries<'_>, member: Member) -> Result<(), UnpackError> {
        let Self(writer) = self;
        // The mode of the root is that of the top layer, which belongs to the run.
        let Some(named) = &member.path else {
            return Ok(());
        };
        let at = at(&member);
        let meant = meaning(named, &member.kind).map_err(|refusal| at.refused(refusal))?;
        match meant {
            Meaning::Plain => {
                let path = writer.place(at, named)?;
                match &member.kind {
                    MemberKind::Directory => writer.directory(at, &path, member.mode),
                    _ => no_directory(entries, writer, path, &member),
                }
            }
            Meaning::Aufs => {
                writer.leave_out(&member.name, "a note of AUFS");
                Ok(())
            }
            Meaning::Gone { directory, name } => {
                let directory = below_root(writer, at, directory.as_ref())?;
                writer.whiteout(at, &child(at, directory.as_ref(), &name)?)
            }
            Meaning::Opaque { directory } => {
                let directory = below_root(writer, at, directory.as_ref())?;
                writer.opaque(at, directory.as_ref())
            }
        }
    }
}

/// Entries of a package, as dpkg treats them: no special names, and an existing directory stays
/// unchanged, even behind a link.
pub(crate) struct PackageEntries<'writer, 'a>(pub &'writer mut LayerWriter<'a>);

impl Visit for PackageEntries<'_, '_> {
    fn entry(&mut self, entries: &mut AnyEntries<'_>, member: Member) -> Result<(), UnpackError> {
        let Self(writer) = self;
        let Some(named) = &member.path else {
            return Ok(());
        };
        let at = at(&member);
        if member.kind != MemberKind::Directory {
            let path = writer.place(at, named)?;
            return no_directory(entries, writer, path, &member);
        }
        match writer.place_directory(at, named)? {
            Some(path) if !writer.is_there(&path)? => writer.directory(at, &path, member.mode),
            _ => Ok(()),
        }
    }
}

fn no_directory(
    entries: &mut AnyEntries<'_>,
    writer: &mut LayerWriter<'_>,
    path: RelPath,
    member: &Member,
) -> Result<(), UnpackError> {
    let at = at(member);
    match &member.kind {
        MemberKind::Directory => Ok(()),
        MemberKind::Special { what } => {
            writer.leave_out(&member.name, what);
            Ok(())
        }
        MemberKind::Symlink { target } => writer.symlink(at, &path, target.clone()),
        MemberKind::HardLink { target } => {
            let from = writer.place(at, target)?;
            writer.hard_link(at, &path, &from)
        }
        MemberKind::File { .. } => {
            let mut file = writer.file(at, path, member.mode)?;
            entries.read_data(&mut |data| file.write(data))?;
            file.end(member.modified_s)
        }
    }
}

fn at(member: &Member) -> At<'_> {
    At {
        index: member.index,
        name: &member.name,
    }
}

/// Resolves the directory that a whiteout names; `None` is the root.
fn below_root(
    writer: &LayerWriter<'_>,
    at: At<'_>,
    directory: Option<&RelPath>,
) -> Result<Option<RelPath>, UnpackError> {
    match directory {
        Some(directory) => writer.place_directory(at, directory),
        None => Ok(None),
    }
}

fn child(at: At<'_>, directory: Option<&RelPath>, name: &[u8]) -> Result<RelPath, UnpackError> {
    let whole = match directory {
        Some(directory) => [directory.as_bytes(), b"/", name].concat(),
        None => name.to_vec(),
    };
    RelPath::parse(&whole).map_err(|error| at.refused(Refusal::path(error)))
}
