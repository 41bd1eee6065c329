//! The private files of a sandbox as one tar, which is a layer of an image (OCI image-spec, layer.md): names
//! are paths from the root, and a whiteout stands for each deleted file of an image or a source.
//!
//! Kept are permission bits without set-user-id and set-group-id, times to the second, and symbolic links.
//! Owners, extended attributes and hard links are not kept.

use std::cell::OnceCell;
use std::io::{Read, Write};
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

use rustix::fs::{AtFlags, Dir, Mode, OFlags};
use rustix::io::Errno;

use crate::compressed::{Compression, decode};
use crate::entries::{Entries, Member};
use crate::entry_rules::{MemberKind, Rules};
use crate::error::{Refusal, UnpackError};
use crate::inflated::Inflated;
use crate::layer::{AnyEntries, add_non_directory, join, position};
use crate::layer_view::LayerView;
use crate::layer_writer::LayerWriter;
use crate::path_mapping::{PathMapping, relative_to};
use crate::transfer::layer_rules::{LayerRules, mount_of};
use crate::transfer::pack::{Level, PackError, Packer, READ_BYTES, unreadable};
use crate::transfer::place::{Content, Fresh, LastLink, Place, PlaceError};
use crate::unpack::UnpackLimits;
use crate::whiteout::{LayerEntry, classify};
use spec::parse_permit::ParsePermit;
use spec::path::{RelPath, escape};
use sys::file::{names, open_beneath, open_directory};

/// A private directory of a sandbox.
#[derive(Debug, Clone, Copy)]
pub struct PrivateDirectory<'run> {
    /// Its absolute path in the sandbox.
    pub path: &'run [u8],
    pub directory: BorrowedFd<'run>,
    /// It is the upper directory of an overlayfs.
    pub is_upper: bool,
}

