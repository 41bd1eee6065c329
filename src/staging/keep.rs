//! `--keep`: copies a tree from the scratch root into a new directory.
//!
//! The tree may be 100,000 levels deep: the walk uses no recursion and no paths, and only the innermost
//! levels keep their descriptors. On the way up, `..` is opened and must be the directory of the way
//! down.

use std::collections::VecDeque;
use std::ffi::CString;
use std::fmt::Display;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, SeekFrom};
use rustix::io::{Errno, retry_on_intr};

use crate::staging::copy::BUFFER_BYTES;
use crate::staging::directory;
use crate::staging::error::{ScratchError, Unfit};
use crate::staging::source::{HardLinks, open_regular};
use spec::path::{escape, escape_path};
use spec::units;
use sys::file::write_all;

/// Levels with open descriptors, in the source and in the copy.
const OPEN_LEVELS_MAX: usize = 64;

/// The copied part of a tree.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Kept {
    /// Copied regular files.
    pub files: u64,
    /// Created directories, the top one included.
    pub directories: u64,
    /// Copied symbolic links, with any target.
    pub links: u64,
    /// Written bytes, without holes.
    pub bytes: u64,
    /// Number of files, links and special files that were left out.
    pub left_out: u64,
    /// The name of the first of those, escaped, and the reason.
    pub first_left_out: Option<String>,
}

/// Copies the tree at `from` to `into`, which is created with mode 0700 and must not exist.
///
/// Files get mode 0644 or 0755 and belong to the caller. Symbolic links are copied, never followed.
/// FIFOs, sockets, devices, unreadable files and files beyond `bytes_max` are left out. Holes stay
/// holes. Source directories that their owner cannot read get mode 0700.
///
/// # Errors
/// [`ScratchError::Tree`] if `into` cannot be created, a directory cannot be copied, or one is moved
/// meanwhile; the incomplete copy stays.
pub fn keep(from: BorrowedFd<'_>, into: &Path, bytes_max: u64) -> Result<Kept, ScratchError> {
    let shown = escape_path(into);
    let failed = |call| tree_error(call, &shown);
    rustix::fs::mkdirat(CWD, into, Mode::RWXU).map_err(failed("mkdir"))?;
    let sink = directory::open_made(CWD, into).map_err(failed("open"))?;
    rustix::fs::fchmod(&sink, Mode::RWXU).map_err(failed("fchmod"))?;
    let source = match directory::open(from, c".") {
        Err(Errno::ACCESS) => directory::reopen_with_rights(from),
        other => other,
    }
    .map_err(failed("open source of"))?;
    let mut walk = Walk {
        kept: Kept {
            directories: 1,
            ..Kept::default()
        },
        bytes_max,
        buffer: vec![0; BUFFER_BYTES],
        levels: Vec::new(),
    };
    walk.enter(source, sink).map_err(failed("copy to"))?;
    walk.run()?;
    Ok(walk.kept)
}

struct Walk {
    kept: Kept,
    bytes_max: u64,
    buffer: Vec<u8>,
    levels: Vec<Level>,
}

/// One directory on the way down. `None`: its descriptor is closed, to save descriptors.
struct Level {
    source: Option<OwnedFd>,
    sink: Option<OwnedFd>,
    source_identity: (u64, u64),
    sink_identity: (u64, u64),
    directories: Vec<CString>,
}

impl Walk {
    fn run(&mut self) -> Result<(), ScratchError> {
        while let Some(level) = self.levels.last_mut() {
            let Some(name) = level.directories.pop() else {
                let depth = self.levels.len();
                self.leave()
                    .map_err(tree_error("return from", &format!("level {depth}")))?;
                continue;
            };
            let shown = escape(name.to_bytes());
            let failed = |call| tree_error(call, &shown);
            let (Some(source), Some(sink)) = (&level.source, &level.sink) else {
                return Err(failed("reopen")(Errno::BADF));
            };
            let child = match directory::open_with_rights(source.as_fd(), name.as_c_str()) {
                Ok(child) => child,
                Err(errno) => {
                    self.leave_out(&name, format_args!("cannot be opened: {errno}"));
                    continue;
                }
            };
            rustix::fs::mkdirat(sink, &name, Mode::RWXU).map_err(failed("mkdirat"))?;
            let copy = directory::open_with_rights(sink.as_fd(), name.as_c_str())
                .map_err(failed("openat"))?;
            self.kept.directories += 1;
            self.enter(child, copy).map_err(failed("copy"))?;
        }
        Ok(())
    }

