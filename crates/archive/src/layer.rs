//! Layers of images: from a hostile tar to a directory for overlayfs, mounted with `userxattr`.
//!
//! What a name means is decided on the symbolic links of this layer and of those below it
//! ([`LayerView`]), so that `lib/x` goes to `usr/lib/x` where `lib` is a link to `usr/lib`; what is
//! made is made beneath one open directory and through no link. A later entry takes the place of an
//! earlier one of any type. Devices and fifos are left out, owners and extended attributes are not
//! read: nothing in an archive makes a device or an attribute of overlayfs but its whiteouts, and
//! those only where a layer below has something to hide.

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

/// What a layer became.
#[derive(Debug)]
pub struct UnpackedLayer {
    /// SHA-256 of the tar, as the configuration of the image names it (`DiffID`).
    pub diff_id: Digest,
    /// What the next layer must know of this one and those below it.
    pub view: LayerView,
    /// Nothing of the layers below is seen: its root is opaque, which overlayfs does not look at.
    pub hides_all: bool,
    /// Nothing is in it, and it hides nothing by itself.
    pub is_empty: bool,
    /// Bytes of all files of the archive, also of those that a later entry replaced.
    pub bytes: u64,
    /// About what it takes on a disk.
    pub disk_bytes: u64,
    /// Files, directories and links.
    pub entries: u64,
    pub files: u64,
    /// What was left out.
    pub warnings: Vec<WarningReport>,
}

/// Unpacks `archive`, one layer of an image, into the empty directory `into`, to be laid over layers
/// of which `view` is what must be known and into which `below` looks.
///
/// Everything belongs to this process's user. Permission bits are kept but for set-user-id and
/// set-group-id; the owner may read every file and change every directory. After an error `into`
/// holds some of the entries: throw it away. The threads that help have ended when this returns.
///
/// # Errors
/// The first rule that the archive breaks, what the file system could not do
/// ([`UnpackError::is_refusal`] tells them apart), or [`UnpackError::Cancelled`] once `is_cancelled`.
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

/// The entries of an archive, whatever it is compressed with.
pub(crate) type AnyEntries<'a> = Entries<'a, dyn Inflated + 'a>;

/// What is done with each entry.
pub(crate) trait Visit {
    /// Takes one; data that it does not read is passed over.
    ///
    /// # Errors
    /// Whatever ends the reading.
    fn entry(&mut self, entries: &mut AnyEntries<'_>, member: Member) -> Result<(), UnpackError>;
}

/// What was read of an archive.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ReadLayer {
    /// SHA-256 of the tar.
    pub digest: Digest,
    /// Bytes of all files.
    pub bytes: u64,
}

/// Shows every entry of `archive` to `visitor`.
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
        // Reading a plain file takes no time that a second thread would save.
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

/// The entries of a layer, with whiteouts; a directory takes the place of a link.
struct LayerEntries<'writer, 'a>(&'writer mut LayerWriter<'a>);

impl Visit for LayerEntries<'_, '_> {
    fn entry(&mut self, entries: &mut AnyEntries<'_>, member: Member) -> Result<(), UnpackError> {
        let Self(writer) = self;
        // The mode of the root is that of the layer on top, which is the run's own.
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

/// The entries of a package, as dpkg reads them: no name is special, and a directory that is there
/// stays as it is, also behind a link.
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

/// Where a directory leads that a whiteout names; `None` is the root.
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
