//! Removing a directory tree that its maker shaped to hurt whoever removes it.
//!
//! Every step is one name in one open directory: nothing is followed, so a directory swapped for
//! a link is unlinked as the link it is. There is no recursion and no path: the walk goes down at
//! most [`DEPTH_MAX`] levels with a descriptor each, and moves what lies deeper up into the top
//! directory, where a later pass finds it. So depth costs neither descriptors nor stack.

use std::collections::VecDeque;
use std::ffi::{CStr, CString};
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

use rustix::fs::{AtFlags, FileType, SeekFrom};
use rustix::io::Errno;

use crate::staging::directory::{self, Entry};
use crate::staging::error::ScratchError;
use spec::path::escape;

/// Levels that are open at once.
const DEPTH_MAX: usize = 32;
/// How many of the things that stay are named.
const NAMED_MAX: usize = 32;
/// Passes over the top directory: enough for three million levels, and an end to a race with
/// somebody who keeps making files.
const PASSES_MAX: u32 = 100_000;

/// What became of a tree that was to be removed.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Removal {
    /// Names that were removed, the top one included.
    pub removed: u64,
    /// Names that stay; 0 means that the tree is gone.
    pub left: u64,
    /// The first few of those that stay.
    pub named: Vec<LeftOver>,
}

/// Something that could not be removed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeftOver {
    /// Its name in its directory, escaped.
    pub name: String,
    /// The system call that failed.
    pub call: &'static str,
    pub errno: Errno,
}

/// Removes `name` in `parent` and everything below it, and says what could not be removed.
///
/// Directories that forbid it are first given the rights that it takes. Other mounts are left
/// alone (EXDEV). That there is no `name` is no error.
///
/// # Errors
/// [`ScratchError::Tree`] where `name` is not one file name.
pub fn remove_tree(parent: BorrowedFd<'_>, name: &CStr) -> Result<Removal, ScratchError> {
    let bytes = name.to_bytes();
    if bytes.is_empty() || bytes == b"." || bytes == b".." || bytes.contains(&b'/') {
        return Err(ScratchError::Tree {
            call: "unlinkat",
            object: escape(bytes),
            errno: Errno::INVAL,
        });
    }
    let mut walk = Walk::default();
    match rustix::fs::unlinkat(parent, name, AtFlags::empty()) {
        Err(Errno::ISDIR) => walk.remove_directory(parent, name),
        Ok(()) => walk.removal.removed = 1,
        Err(Errno::NOENT) => (),
        Err(errno) => walk.leave(name, "unlinkat", errno),
    }
    Ok(walk.removal)
}

#[derive(Default)]
struct Walk {
    removal: Removal,
    /// Whether this pass over the top directory removed or moved anything.
    progress: bool,
    /// Number of the next name for what is moved to the top.
    moved: u64,
}

struct Level {
    descriptor: OwnedFd,
    name: CString,
    pending: VecDeque<Entry>,
}

impl Walk {
    fn remove_directory(&mut self, parent: BorrowedFd<'_>, name: &CStr) {
        let top = match directory::open_with_rights(parent, name) {
            Ok(top) => top,
            Err(errno) => return self.leave(name, "openat", errno),
        };
        for _pass in 0..PASSES_MAX {
            self.progress = false;
            self.removal.left = 0;
            self.removal.named.clear();
            if let Err(errno) = rustix::fs::seek(&top, SeekFrom::Start(0)) {
                return self.leave(name, "lseek", errno);
            }
            self.pass(&top);
            if !self.progress {
                break;
            }
        }
        match rustix::fs::unlinkat(parent, name, AtFlags::REMOVEDIR) {
            Ok(()) => self.removal.removed += 1,
            Err(Errno::NOENT) => (),
            Err(errno) => self.leave(name, "rmdir", errno),
        }
    }