    /// Copies the entries of `source`, except its directories, which are queued.
    fn enter(&mut self, source: OwnedFd, sink: OwnedFd) -> Result<(), Errno> {
        let mut directories = Vec::new();
        let mut found = VecDeque::new();
        while directory::list_some(source.as_fd(), &mut found)? {
            for entry in found.drain(..) {
                if is_directory(source.as_fd(), &entry) {
                    directories.push(entry.name);
                } else {
                    self.keep_entry(source.as_fd(), sink.as_fd(), &entry.name);
                }
            }
        }
        let level = Level {
            source_identity: directory::identity(&rustix::fs::fstat(&source)?),
            sink_identity: directory::identity(&rustix::fs::fstat(&sink)?),
            source: Some(source),
            sink: Some(sink),
            directories,
        };
        self.levels.push(level);
        if let Some(index) = self.levels.len().checked_sub(OPEN_LEVELS_MAX + 1) {
            self.levels[index].source = None;
            self.levels[index].sink = None;
        }
        Ok(())
    }

    /// Returns to the parent directory, and opens it again if it was closed.
    fn leave(&mut self) -> Result<(), Errno> {
        let (Some(done), Some(above)) = (self.levels.pop(), self.levels.last_mut()) else {
            return Ok(());
        };
        if above.source.is_none() {
            above.source = Some(reopen(done.source, above.source_identity)?);
        }
        if above.sink.is_none() {
            above.sink = Some(reopen(done.sink, above.sink_identity)?);
        }
        Ok(())
    }

    /// Copies one file or link.
    fn keep_entry(&mut self, source: BorrowedFd<'_>, sink: BorrowedFd<'_>, name: &CString) {
        match open_regular(source, name.to_bytes(), HardLinks::Accepted) {
            Ok(opened) => match self.keep_file(&opened.descriptor, opened.mode, sink, name) {
                Ok(()) => self.kept.files += 1,
                Err(reason) => self.leave_out(name, reason),
            },
            Err(Unfit::Link) => match keep_link(source, sink, name) {
                Ok(()) => self.kept.links += 1,
                Err(errno) => {
                    self.leave_out(name, format_args!("is a link, cannot be copied: {errno}"));
                }
            },
            Err(unfit) => self.leave_out(name, unfit),
        }
    }

    fn keep_file(
        &mut self,
        source: &OwnedFd,
        mode: Mode,
        sink: BorrowedFd<'_>,
        name: &CString,
    ) -> Result<(), String> {
        let flags =
            OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let copy = rustix::fs::openat(sink, name, flags, Mode::RUSR | Mode::WUSR)
            .map_err(|errno| format!("cannot be copied: {errno}"))?;
        let bytes_before = self.kept.bytes;
        let copied = self.copy_data(source, &copy).and_then(|()| {
            rustix::fs::fchmod(&copy, mode).map_err(|errno| format!("cannot be copied: {errno}"))
        });
        let Err(reason) = copied else {
            return Ok(());
        };
        match rustix::fs::unlinkat(sink, name, AtFlags::empty()) {
            Ok(()) => {
                self.kept.bytes = bytes_before;
                Err(reason)
            }
            Err(errno) => Err(format!("{reason}; a partial copy stays: {errno}")),
        }
    }

