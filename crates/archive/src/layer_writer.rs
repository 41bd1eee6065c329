//! Builds a layer of an image together with its directory on disk, which overlayfs mounts over the layers
//! below.
//!
//! Destinations are resolved in the [`LayerView`] only; entries are created beneath the directory,
//! without following links. Whiteouts and opaque directories are applied at the end ([`crate::hiding`]),
//! when the layer's own entries are known: they do not hide entries of the same layer.

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

use rustix::fs::{Mode, OFlags, Timespec, Timestamps};

use crate::error::{Refusal, UnpackError, shown};
use crate::hiding::Hiding;
use crate::layer::UnpackedLayer;
use crate::layer_view::{LayerView, beneath};
use crate::path_mapping::relative_to;
use crate::target::{Target, failed, write_all};
use crate::tree::TreeLimits;
use spec::digest::Digest;
use spec::path::RelPath;
use spec::report::WarningReport;

/// Mode bits that are kept: no set-user-id, no set-group-id.
const KEPT_BITS: u32 = 0o1777;
/// Owner bits that every file and directory gets, so that the layer can be read and removed.
const FILE_OWNER_BITS: u32 = 0o400;
const DIRECTORY_OWNER_BITS: u32 = 0o700;
/// Approximate sizes of an inode and of a block on disk.
const INODE_BYTES: u64 = 1024;
const BLOCK_BYTES: u64 = 4096;

/// The type of an entry of this layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Node {
    Directory,
    File,
    Link,
}

/// The position of an entry, for messages.
#[derive(Debug, Clone, Copy)]
pub(crate) struct EntryPosition<'name> {
    pub index: u64,
    pub name: &'name [u8],
}

impl EntryPosition<'_> {
    pub(crate) fn refused(&self, refusal: Refusal) -> UnpackError {
        UnpackError::entry(self.index, self.name, refusal)
    }
}

pub(crate) struct LayerWriter<'a> {
    target: Target<'a>,
    view: LayerView,
    nodes: BTreeMap<Vec<u8>, Node>,
    /// Paths of the layers below that are removed.
    removed: BTreeSet<Vec<u8>>,
    /// Directories that hide the layers below.
    opaque: BTreeSet<Vec<u8>>,
    hides_all: bool,
    limits: TreeLimits,
    created: u64,
    name_bytes: u64,
    disk_bytes: u64,
    left_out: u64,
    first_left_out: Option<String>,
}

/// A file being written.
pub(crate) struct LayerFile<'writer> {
    path: RelPath,
    file: OwnedFd,
    disk_bytes: &'writer mut u64,
    bytes: u64,
}

impl LayerFile<'_> {
    pub(crate) fn write(&mut self, data: &[u8]) -> Result<(), UnpackError> {
        self.bytes += data.len() as u64;
        write_all(self.file.as_fd(), &self.path, data)
    }

    /// Call this after the last write. Sets the modification time.
    pub(crate) fn end(self, modified_s: Option<u64>) -> Result<(), UnpackError> {
        *self.disk_bytes += self.bytes.next_multiple_of(BLOCK_BYTES);
        match modified_s {
            Some(seconds) => set_time(self.file.as_fd(), &self.path, seconds),
            None => Ok(()),
        }
    }
}

fn set_time(file: BorrowedFd<'_>, path: &RelPath, modified_s: u64) -> Result<(), UnpackError> {
    // The kernel clamps times that the file system cannot store.
    let Ok(tv_sec) = i64::try_from(modified_s) else {
        return Ok(());
    };
    let time = Timespec { tv_sec, tv_nsec: 0 };
    let times = Timestamps {
        last_access: time,
        last_modification: time,
    };
    rustix::fs::futimens(file, &times).map_err(|errno| failed("futimens", path, errno))
}

impl<'a> LayerWriter<'a> {
    /// Creates entries in the empty directory `root`. `view` describes the layers below.
    pub(crate) fn new(root: BorrowedFd<'a>, view: LayerView, limits: TreeLimits) -> Self {
        Self {
            target: Target::new(root, None),
            view,
            nodes: BTreeMap::new(),
            removed: BTreeSet::new(),
            opaque: BTreeSet::new(),
            hides_all: false,
            limits,
            created: 0,
            name_bytes: 0,
            disk_bytes: INODE_BYTES,
            left_out: 0,
            first_left_out: None,
        }
    }