/// Writes the tar of `directories` to `out`. `skip` gets the escaped path of each entry that is skipped, and
/// why. What is mounted in them is no part of them.
///
/// # Errors
/// [`PackError`]; `out` then has no end of a tar.
pub fn pack_snapshot(
    directories: &[PrivateDirectory<'_>],
    out: &mut dyn Write,
    skip: &mut dyn FnMut(&str, &str),
) -> Result<(), PackError> {
    let mut packer = Packer {
        out,
        skip,
        buffer: vec![0; READ_BYTES],
        root: b"/",
        layer: None,
    };
    for private in directories {
        let failed = |errno| unreadable(private.path, errno);
        let mount = mount_of(private.directory).map_err(failed)?;
        packer.layer = Some(LayerRules {
            is_upper: private.is_upper,
            mount,
        });
        let top = Level {
            listing: Dir::read_from(private.directory).map_err(failed)?,
            name: private.path.strip_prefix(b"/").unwrap_or_default().to_vec(),
        };
        packer.pack_below(top)?;
    }
    packer.end()
}

/// Why a snapshot is not restored, or not all of it.
#[derive(Debug, thiserror::Error)]
pub enum RestoreError {
    #[error(transparent)]
    Unpack(#[from] UnpackError),
    #[error(transparent)]
    Place(#[from] PlaceError),
    /// The path is escaped.
    #[error("cannot delete what the snapshot deletes in `{path}`: {errno}")]
    Delete { path: String, errno: Errno },
}

/// Restores the tar of a snapshot from the root of a new sandbox: each entry in the directory of `paths`,
/// which are absolute, with the longest path above it. First all is unpacked to new directories in them. Then
/// what the snapshot deletes is deleted, and what was unpacked is moved to its place. Nothing is changed in
/// what is mounted in one of `paths`.
///
/// Directories outside of `paths` are ignored, since each sandbox has its own.
///
/// # Errors
/// The first rule that the archive breaks, a file outside of `paths`, or a file system error.
pub fn restore_snapshot(
    permit: &ParsePermit,
    archive: impl Read + Send,
    paths: &[&[u8]],
    limits: &UnpackLimits,
) -> Result<(), RestoreError> {
    let mut source = decode(permit, archive, Compression::Plain, limits.compressed_bytes);
    let source: &mut dyn Inflated = &mut source;
    let mut entries = Entries::new(
        source,
        limits.entry_limits(),
        Rules::Files,
        PathMapping::Unchanged,
    );
    let places: Vec<OnceCell<Place>> = paths.iter().map(|_path| OnceCell::new()).collect();
    let fresh: Vec<OnceCell<Fresh<'_>>> = paths.iter().map(|_path| OnceCell::new()).collect();
    let mut targets: Vec<PlaceWriter<'_>> = Vec::new();
    while let Some(member) = entries.next_member()? {
        // The root is a directory that exists.
        let Some(path) = &member.path else { continue };
        let (number, below) = match find_place(paths, path) {
            Some((_, None)) => continue,
            Some((number, Some(below))) => (number, below),
            None if member.kind == MemberKind::Directory => continue,
            None => return Err(outside(&member).into()),
        };
        let target = match targets.iter().position(|target| target.number == number) {
            Some(known) => &mut targets[known],
            None => {
                let place = Place::find(paths[number], Content::OfArchive, LastLink::Refuse)?;
                let made = places[number].get_or_init(|| place).make_fresh()?;
                let root = fresh[number].get_or_init(|| made).directory();
                targets.push(PlaceWriter::new(number, root, limits));
                let last = targets.len() - 1;
                &mut targets[last]
            }
        };
        target.add(&mut entries, &member, below)?;
    }
    let done: Vec<(usize, Deletions)> = targets
        .into_iter()
        .map(PlaceWriter::finish)
        .collect::<Result<_, UnpackError>>()?;
    for (number, deletions) in done {
        if let Some(place) = places[number].get() {
            let deleted = deletions.apply(place.directory());
            deleted.map_err(|errno| RestoreError::Delete {
                path: escape(paths[number]),
                errno,
            })?;
        }
        if let Some(fresh) = fresh[number].get() {
            fresh.place()?;
        }
    }
    Ok(())
}

fn outside(member: &Member) -> UnpackError {
    position(member).refused(Refusal::new(
        "snapshot_outside",
        "it lies in no private directory of this sandbox; restore with the --image and the sources that \
         the sandbox of the snapshot had",
    ))
}

/// The number of the longest of `paths` that is above `path` or the same, and the path below it; `None` for
/// the place itself.
fn find_place(paths: &[&[u8]], path: &RelPath) -> Option<(usize, Option<RelPath>)> {
    let found = paths.iter().enumerate().filter_map(|(number, place)| {
        let folder = place.strip_prefix(b"/")?;
        let below = match folder == path.as_bytes() {
            true => None,
            false => Some(relative_to(path.as_bytes(), folder)?),
        };
        Some((number, below))
    });
    found.max_by_key(|(number, _)| paths[*number].len())
}

/// What a snapshot deletes in a private directory.
#[derive(Debug, Default)]
struct Deletions {
    files: Vec<RelPath>,
    /// Directories whose entries are deleted.
    contents: Vec<RelPath>,
}

struct PlaceWriter<'run> {
    /// Its index among the paths.
    number: usize,
    writer: LayerWriter<'run>,
    times: Vec<(RelPath, u64)>,
    deletions: Deletions,
}

impl<'run> PlaceWriter<'run> {
    fn new(number: usize, fresh: BorrowedFd<'run>, limits: &UnpackLimits) -> Self {
        Self {
            number,
            writer: LayerWriter::new(fresh, LayerView::default(), limits.tree_limits()),
            times: Vec::new(),
            deletions: Deletions::default(),
        }
    }

    fn add(
        &mut self,
        entries: &mut AnyEntries<'_>,
        member: &Member,
        path: RelPath,
    ) -> Result<(), UnpackError> {
        let at = position(member);
        match classify(&path, &member.kind).map_err(|refusal| at.refused(refusal))? {
            LayerEntry::Ordinary | LayerEntry::Aufs => (),
            LayerEntry::Whiteout { directory, name } => {
                let deleted = join(at, directory.as_ref(), &name)?;
                self.deletions.files.push(deleted);
                return Ok(());
            }
            LayerEntry::Opaque {
                directory: Some(directory),
            } => {
                self.deletions.contents.push(directory);
                return Ok(());
            }
            // No command can replace a private directory itself.
            LayerEntry::Opaque { directory: None } => {
                return Err(at.refused(Refusal::new(
                    "snapshot_opaque",
                    "it empties a private directory; expected a directory in one",
                )));
            }
        }
        if member.kind != MemberKind::Directory {
            return add_non_directory(entries, &mut self.writer, path, member);
        }
        self.writer.add_directory(at, &path, member.mode)?;
        let time = member.modified_s.map(|modified_s| (path, modified_s));
        self.times.extend(time);
        Ok(())
    }

    fn finish(mut self) -> Result<(usize, Deletions), UnpackError> {
        // A new entry changes the time of its directory.
        for (path, modified_s) in self.times.iter().rev() {
            self.writer.set_directory_time(path, *modified_s)?;
        }
        Ok((self.number, self.deletions))
    }
}

impl Deletions {
    /// Deletes the files in `directory`. No link is followed, and what is not there is no error.
    ///
    /// # Errors
    /// EXDEV for what is on another mount; the errno of openat2(2), getdents64(2) or unlinkat(2).
    fn apply(&self, directory: BorrowedFd<'_>) -> Result<(), Errno> {
        let mount = mount_of(directory)?;
        for path in &self.files {
            let parent = path.parent();
            if let Some(parent) = open_if_there(directory, parent.as_ref(), mount)? {
                remove(parent.as_fd(), path.file_name(), mount)?;
            }
        }
        for path in &self.contents {
            let Some(opened) = open_if_there(directory, Some(path), mount)? else {
                continue;
            };
            for name in names(&opened)? {
                remove(opened.as_fd(), &name, mount)?;
            }
        }
        Ok(())
    }
}

fn open_if_there(
    directory: BorrowedFd<'_>,
    path: Option<&RelPath>,
    mount: u64,
) -> Result<Option<OwnedFd>, Errno> {
    let path = path.map_or(&b"."[..], RelPath::as_bytes);
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW;
    match open_beneath(directory, path, flags, Mode::empty()) {
        // It may be a directory of the host.
        Ok(opened) if mount_of(opened.as_fd())? != mount => Err(Errno::XDEV),
        Ok(opened) => Ok(Some(opened)),
        Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => Ok(None),
        Err(errno) => Err(errno),
    }
}

/// Removes a file or a tree, if it is there.
fn remove(parent: BorrowedFd<'_>, name: &[u8], mount: u64) -> Result<(), Errno> {
    match rustix::fs::unlinkat(parent, name, AtFlags::empty()) {
        Err(Errno::NOENT) => return Ok(()),
        Err(Errno::ISDIR) => (),
        other => return other,
    }
    let directory = open_directory(parent, name)?;
    if mount_of(directory.as_fd())? != mount {
        return Err(Errno::XDEV);
    }
    for below in names(&directory)? {
        remove(directory.as_fd(), &below, mount)?;
    }
    rustix::fs::unlinkat(parent, name, AtFlags::REMOVEDIR)
}
