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

use crate::bundle::ahead::Ahead;
use crate::bundle::compressed::{self, Compression};
use crate::bundle::entries::{Entries, Member};
use crate::bundle::entry_rules::{MemberKind, Rules};
use crate::bundle::error::{EntryRefusal, UnpackError};
use crate::bundle::gzip::GzipReader;
use crate::bundle::inflated::{Inflated, Pieces, Watched};
use crate::bundle::layer_view::LayerView;
pub use crate::bundle::layer_writer::Below;
use crate::bundle::layer_writer::{At, LayerWriter};
use crate::bundle::placing::Placing;
use crate::bundle::unpack::{AHEAD_FROM_BYTES, UnpackLimits};
use crate::bundle::whiteout::{Meaning, meaning};
use crate::spec::digest::Digest;
use crate::spec::path::RelPath;
use crate::spec::report::WarningReport;

/// What a layer became.
#[derive(Debug)]
pub struct UnpackedLayer {
    /// SHA-256 of the tar, as the configuration of the image names it (DiffID).
    pub diff_id: Digest,
    /// What the next layer must know of this one and those below it.
    pub view: LayerView,
    /// Nothing of the layers below is seen: its root is opaque, which overlayfs does not look at.
    pub hides_all: bool,
    /// Bytes of all files of the archive, also of those that a later entry replaced.
    pub bytes: u64,
    /// About what it takes on a disk.
    pub disk_bytes: u64,
    /// Files, directories and links.
    pub entries: u64,
    /// Regular files.
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
    let read = read_compressed(
        archive,
        compression,
        &mut writer,
        limits,
        Meant::Layer,
        is_cancelled,
    )?;
    let written = writer.finish()?;
    Ok(UnpackedLayer {
        diff_id: read.digest,
        bytes: read.bytes,
        view: written.view,
        hides_all: written.hides_all,
        disk_bytes: written.disk_bytes,
        entries: written.entries,
        files: written.files,
        warnings: written.warnings,
    })
}

/// How names are meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Meant {
    /// With whiteouts; a directory takes the place of a link.
    Layer,
    /// As dpkg does: no name is special, and a directory that is there stays as it is, also behind a
    /// link.
    Package,
}

/// What was read of an archive.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ReadLayer {
    /// Of the tar.
    pub(crate) digest: Digest,
    /// Of all files.
    pub(crate) bytes: u64,
}

/// Gives every entry of `archive` to `writer`.
///
/// # Errors
/// As [`unpack_layer`].
pub(crate) fn read_compressed(
    archive: impl Read + Send,
    compression: Compression,
    writer: &mut LayerWriter<'_>,
    limits: &UnpackLimits,
    meant: Meant,
    is_cancelled: &dyn Fn() -> bool,
) -> Result<ReadLayer, UnpackError> {
    let bytes = limits.compressed_bytes;
    let read = Reading {
        limits,
        meant,
        is_cancelled,
    };
    match compression {
        Compression::Gzip => read.ahead(GzipReader::new(archive, bytes), writer),
        Compression::Zstd => read.ahead(compressed::zstd(archive, bytes), writer),
        Compression::Xz => read.ahead(compressed::xz(archive, bytes), writer),
        Compression::Plain => read.here(compressed::plain(archive, bytes), writer),
    }
}

/// How an archive is read.
#[derive(Clone, Copy)]
struct Reading<'a> {
    limits: &'a UnpackLimits,
    meant: Meant,
    is_cancelled: &'a dyn Fn() -> bool,
}

impl Reading<'_> {
    fn ahead(
        self,
        mut source: impl Pieces + Send,
        writer: &mut LayerWriter<'_>,
    ) -> Result<ReadLayer, UnpackError> {
        std::thread::scope(|scope| {
            let ahead = Ahead::new(scope, &mut source, AHEAD_FROM_BYTES);
            let mut watched = Watched::new(ahead, self.is_cancelled);
            let bytes = self.entries(&mut watched, writer);
            let (digest, ahead) = watched.finish();
            ahead.end();
            Ok(ReadLayer {
                digest,
                bytes: bytes?,
            })
        })
    }

    fn here(
        self,
        source: impl Inflated,
        writer: &mut LayerWriter<'_>,
    ) -> Result<ReadLayer, UnpackError> {
        let mut watched = Watched::new(source, self.is_cancelled);
        let bytes = self.entries(&mut watched, writer)?;
        let (digest, _) = watched.finish();
        Ok(ReadLayer { digest, bytes })
    }

    fn entries(
        self,
        source: &mut impl Inflated,
        writer: &mut LayerWriter<'_>,
    ) -> Result<u64, UnpackError> {
        let mut entries = Entries::new(source, self.limits.entry(), Rules::Layer, Placing::AsNamed);
        while let Some(member) = entries.next_member()? {
            match self.meant {
                Meant::Layer => one_of_layer(&mut entries, writer, member)?,
                Meant::Package => one_of_package(&mut entries, writer, member)?,
            }
        }
        Ok(entries.file_bytes())
    }
}

fn one_of_layer(
    entries: &mut Entries<'_, impl Inflated>,
    writer: &mut LayerWriter<'_>,
    member: Member,
) -> Result<(), UnpackError> {
    // The mode of the root is that of the layer on top, which is the run's own.
    let Some(named) = &member.path else {
        return Ok(());
    };
    let at = at(&member);
    match meaning(named, &member.kind).map_err(|error| at.refused(EntryRefusal::Whiteout(error)))? {
        Meaning::Plain => (),
        Meaning::Aufs => {
            writer.leave_out(&member.name, "a note of AUFS");
            return Ok(());
        }
        Meaning::Gone { directory, name } => {
            let directory = below_root(writer, at, directory.as_ref())?;
            let path = child(at, directory.as_ref(), &name)?;
            return writer.whiteout(at, &path);
        }
        Meaning::Opaque { directory } => {
            let directory = below_root(writer, at, directory.as_ref())?;
            return writer.opaque(at, directory.as_ref());
        }
    }
    let path = writer.place(at, named)?;
    match &member.kind {
        MemberKind::Directory => writer.directory(at, &path, member.mode),
        _ => one_that_is_no_directory(entries, writer, path, &member),
    }
}

fn one_of_package(
    entries: &mut Entries<'_, impl Inflated>,
    writer: &mut LayerWriter<'_>,
    member: Member,
) -> Result<(), UnpackError> {
    let Some(named) = &member.path else {
        return Ok(());
    };
    let at = at(&member);
    match &member.kind {
        MemberKind::Directory => match writer.place_directory(at, named)? {
            Some(path) if !writer.is_there(&path)? => writer.directory(at, &path, member.mode),
            _ => Ok(()),
        },
        _ => {
            let path = writer.place(at, named)?;
            one_that_is_no_directory(entries, writer, path, &member)
        }
    }
}

fn one_that_is_no_directory(
    entries: &mut Entries<'_, impl Inflated>,
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
    RelPath::parse(&whole).map_err(|error| at.refused(EntryRefusal::Path(error)))
}