    /// Resolves `path` without following its last segment; never returns the root.
    pub(crate) fn resolve(
        &self,
        at: EntryPosition<'_>,
        path: &RelPath,
    ) -> Result<RelPath, UnpackError> {
        let resolved = self.view.resolve(path, false);
        resolved
            .and_then(|path| {
                path.ok_or_else(|| Refusal::new("path_root", "its name resolves to the root"))
            })
            .map_err(|refusal| at.refused(refusal))
    }

    /// Resolves the directory `path`, including its last segment; `None` is the root.
    pub(crate) fn resolve_directory(
        &self,
        at: EntryPosition<'_>,
        path: &RelPath,
    ) -> Result<Option<RelPath>, UnpackError> {
        self.view
            .resolve(path, true)
            .map_err(|refusal| at.refused(refusal))
    }

    /// Records that an entry is skipped.
    pub(crate) fn leave_out(&mut self, name: &[u8], what: &str) {
        self.left_out += 1;
        self.first_left_out
            .get_or_insert_with(|| format!("`{}`, {what},", shown(name)));
    }

    /// Whether `path` exists in this layer.
    pub(crate) fn has(&self, path: &RelPath) -> bool {
        self.nodes.contains_key(path.as_bytes())
    }

    /// Creates a directory at `path`, replacing any other entry of this layer. The error is a refusal of
    /// the entry or [`UnpackError::Target`], as for the other `add` functions.
    pub(crate) fn add_directory(
        &mut self,
        at: EntryPosition<'_>,
        path: &RelPath,
        mode: u32,
    ) -> Result<(), UnpackError> {
        let bits = mode & KEPT_BITS | DIRECTORY_OWNER_BITS;
        match self.nodes.get(path.as_bytes()) {
            Some(Node::Directory) => {
                if self.view.directory_mode(path) != bits {
                    self.target.set_directory_mode(path, bits)?;
                }
            }
            Some(Node::File | Node::Link) => {
                self.remove_entry(path)?;
                self.create_directory(at, path, bits)?;
                // The replaced entry hid the layers below, so the directory must hide them too.
                self.opaque.insert(path.as_bytes().to_vec());
            }
            None => {
                self.create_parents(at, path)?;
                self.create_directory(at, path, bits)?;
            }
        }
        self.view.add_directory(path, bits);
        Ok(())
    }

    /// Sets the modification time of the directory `path` of this layer, once it is complete.
    pub(crate) fn set_directory_time(
        &mut self,
        path: &RelPath,
        modified_s: u64,
    ) -> Result<(), UnpackError> {
        if !self.is_directory(path.as_bytes()) {
            return Ok(());
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW;
        let directory = self.target.open(path, flags, Mode::empty())?;
        set_time(directory.as_fd(), path, modified_s)
    }

    /// The entries that were skipped.
    pub(crate) fn left_out(&self) -> u64 {
        self.left_out
    }

    /// Creates a file at `path`, replacing any other entry of this layer; the caller writes its data.
    pub(crate) fn add_file(
        &mut self,
        at: EntryPosition<'_>,
        path: RelPath,
        mode: u32,
    ) -> Result<LayerFile<'_>, UnpackError> {
        self.begin_entry(at, &path, path.as_bytes().len(), Node::File)?;
        let bits = mode & KEPT_BITS | FILE_OWNER_BITS;
        let file = self.target.create_file(&path, bits)?;
        self.view.remove(&path);
        Ok(LayerFile {
            path,
            file,
            disk_bytes: &mut self.disk_bytes,
            bytes: 0,
        })
    }

    /// Creates a symbolic link at `path` with an unchanged target.
    pub(crate) fn add_symlink(
        &mut self,
        at: EntryPosition<'_>,
        path: &RelPath,
        target: Vec<u8>,
    ) -> Result<(), UnpackError> {
        self.begin_entry(at, path, path.as_bytes().len() + target.len(), Node::Link)?;
        self.target.create_symlink(path, &target)?;
        self.view.add_link(path, target);
        Ok(())
    }

