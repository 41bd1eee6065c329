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

use spec::path::{RelPath, escape};
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
pub(super) fn search(directory: &Path, caller_uid: u32) -> Search {
    let Ok(found) = std::fs::metadata(directory) else {
        return Search::Nothing;
    };
    let trusted = [caller_uid, found.uid()];
    for top in directory.ancestors() {
        let same_device = std::fs::metadata(top).is_ok_and(|above| above.dev() == found.dev());
        if !same_device {
            return Search::Nothing;
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
            let shown = escape(dot_git.as_os_str().as_bytes());
            Search::NotTrusted(format!("`{shown}` {why}"))
        };
        if !trusted.contains(&status.uid()) {
            return distrust("belongs to another user");
        }
        if status.is_dir() {
            if !is_repository(&dot_git) {
                continue;
            }
            return Search::Found(Checkout {
                top: top.to_owned(),
                below,
                git_dir: dot_git.clone(),
                common_dir: dot_git,
            });
        }
        if !status.is_file() {
            return distrust("is neither a directory nor a file");
        }
        return match git_directories(&dot_git, top) {
            Some((git_dir, common_dir))
                if is_owned(&git_dir, &trusted) && is_owned(&common_dir, &trusted) =>
            {
                Search::Found(Checkout {
                    top: top.to_owned(),
                    below,
                    git_dir,
                    common_dir,
                })
            }
            Some(_) => distrust("names a repository of another user"),
            None => distrust("names no repository that knows this directory"),
        };
    }
    Search::Nothing
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
fn git_directories(dot_git: &Path, top: &Path) -> Option<(PathBuf, PathBuf)> {
    let git_dir = path_in(dot_git, b"gitdir: ", top)?;
    if let Some(common_dir) = path_in(&git_dir.join("commondir"), b"", &git_dir) {
        let worktree = line_of(&git_dir.join("gitdir"))?;
        let worktree = std::fs::canonicalize(git_dir.join(OsStr::from_bytes(&worktree))).ok()?;
        let refers_back = worktree == std::fs::canonicalize(dot_git).ok()?;
        return (refers_back && is_repository(&common_dir)).then_some((git_dir, common_dir));
    }
    let config = read(&git_dir.join("config"), CONFIG_BYTES_MAX)?;
    let refers_back = config.split(|byte| *byte == b'\n').any(|line| {
        let value = line
            .trim_ascii()
            .strip_prefix(b"worktree")
            .and_then(|rest| rest.trim_ascii_start().strip_prefix(b"="));
        value.is_some_and(|value| {
            let value = without_quotes(value.trim_ascii());
            std::fs::canonicalize(git_dir.join(OsStr::from_bytes(value))).is_ok_and(|it| it == top)
        })
    });
    (refers_back && is_repository(&git_dir)).then(|| (git_dir.clone(), git_dir))
}

fn without_quotes(value: &[u8]) -> &[u8] {
    let inner = value.strip_prefix(b"\"");
    inner
        .and_then(|inner| inner.strip_suffix(b"\""))
        .unwrap_or(value)
}

fn path_in(file: &Path, start: &[u8], from: &Path) -> Option<PathBuf> {
    let line = line_of(file)?;
    let named = line.strip_prefix(start)?;
    let path = std::fs::canonicalize(from.join(OsStr::from_bytes(named))).ok()?;
    path.is_dir().then_some(path)
}

fn line_of(file: &Path) -> Option<Vec<u8>> {
    let mut text = read(file, LINE_BYTES_MAX)?;
    text.truncate(text.trim_ascii_end().len());
    (!text.is_empty()).then_some(text)
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
