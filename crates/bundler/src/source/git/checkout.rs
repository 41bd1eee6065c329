//! Detection of git checkouts.
//!
//! The files are untrusted. A `.git` is ignored if it belongs to another user, is a link, or names
//! a repository that does not refer back to the directory.

use std::ffi::OsStr;
use std::os::fd::AsFd as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};

use crate::error::BundleError;
use crate::source::git::texts::GitTexts;
use spec::path::{RelPath, escape_path};
use sys::file::{open_beneath, read_regular};

const LINE_BYTES_MAX: usize = 8 << 10;
pub(super) const CONFIG_BYTES_MAX: usize = 1 << 20;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Checkout {
    pub(super) top: PathBuf,
    /// Path of the directory in the checkout; `None` for its root.
    pub(super) below: Option<RelPath>,
    /// Git directory of this working tree: HEAD and the index.
    pub(super) git_dir: PathBuf,
    /// Git directory shared by all working trees: objects and references.
    pub(super) common_dir: PathBuf,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Search {
    Nothing,
    NotTrusted(String),
    Found(Checkout),
}

/// Searches `directory`, an absolute path without links, and its parents for a checkout. Like git, it
/// stays in one file system.
pub(super) fn search(
    directory: &Path,
    caller_uid: u32,
    texts: &mut GitTexts,
) -> Result<Search, BundleError> {
    let Ok(found) = std::fs::metadata(directory) else {
        return Ok(Search::Nothing);
    };
    let trusted = [caller_uid, found.uid()];
    for top in directory.ancestors() {
        let same_device = std::fs::metadata(top).is_ok_and(|above| above.dev() == found.dev());
        if !same_device {
            return Ok(Search::Nothing);
        }
        let dot_git = top.join(".git");
        let Ok(status) = std::fs::symlink_metadata(&dot_git) else {
            continue;
        };
        let below = directory
            .strip_prefix(top)
            .ok()
            .and_then(|below| RelPath::parse(below.as_os_str().as_bytes()).ok());
        let distrust = |why: &str| {
            let shown = escape_path(&dot_git);
            Ok(Search::NotTrusted(format!("`{shown}` {why}")))
        };
        if !trusted.contains(&status.uid()) {
            return distrust("belongs to another user");
        }
        if status.is_dir() {
            if !is_repository(&dot_git) {
                continue;
            }
            return Ok(Search::Found(Checkout {
                top: top.to_owned(),
                below,
                git_dir: dot_git.clone(),
                common_dir: dot_git,
            }));
        }
        if !status.is_file() {
            return distrust("is neither a directory nor a file");
        }
        return match git_directories(&dot_git, top, texts)? {
            Some((git_dir, common_dir))
                if is_owned(&git_dir, &trusted) && is_owned(&common_dir, &trusted) =>
            {
                Ok(Search::Found(Checkout {
                    top: top.to_owned(),
                    below,
                    git_dir,
                    common_dir,
                }))
            }
            Some(_) => distrust("names a repository of another user"),
            None => distrust("names no repository that knows this directory"),
        };
    }
    Ok(Search::Nothing)
}

fn is_owned(path: &Path, trusted: &[u32; 2]) -> bool {
    std::fs::metadata(path).is_ok_and(|found| trusted.contains(&found.uid()))
}

fn is_repository(directory: &Path) -> bool {
    let is_file = |name: &str| std::fs::metadata(directory.join(name)).is_ok_and(|it| it.is_file());
    let is_directory = |name: &str| directory.join(name).is_dir();
    is_file("HEAD") && is_directory("objects") && is_directory("refs")
}

/// Resolves a `.git` file to its two directories. They must refer back to the checkout: a working
/// tree by the file `gitdir`, a submodule by `core.worktree`, which git writes relative to them.
fn git_directories(
    dot_git: &Path,
    top: &Path,
    texts: &mut GitTexts,
) -> Result<Option<(PathBuf, PathBuf)>, BundleError> {
    let text = read(dot_git, LINE_BYTES_MAX).unwrap_or_default();
    let named = texts.git_file(&text)?;
    let Some(git_dir) = named.and_then(|named| directory_at(top, &named)) else {
        return Ok(None);
    };
    let mut line_in = |name: &str| {
        let text = read(&git_dir.join(name), LINE_BYTES_MAX);
        text.map_or(Ok(None), |text| texts.line(&text))
    };
    let named = line_in("commondir")?;
    if let Some(common_dir) = named.and_then(|named| directory_at(&git_dir, &named)) {
        let worktree = line_in("gitdir")?.and_then(|worktree| real_path(&git_dir, &worktree));
        let refers_back = worktree.is_some() && worktree == std::fs::canonicalize(dot_git).ok();
        let is_found = refers_back && is_repository(&common_dir);
        return Ok(is_found.then_some((git_dir, common_dir)));
    }
    let config = read(&git_dir.join("config"), CONFIG_BYTES_MAX).unwrap_or_default();
    let worktrees = texts.worktrees(&config)?;
    let is_top = |worktree: &Vec<u8>| real_path(&git_dir, worktree).is_some_and(|it| it == top);
    let is_found = worktrees.iter().any(is_top) && is_repository(&git_dir);
    Ok(is_found.then(|| (git_dir.clone(), git_dir)))
}

fn directory_at(from: &Path, named: &[u8]) -> Option<PathBuf> {
    real_path(from, named).filter(|path| path.is_dir())
}

fn real_path(from: &Path, named: &[u8]) -> Option<PathBuf> {
    std::fs::canonicalize(from.join(OsStr::from_bytes(named))).ok()
}

/// Like [`read`], beneath a directory and without following links.
pub(super) fn read_without_links(directory: &Path, name: &str) -> Option<Vec<u8>> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let directory = rustix::fs::open(directory, flags, Mode::empty()).ok()?;
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY;
    let name = name.as_bytes();
    let file = open_beneath(directory.as_fd(), name, flags, Mode::empty()).ok()?;
    read_regular(file, CONFIG_BYTES_MAX).ok()
}

/// Reads a regular file; does not block on others.
pub(super) fn read(path: &Path, bytes_max: usize) -> Option<Vec<u8>> {
    let flags = libc::O_NONBLOCK | libc::O_NOCTTY | libc::O_CLOEXEC;
    let mut options = std::fs::OpenOptions::new();
    let file = options.read(true).custom_flags(flags).open(path).ok()?;
    read_regular(file.into(), bytes_max).ok()
}