    /// Creates a hard link to `from`, which must be a file of this layer.
    pub(crate) fn add_hard_link(
        &mut self,
        at: EntryPosition<'_>,
        path: &RelPath,
        from: &RelPath,
    ) -> Result<(), UnpackError> {
        let target = from.as_bytes();
        let refusal = match self.nodes.get(from.as_bytes()) {
            _ if path == from => Refusal::hard_link_to_itself(),
            // Replacing `path` would remove the target of the link.
            Some(_) if relative_to(target, path.as_bytes()).is_some() => {
                Refusal::hard_link_missing(target)
            }
            Some(Node::File) => {
                self.begin_entry(at, path, path.as_bytes().len(), Node::File)?;
                self.target.create_hard_link(path, from)?;
                self.view.remove(path);
                return Ok(());
            }
            Some(Node::Directory) => Refusal::hard_link_not_file(target, "a directory"),
            Some(Node::Link) => Refusal::hard_link_not_file(target, "a symlink"),
            None => Refusal::hard_link_missing(target),
        };
        Err(at.refused(refusal))
    }

    /// Removes `path` of the layers below.
    pub(crate) fn add_whiteout(
        &mut self,
        at: EntryPosition<'_>,
        path: &RelPath,
    ) -> Result<(), UnpackError> {
        self.count(at, path, path.as_bytes().len())?;
        // A repeated whiteout has no effect; without this check each one would walk all entries beneath.
        if self.removed.contains(path.as_bytes()) {
            return Ok(());
        }
        let nodes = &self.nodes;
        if nodes.contains_key(path.as_bytes()) {
            self.view
                .retain_below(Some(path), |key| nodes.contains_key(key));
        } else {
            self.view.remove(path);
        }
        self.removed.insert(path.as_bytes().to_vec());
        Ok(())
    }

    /// Hides the contents of the directory `path` in the layers below; `None` is the root.
    pub(crate) fn add_opaque(
        &mut self,
        at: EntryPosition<'_>,
        path: Option<&RelPath>,
    ) -> Result<(), UnpackError> {
        // Has no effect when repeated, like a whiteout.
        let is_new = match path {
            Some(path) => {
                self.count(at, path, path.as_bytes().len())?;
                self.opaque.insert(path.as_bytes().to_vec())
            }
            None => !std::mem::replace(&mut self.hides_all, true),
        };
        if is_new {
            let nodes = &self.nodes;
            self.view.retain_below(path, |key| nodes.contains_key(key));
        }
        Ok(())
    }

    /// Creates the parents of a new entry that is not a directory, or removes the entry it replaces.
    fn begin_entry(
        &mut self,
        at: EntryPosition<'_>,
        path: &RelPath,
        name_bytes: usize,
        node: Node,
    ) -> Result<(), UnpackError> {
        if self.nodes.contains_key(path.as_bytes()) {
            self.remove_entry(path)?;
        } else {
            self.create_parents(at, path)?;
        }
        self.count(at, path, name_bytes)?;
        self.nodes.insert(path.as_bytes().to_vec(), node);
        Ok(())
    }

    fn count(
        &mut self,
        at: EntryPosition<'_>,
        path: &RelPath,
        name_bytes: usize,
    ) -> Result<(), UnpackError> {
        self.created += 1;
        self.name_bytes += name_bytes as u64;
        self.disk_bytes += INODE_BYTES;
        let refusal = if self.created > self.limits.entries {
            Refusal::too_many_entries(self.limits.entries)
        } else if self.name_bytes > self.limits.name_bytes {
            Refusal::too_long_names(self.limits.name_bytes)
        } else {
            return Ok(());
        };
        Err(UnpackError::entry(at.index, path.as_bytes(), refusal))
    }

    fn create_directory(
        &mut self,
        at: EntryPosition<'_>,
        path: &RelPath,
        bits: u32,
    ) -> Result<(), UnpackError> {
        self.count(at, path, path.as_bytes().len())?;
        self.target.create_directory_as(path, bits)?;
        self.nodes.insert(path.as_bytes().to_vec(), Node::Directory);
        Ok(())
    }

    /// Creates the missing parent directories of `path`, with the modes of the layers below.
    fn create_parents(&mut self, at: EntryPosition<'_>, path: &RelPath) -> Result<(), UnpackError> {
        let mut missing = Vec::new();
        let mut above = path.parent();
        while let Some(parent) = above {
            match self.nodes.get(parent.as_bytes()) {
                Some(Node::Directory) => break,
                Some(Node::File) => {
                    return Err(at.refused(Refusal::beneath_file(&parent)));
                }
                // The view resolves all links, so this case indicates an inconsistency.
                Some(Node::Link) => {
                    return Err(at.refused(Refusal::beneath_link(&parent)));
                }
                None => (),
            }
            above = parent.parent();
            missing.push(parent);
        }
        for directory in missing.iter().rev() {
            let bits = self.view.directory_mode(directory);
            self.create_directory(at, directory, bits)?;
            self.view.add_directory(directory, bits);
        }
        Ok(())
    }