    /// Copies the data, and keeps the holes.
    fn copy_data(&mut self, source: &OwnedFd, copy: &OwnedFd) -> Result<(), String> {
        let read = |errno: Errno| format!("cannot be read: {errno}");
        let write = |errno: Errno| format!("cannot be copied: {errno}");
        let size = rustix::fs::fstat(source).map_err(read)?.st_size;
        let end = u64::try_from(size).map_err(|_negative| read(Errno::OVERFLOW))?;
        rustix::fs::ftruncate(copy, end).map_err(write)?;
        let mut at = 0;
        while at < end {
            let start = match rustix::fs::seek(source, SeekFrom::Data(at)) {
                Ok(start) => start,
                // Only a hole is left.
                Err(Errno::NXIO) => break,
                Err(errno) => return Err(read(errno)),
            };
            let stop = rustix::fs::seek(source, SeekFrom::Hole(start))
                .map_err(read)?
                .min(end);
            rustix::fs::seek(source, SeekFrom::Start(start)).map_err(read)?;
            rustix::fs::seek(copy, SeekFrom::Start(start)).map_err(write)?;
            let mut left = stop.saturating_sub(start);
            if left > self.bytes_max - self.kept.bytes {
                return Err(format!(
                    "exceeds the limit of {} for --keep",
                    units::bytes(self.bytes_max)
                ));
            }
            self.kept.bytes += left;
            while left > 0 {
                let length =
                    usize::try_from(left).map_or(BUFFER_BYTES, |left| left.min(BUFFER_BYTES));
                let count = retry_on_intr(|| rustix::io::read(source, &mut self.buffer[..length]))
                    .map_err(read)?;
                if count == 0 {
                    return Err("shrank while it was being copied".to_owned());
                }
                write_all(copy.as_fd(), &self.buffer[..count]).map_err(write)?;
                left -= count as u64;
            }
            at = stop;
        }
        Ok(())
    }

    /// `reason` completes "`name` …".
    fn leave_out(&mut self, name: &CString, reason: impl Display) {
        self.kept.left_out += 1;
        self.kept
            .first_left_out
            .get_or_insert_with(|| format!("`{}` {reason}", escape(name.to_bytes())));
    }
}

/// Calls fstatat(2) if the file system does not list the types of entries.
fn is_directory(parent: BorrowedFd<'_>, entry: &directory::Entry) -> bool {
    if entry.kind != FileType::Unknown {
        return entry.kind == FileType::Directory;
    }
    rustix::fs::statat(parent, &entry.name, AtFlags::SYMLINK_NOFOLLOW)
        .is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::Directory)
}

/// Opens the parent of `below`, if it is still the one with `identity`.
fn reopen(below: Option<OwnedFd>, identity: (u64, u64)) -> Result<OwnedFd, Errno> {
    let below = below.ok_or(Errno::BADF)?;
    let above = directory::open(below.as_fd(), c"..")?;
    if directory::identity(&rustix::fs::fstat(&above)?) == identity {
        return Ok(above);
    }
    // A directory was moved meanwhile.
    Err(Errno::STALE)
}

fn keep_link(source: BorrowedFd<'_>, sink: BorrowedFd<'_>, name: &CString) -> Result<(), Errno> {
    let target = rustix::fs::readlinkat(source, name, Vec::new())?;
    rustix::fs::symlinkat(&target, sink, name)
}

fn tree_error(call: &'static str, object: &str) -> impl FnOnce(Errno) -> ScratchError {
    let object = object.to_owned();
    move |errno| ScratchError::Tree {
        call,
        object,
        errno,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::FileExt as _;

    #[test]
    fn a_file_that_does_not_fit_is_removed_and_its_bytes_do_not_count() {
        const MIB: usize = 1 << 20;
        let home = tempfile::tempdir().expect("a directory");
        let from = home.path().join("from");
        std::fs::create_dir(&from).expect("made");
        let file = std::fs::File::create(from.join("large")).expect("made");
        for start in [0, 2 * MIB as u64] {
            file.write_all_at(&vec![7; MIB], start).expect("written");
        }
        let from = std::fs::File::open(from).expect("opened");
        let kept = keep(from.as_fd(), &home.path().join("into"), MIB as u64 + 1).expect("kept");
        assert_eq!((kept.files, kept.left_out, kept.bytes), (0, 1, 0));
        let first = kept.first_left_out.expect("the reason");
        assert!(first.starts_with("`large` exceeds the limit"), "{first}");
    }
}