    /// Visits everything in `top` once, [`DEPTH_MAX`] levels down.
    fn pass(&mut self, top: &OwnedFd) {
        let mut pending = VecDeque::new();
        let mut below: Vec<Level> = Vec::new();
        loop {
            let depth = below.len();
            let (here, names) = match below.last_mut() {
                Some(level) => (level.descriptor.as_fd(), &mut level.pending),
                None => (top.as_fd(), &mut pending),
            };
            if let Some(entry) = names.pop_front() {
                if let Some(level) = self.remove_entry(top.as_fd(), here, entry, depth) {
                    below.push(level);
                }
                continue;
            }
            match directory::list_some(here, names) {
                Ok(true) => continue,
                // ENOENT: the directory itself was removed meanwhile.
                Ok(false) | Err(Errno::NOENT) => (),
                Err(errno) => {
                    let name = below.last().map_or(c".", |level| &level.name).to_owned();
                    self.leave(&name, "getdents64", errno);
                }
            }
            let Some(done) = below.pop() else {
                return;
            };
            let above = below
                .last()
                .map_or(top.as_fd(), |level| level.descriptor.as_fd());
            match rustix::fs::unlinkat(above, &done.name, AtFlags::REMOVEDIR) {
                Ok(()) => self.count_removed(),
                // ENOTDIR: swapped for something else meanwhile; the next pass meets that.
                Err(Errno::NOENT | Errno::NOTDIR) => self.progress = true,
                Err(errno) => self.leave(&done.name, "rmdir", errno),
            }
        }
    }

    /// Removes one name, or gives the directory to go down into.
    fn remove_entry(
        &mut self,
        top: BorrowedFd<'_>,
        here: BorrowedFd<'_>,
        entry: Entry,
        depth: usize,
    ) -> Option<Level> {
        let name = entry.name;
        if entry.kind != FileType::Directory {
            match rustix::fs::unlinkat(here, &name, AtFlags::empty()) {
                Ok(()) => self.count_removed(),
                Err(Errno::NOENT) => self.progress = true,
                // The listing was wrong, or did not say (DT_UNKNOWN).
                Err(Errno::ISDIR) => return self.go_down(top, here, name, depth),
                Err(errno) => self.leave(&name, "unlinkat", errno),
            }
            return None;
        }
        match rustix::fs::unlinkat(here, &name, AtFlags::REMOVEDIR) {
            Ok(()) => self.count_removed(),
            Err(Errno::NOENT | Errno::NOTDIR) => self.remove_swapped(here, &name),
            Err(Errno::NOTEMPTY | Errno::EXIST) => return self.go_down(top, here, name, depth),
            Err(errno) => self.leave(&name, "rmdir", errno),
        }
        None
    }

    fn go_down(
        &mut self,
        top: BorrowedFd<'_>,
        here: BorrowedFd<'_>,
        name: CString,
        depth: usize,
    ) -> Option<Level> {
        // Also where it is only moved: a directory that changes its parent is itself written to.
        let descriptor = match directory::open_with_rights(here, name.as_c_str()) {
            Ok(descriptor) => descriptor,
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => {
                self.remove_swapped(here, &name);
                return None;
            }
            Err(errno) => {
                self.leave(&name, "openat", errno);
                return None;
            }
        };
        if depth < DEPTH_MAX {
            return Some(Level {
                descriptor,
                name,
                pending: VecDeque::new(),
            });
        }
        self.move_to_top(top, here, &name);
        None
    }

    /// What was a directory a moment ago is something else now, or gone.
    fn remove_swapped(&mut self, here: BorrowedFd<'_>, name: &CStr) {
        match rustix::fs::unlinkat(here, name, AtFlags::empty()) {
            Ok(()) => self.count_removed(),
            // Back to a directory: the next pass meets it.
            Err(Errno::NOENT | Errno::ISDIR) => self.progress = true,
            Err(errno) => self.leave(name, "unlinkat", errno),
        }
    }

    fn move_to_top(&mut self, top: BorrowedFd<'_>, here: BorrowedFd<'_>, name: &CStr) {
        loop {
            let upper = format!(".runner-moved-{}", self.moved);
            self.moved += 1;
            // A plain rename: what it might replace is to be removed as well.
            match rustix::fs::renameat(here, name, top, upper.as_str()) {
                Ok(()) | Err(Errno::NOENT) => {
                    self.progress = true;
                    return;
                }
                // That name is taken; numbers only go up, so this ends.
                Err(Errno::NOTEMPTY | Errno::EXIST | Errno::NOTDIR | Errno::ISDIR) => (),
                Err(errno) => return self.leave(name, "renameat", errno),
            }
        }
    }

    fn count_removed(&mut self) {
        self.removal.removed += 1;
        self.progress = true;
    }

    fn leave(&mut self, name: &CStr, call: &'static str, errno: Errno) {
        self.removal.left += 1;
        if self.removal.named.len() < NAMED_MAX {
            self.removal.named.push(LeftOver {
                name: escape(name.to_bytes()),
                call,
                errno,
            });
        }
    }
}
