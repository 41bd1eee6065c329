//! Steps of requested mounts. They follow no link, because other users may change the directories of
//! sources and targets at any time.

use std::ffi::CStr;
use std::os::fd::{AsFd, BorrowedFd};

use rustix::fs::{FileType, Mode};
use rustix::io::Errno;

use sys::mount::{self, Attributes};
use sys::nofollow;

pub(super) fn make_directory(path: &CStr, mode: u32) -> Result<(), Errno> {
    if path.is_empty() {
        return Ok(());
    }
    let (parent, name) = nofollow::open_parent(path)?;
    match rustix::fs::mkdirat(&parent, name, Mode::from_raw_mode(mode)) {
        Err(Errno::EXIST) => Ok(()),
        other => other,
    }
}

/// Creates an empty file as mount point. Accepts any existing file except a directory.
pub(super) fn make_file(path: &CStr) -> Result<(), Errno> {
    let (parent, name) = nofollow::open_parent(path)?;
    let (kind, mode) = (FileType::RegularFile, Mode::from_raw_mode(0o644));
    match rustix::fs::mknodat(&parent, name, kind, mode, 0) {
        Err(Errno::EXIST) => match nofollow::open(path)?.1 {
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
    let (source, _) = nofollow::open(source)?;
    let tree = if recursive {
        mount::clone_all(source.as_fd())?
    } else {
        mount::clone_directory(source.as_fd())?
    };
    mount::restrict_tree(tree.as_fd(), attributes)?;
    attach(tree.as_fd(), target)
}

pub(super) fn bind_to_self(path: &CStr) -> Result<(), Errno> {
    let (directory, _) = nofollow::open(path)?;
    let tree = mount::clone_directory(directory.as_fd())?;
    mount::attach_at(tree.as_fd(), directory.as_fd())
}

pub(super) fn attach(tree: BorrowedFd<'_>, target: &CStr) -> Result<(), Errno> {
    mount::attach_at(tree, nofollow::open(target)?.0.as_fd())
}

pub(super) fn tmpfs(target: &CStr, size_bytes: u64) -> Result<(), Errno> {
    let (directory, _) = nofollow::open(target)?;
    let working_directory = nofollow::open(c".")?.0;
    rustix::process::fchdir(&directory)?;
    let mounted = mount::tmpfs_at(c".", size_bytes);
    rustix::process::fchdir(&working_directory)?;
    mounted
}
