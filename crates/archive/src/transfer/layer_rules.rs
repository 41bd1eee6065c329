//! What distinguishes the upper directory of an overlayfs, or any private directory of a sandbox, from a tree
//! that is copied.

use std::os::fd::BorrowedFd;

use rustix::fs::{AtFlags, FileType, Stat, StatxFlags};
use rustix::io::Errno;

use crate::whiteout::PREFIX;

/// Attributes of a directory that hides those of the lower trees (overlayfs.rst): an overlayfs of a user
/// namespace has the first.
const OPAQUE_ATTRIBUTES: [&str; 2] = ["user.overlay.opaque", "trusted.overlay.opaque"];

/// How the entries of a private directory become those of a layer.
#[derive(Debug, Clone, Copy)]
pub(super) struct LayerRules {
    /// The directory is the upper directory of an overlayfs.
    pub(super) is_upper: bool,
    /// What is on another mount is none of its files.
    pub(super) mount: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LayerEntry {
    Ordinary,
    /// Deletes the entry of the lower trees.
    Whiteout,
    /// A file whose name a layer cannot contain.
    LikeWhiteout,
}

impl LayerRules {
    pub(super) fn of_entry(self, name: &[u8], status: &Stat) -> LayerEntry {
        if self.is_upper && is_whiteout(status) {
            LayerEntry::Whiteout
        } else if name.starts_with(PREFIX) {
            LayerEntry::LikeWhiteout
        } else {
            LayerEntry::Ordinary
        }
    }
}

/// A device with the number 0. Nothing in a sandbox can make another device.
#[must_use]
pub fn is_whiteout(status: &Stat) -> bool {
    FileType::from_raw_mode(status.st_mode) == FileType::CharacterDevice && status.st_rdev == 0
}

/// Whether a directory hides those of the lower trees. `false` if that cannot be read.
#[must_use]
pub fn is_opaque(directory: BorrowedFd<'_>) -> bool {
    OPAQUE_ATTRIBUTES.iter().any(|attribute| {
        let mut value = [0; 1];
        rustix::fs::fgetxattr(directory, *attribute, &mut value[..]) == Ok(1) && value == *b"y"
    })
}

/// The mount of an open file (statx(2), Linux 5.8).
pub(super) fn mount_of(file: BorrowedFd<'_>) -> Result<u64, Errno> {
    mount_id(file, b"", AtFlags::EMPTY_PATH)
}

/// The mount of an entry of a directory, which may be one that is mounted there.
pub(super) fn mount_of_entry(directory: BorrowedFd<'_>, name: &[u8]) -> Result<u64, Errno> {
    mount_id(directory, name, AtFlags::SYMLINK_NOFOLLOW)
}

fn mount_id(directory: BorrowedFd<'_>, path: &[u8], flags: AtFlags) -> Result<u64, Errno> {
    let found = rustix::fs::statx(directory, path, flags, StatxFlags::MNT_ID)?;
    match StatxFlags::from_bits_retain(found.stx_mask).contains(StatxFlags::MNT_ID) {
        true => Ok(found.stx_mnt_id),
        false => Err(Errno::NOSYS),
    }
}