    /// Removes the entry of this layer at `path` with everything beneath it.
    fn remove_entry(&mut self, path: &RelPath) -> Result<(), UnpackError> {
        let mut entries: Vec<(Vec<u8>, Node)> = beneath(&self.nodes, path.as_bytes())
            .map(|(key, node)| (key.clone(), *node))
            .collect();
        entries.reverse();
        entries.extend(
            self.nodes
                .get_key_value(path.as_bytes())
                .map(|(key, node)| (key.clone(), *node)),
        );
        for (key, node) in entries {
            let path = rel_path(&key)?;
            match node {
                Node::Directory => self.target.remove_directory(&path)?,
                Node::File | Node::Link => self.target.remove_file(&path)?,
            }
            self.nodes.remove(&key);
            self.opaque.remove(&key);
        }
        self.view.remove(path);
        Ok(())
    }

    /// `diff_id` and `bytes` are those of the archive.
    pub(crate) fn finish(self, diff_id: Digest, bytes: u64) -> Result<UnpackedLayer, UnpackError> {
        let hiding = self.hiding()?;
        let mut warnings = Vec::new();
        if let Some(first) = &self.first_left_out {
            let message = match self.left_out - 1 {
                0 => format!("{first} is left out of a layer"),
                others => format!(
                    "{first} and {others} more devices, fifos or AUFS files are left out of a layer"
                ),
            };
            warnings.push(WarningReport::new("image_left_out", message));
        }
        let files = self.nodes.values().filter(|node| **node == Node::File);
        Ok(UnpackedLayer {
            diff_id,
            bytes,
            hides_all: self.hides_all,
            entries: self.nodes.len() as u64,
            files: files.count() as u64,
            disk_bytes: self.disk_bytes,
            warnings,
            view: self.view,
            hiding,
        })
    }

    /// What this layer hides in the layers below. Directories are opaque if they are marked, or were
    /// created again after a whiteout.
    fn hiding(&self) -> Result<Hiding, UnpackError> {
        if self.hides_all {
            return Ok(Hiding::default());
        }
        let recreated = self.removed.iter().filter(|key| self.is_directory(key));
        let opaque: BTreeSet<&Vec<u8>> = self.opaque.iter().chain(recreated).collect();
        // Files and links hide the layers below without a mark.
        let opaque = opaque.into_iter().filter(|key| {
            !self.is_shadowed(key) && !matches!(self.nodes.get(*key), Some(Node::File | Node::Link))
        });
        // Whiteouts that are not written still hide the paths beneath them. An opaque directory exists
        // even if the layer also removes it.
        let whiteouts = self.removed.iter().filter(|key| {
            !self.nodes.contains_key(*key) && !self.opaque.contains(*key) && !self.is_shadowed(key)
        });
        Ok(Hiding {
            opaque: opaque.map(|key| rel_path(key)).collect::<Result<_, _>>()?,
            whiteouts: whiteouts
                .map(|key| rel_path(key))
                .collect::<Result<_, _>>()?,
        })
    }

    fn is_directory(&self, key: &[u8]) -> bool {
        self.nodes.get(key) == Some(&Node::Directory)
    }

    /// Whether a parent of `key` already hides it: an opaque directory, a whiteout, or an entry that is
    /// not a directory.
    fn is_shadowed(&self, key: &[u8]) -> bool {
        let slashes = (0..key.len()).filter(|at| key[*at] == b'/');
        slashes.map(|slash| &key[..slash]).any(|above| {
            self.opaque.contains(above)
                || self.removed.contains(above)
                || matches!(self.nodes.get(above), Some(Node::File | Node::Link))
        })
    }
}

/// Converts a key back to its path.
fn rel_path(key: &[u8]) -> Result<RelPath, UnpackError> {
    RelPath::parse(key).map_err(|error| UnpackError::entry(0, key, Refusal::path(error)))
}
