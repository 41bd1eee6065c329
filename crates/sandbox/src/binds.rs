//! Steps of requested mounts. Other users may write the directories of their sources and targets at
//! any time, so no link is followed.

use std::ffi::CStr;
use std::os::fd::{AsFd, BorrowedFd};

use rustix::fs::{FileType, Mode};
use rustix::io::Errno;

use sys::mount::{self, Attributes};
use sys::place;

pub(super) fn make_directory(path: &CStr, mode: u32) -> Result<(), Errno> {
    if path.is_empty() {
        return Ok(());
    }
    let (parent, name) = place::find(path)?;
    match rustix::fs::mkdirat(&parent, name, Mode::from_raw_mode(mode)) {
        Err(Errno::EXIST) => Ok(()),
        other => other,
    }
}

/// Creates an empty file as mount point, unless something other than a directory exists.
pub(super) fn make_file(path: &CStr) -> Result<(), Errno> {
    let (parent, name) = place::find(path)?;
    let (kind, mode) = (FileType::RegularFile, Mode::from_raw_mode(0o644));
    match rustix::fs::mknodat(&parent, name, kind, mode, 0) {
        Err(Errno::EXIST) => match place::open(path)?.1 {
            FileType::Directory => Err(Errno::ISDIR),
            _ => Ok(()),
        },
        other => other,
    }
}

pub(super) fn bind(
    source: &CStr,
    target: &CStr,
    attributes: Attributes,
    recursive: bool,
) -> Result<(), Errno> {
    let (source, _) = place::open(source)?;
    let tree = if recursive {
        mount::clone_all(source.as_fd())?
    } else {
        mount::clone_directory(source.as_fd())?
    };
    mount::restrict_tree(tree.as_fd(), attributes)?;
    attach(tree.as_fd(), target)
}

pub(super) fn own_mount(path: &CStr) -> Result<(), Errno> {
    let (directory, _) = place::open(path)?;
    let tree = mount::clone_directory(directory.as_fd())?;
    mount::attach_at(tree.as_fd(), directory.as_fd())
}

pub(super) fn attach(tree: BorrowedFd<'_>, target: &CStr) -> Result<(), Errno> {
    mount::attach_at(tree, place::open(target)?.0.as_fd())
}

pub(super) fn tmpfs(target: &CStr, size_bytes: u64) -> Result<(), Errno> {
    let (directory, _) = place::open(target)?;
    let here = place::open(c".")?.0;
    rustix::process::fchdir(&directory)?;
    let mounted = mount::tmpfs_at(c".", size_bytes);
    rustix::process::fchdir(&here)?;
    mounted
}
