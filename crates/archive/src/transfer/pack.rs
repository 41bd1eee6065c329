//! Packs a file or a tree that others may change meanwhile as a tar.
//!
//! Each entry is opened beneath its directory, and no link is followed. What was replaced while it was
//! opened is skipped, as devices, FIFOs and sockets are. A file has the size that it had when it was
//! opened.

use std::io::{self, Write};
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;

use crate::canonical::{Fields, header_blocks, padding};
use crate::entry_rules::SEGMENTS_MAX;
use crate::tar_header::BLOCK_BYTES;
use crate::transfer::layer_rules::{LayerEntry, LayerRules, is_opaque, mount_of};
use crate::whiteout::{OPAQUE, PREFIX};
use spec::path::{PATH_BYTES_MAX, escape};
use sys::file::{open_beneath, type_name};

/// Size of one read of a file, in bytes.
pub(super) const READ_BYTES: usize = 256 * 1024;
/// Permission bits that are kept: no set-user-id, no set-group-id.
const KEPT_BITS: u32 = 0o1777;

/// Why nothing, or not all, was packed.
#[derive(Debug, thiserror::Error)]
pub enum PackError {
    /// The path is escaped.
    #[error("cannot read `{path}`: {errno}")]
    Unreadable { path: String, errno: Errno },
    #[error("cannot copy `{path}`: it is {found}")]
    Special { path: String, found: &'static str },
    #[error("cannot copy `{path}`: {problem}")]
    Unfit { path: String, problem: String },
    #[error("cannot write the files to the other side")]
    Output(#[source] io::Error),
}

/// What to pack.
#[derive(Debug, Clone, Copy)]
pub struct PackTask<'run> {
    /// A path of this process. A link at its end is packed as a link, unless it ends in `/` or `/.`.
    pub path: &'run [u8],
    /// Packs what a link at its end leads to.
    pub follows_link: bool,
    /// The name of the path in the tar, a segment; `.` for what is in a directory.
    pub top: &'run [u8],
}

/// Whether a path names what is in a directory, and not the directory itself.
#[must_use]
pub fn is_contents(path: &[u8]) -> bool {
    matches!(last_segment(path), b"." | b".." | b"")
}

/// The last segment of a path, without the slashes after it.
#[must_use]
pub fn last_segment(path: &[u8]) -> &[u8] {
    let end = path.iter().rposition(|byte| *byte != b'/');
    let path = &path[..end.map_or(0, |end| end + 1)];
    path.rsplit(|byte| *byte == b'/').next().unwrap_or(path)
}

/// Writes the tar of a file or a tree to `out`. `skip` gets the escaped path of each entry that is skipped,
/// and why.
///
/// # Errors
/// [`PackError`]; `out` then has no end of a tar.
pub fn pack(
    task: PackTask<'_>,
    out: &mut dyn Write,
    skip: &mut dyn FnMut(&str, &str),
) -> Result<(), PackError> {
    let mut packer = Packer {
        out,
        skip,
        buffer: vec![0; READ_BYTES],
        root: task.path,
        layer: None,
    };
    packer.pack_root(task)?;
    packer.end()
}

pub(super) struct Packer<'run> {
    pub(super) out: &'run mut dyn Write,
    pub(super) skip: &'run mut dyn FnMut(&str, &str),
    pub(super) buffer: Vec<u8>,
    /// The path of the caller that the first segment of a name in the tar stands for.
    pub(super) root: &'run [u8],
    /// The tree becomes a part of a layer.
    pub(super) layer: Option<LayerRules>,
}

/// A directory whose entries are packed.
pub(super) struct Level {
    pub(super) listing: Dir,
    /// Its name in the tar; empty for the root of a layer.
    pub(super) name: Vec<u8>,
}

impl Packer<'_> {
    fn pack_root(&mut self, task: PackTask<'_>) -> Result<(), PackError> {
        let failed = |errno| unreadable(task.path, errno);
        let is_directory = task.path.ends_with(b"/") || is_contents(task.path);
        let follows = task.follows_link || is_directory;
        let at_flags = match follows {
            true => AtFlags::empty(),
            false => AtFlags::SYMLINK_NOFOLLOW,
        };
        let status = rustix::fs::statat(CWD, task.path, at_flags).map_err(failed)?;
        let found = FileType::from_raw_mode(status.st_mode);
        if is_directory && found != FileType::Directory {
            return Err(failed(Errno::NOTDIR));
        }
        match found {
            FileType::Symlink => {
                let target = rustix::fs::readlinkat(CWD, task.path, Vec::new()).map_err(failed)?;
                self.write_link(task.top, &status, target.as_bytes())
            }
            FileType::RegularFile | FileType::Directory => {
                let flags = match follows {
                    true => OPEN_FLAGS,
                    false => OPEN_FLAGS | OFlags::NOFOLLOW,
                };
                let opened = rustix::fs::openat(CWD, task.path, flags, Mode::empty());
                let level = self.pack_opened(opened.map_err(failed)?, task.top.to_vec())?;
                level.map_or(Ok(()), |level| self.pack_below(level))
            }
            special => Err(PackError::Special {
                path: escape(task.path),
                found: type_name(special),
            }),
        }
    }

    /// Writes the end of the tar.
    pub(super) fn end(&mut self) -> Result<(), PackError> {
        self.write(&[0; 2 * BLOCK_BYTES])
    }

    pub(super) fn pack_below(&mut self, top: Level) -> Result<(), PackError> {
        let mut open = vec![top];
        loop {
            let depth = open.len() + 1;
            let Some(level) = open.last_mut() else {
                return Ok(());
            };
            let Some(entry) = level.listing.next() else {
                open.pop();
                continue;
            };
            let entry = entry.map_err(|errno| self.unreadable(&level.name, errno))?;
            let name = entry.file_name().to_bytes();
            if matches!(name, b"." | b"..") {
                continue;
            }
            let path = match level.name.as_slice() {
                b"" => name.to_vec(),
                above => [above, b"/", name].concat(),
            };
            let directory = level
                .listing
                .fd()
                .map_err(|errno| self.unreadable(&level.name, errno))?;
            self.check(&path, depth)?;
            if let Some(below) = self.pack_entry(directory, name, path)? {
                open.push(below);
            }
        }
    }

    fn check(&self, path: &[u8], depth: usize) -> Result<(), PackError> {
        let problem = match (path.len(), depth) {
            (bytes, _) if bytes > PATH_BYTES_MAX => {
                format!("its path is longer than {PATH_BYTES_MAX} bytes")
            }
            (_, depth) if depth > SEGMENTS_MAX => {
                format!("it is more than {SEGMENTS_MAX} directories deep")
            }
            _ => return Ok(()),
        };
        // The start says where it is.
        let start = path.get(..100).unwrap_or(path);
        Err(PackError::Unfit {
            path: self.shown(start),
            problem,
        })
    }

    fn pack_entry(
        &mut self,
        directory: BorrowedFd<'_>,
        name: &[u8],
        path: Vec<u8>,
    ) -> Result<Option<Level>, PackError> {
        let status = match rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(status) => status,
            // It was removed since it was listed.
            Err(Errno::NOENT) => return Ok(None),
            Err(errno) => return Err(self.unreadable(&path, errno)),
        };
        if let Some(rules) = self.layer {
            match rules.of_entry(name, &status) {
                LayerEntry::Ordinary => (),
                LayerEntry::Whiteout => return self.write_whiteout(&path).map(|()| None),
                LayerEntry::LikeWhiteout => {
                    self.skip(&path, "in a layer its name means that a file is deleted");
                    return Ok(None);
                }
            }
        }
        let opened = match FileType::from_raw_mode(status.st_mode) {
            FileType::RegularFile | FileType::Directory => open_beneath(
                directory,
                name,
                OPEN_FLAGS | OFlags::NOFOLLOW,
                Mode::empty(),
            ),
            FileType::Symlink => match rustix::fs::readlinkat(directory, name, Vec::new()) {
                Ok(target) => {
                    return self
                        .write_link(&path, &status, target.as_bytes())
                        .map(|()| None);
                }
                Err(errno) => Err(errno),
            },
            special => {
                self.skip(&path, &format!("it is {}", type_name(special)));
                return Ok(None);
            }
        };
        match opened {
            Ok(opened) => self.pack_opened(opened, path),
            Err(Errno::NOENT) => Ok(None),
            Err(Errno::LOOP | Errno::XDEV | Errno::NOTDIR | Errno::INVAL | Errno::NXIO) => {
                self.skip(&path, "it was replaced while it was copied");
                Ok(None)
            }
            Err(errno) => Err(self.unreadable(&path, errno)),
        }
    }

    /// Packs a file, or the entry of a directory, whose listing it returns.
    fn pack_opened(&mut self, opened: OwnedFd, path: Vec<u8>) -> Result<Option<Level>, PackError> {
        let failed = |errno| unreadable(&path, errno);
        if let Some(rules) = self.layer
            && mount_of(opened.as_fd()).map_err(failed)? != rules.mount
        {
            return Ok(None);
        }
        let status = rustix::fs::fstat(&opened).map_err(failed)?;
        match FileType::from_raw_mode(status.st_mode) {
            FileType::RegularFile => self.write_file(&opened, &path, &status).map(|()| None),
            FileType::Directory => {
                let name = [&path, &b"/"[..]].concat();
                self.write(&header(&name, b'5', &status, 0, b""))?;
                if self.layer.is_some_and(|rules| rules.is_upper) && is_opaque(opened.as_fd()) {
                    self.write(&header(&[&name, OPAQUE].concat(), b'0', &status, 0, b""))?;
                }
                let listing = Dir::new(opened).map_err(failed)?;
                Ok(Some(Level {
                    listing,
                    name: path,
                }))
            }
            _ => {
                self.skip(&path, "it was replaced while it was copied");
                Ok(None)
            }
        }
    }

    fn write_whiteout(&mut self, path: &[u8]) -> Result<(), PackError> {
        let (above, name) = match path.iter().rposition(|byte| *byte == b'/') {
            Some(slash) => path.split_at(slash + 1),
            None => (&b""[..], path),
        };
        let fields = Fields {
            type_flag: b'0',
            mode: 0,
            size: 0,
            modified_s: 0,
        };
        self.write(&header_blocks(&[above, PREFIX, name].concat(), fields, b""))
    }

    fn write_link(&mut self, path: &[u8], status: &Stat, target: &[u8]) -> Result<(), PackError> {
        self.write(&header(path, b'2', status, 0, target))
    }

    fn write_file(&mut self, file: &OwnedFd, path: &[u8], status: &Stat) -> Result<(), PackError> {
        let bytes = u64::try_from(status.st_size).unwrap_or(0);
        self.write(&header(path, b'0', status, bytes, b""))?;
        let mut left = bytes;
        while left > 0 {
            let wanted = usize::try_from(left).map_or(READ_BYTES, |left| left.min(READ_BYTES));
            let count = match rustix::io::read(file, &mut self.buffer[..wanted]) {
                Ok(0) => {
                    self.skip(
                        path,
                        "its end: it was cut while it was copied, and is filled with zeros",
                    );
                    return self
                        .write_zeros(left)
                        .and_then(|()| self.write(padding(bytes)));
                }
                Ok(count) => count,
                Err(Errno::INTR) => continue,
                Err(errno) => return Err(self.unreadable(path, errno)),
            };
            self.out
                .write_all(&self.buffer[..count])
                .map_err(PackError::Output)?;
            left -= count as u64;
        }
        self.write(padding(bytes))
    }

    fn write_zeros(&mut self, mut left: u64) -> Result<(), PackError> {
        self.buffer.fill(0);
        while left > 0 {
            let count = usize::try_from(left).map_or(READ_BYTES, |left| left.min(READ_BYTES));
            self.out
                .write_all(&self.buffer[..count])
                .map_err(PackError::Output)?;
            left -= count as u64;
        }
        Ok(())
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), PackError> {
        self.out.write_all(bytes).map_err(PackError::Output)
    }

    fn skip(&mut self, path: &[u8], why: &str) {
        let shown = self.shown(path);
        (self.skip)(&shown, why);
    }

    /// A path in the tar as the caller knows it.
    fn shown(&self, path: &[u8]) -> String {
        if self.layer.is_some() {
            return escape(&[b"/", path].concat());
        }
        let below = path.iter().position(|byte| *byte == b'/');
        let below = below.map_or(&b""[..], |slash| &path[slash..]);
        let root = self.root.strip_suffix(b"/").unwrap_or(self.root);
        escape(&[root, below].concat())
    }

    fn unreadable(&self, path: &[u8], errno: Errno) -> PackError {
        PackError::Unreadable {
            path: self.shown(path),
            errno,
        }
    }
}

/// Opens no device: the type was seen before. A FIFO that took its place is not waited for.
const OPEN_FLAGS: OFlags = OFlags::RDONLY
    .union(OFlags::NONBLOCK)
    .union(OFlags::NOCTTY)
    .union(OFlags::CLOEXEC);

fn header(name: &[u8], type_flag: u8, status: &Stat, size: u64, link: &[u8]) -> Vec<u8> {
    let fields = Fields {
        type_flag,
        mode: status.st_mode & KEPT_BITS,
        size,
        modified_s: u64::try_from(status.st_mtime).unwrap_or(0),
    };
    header_blocks(name, fields, link)
}

pub(super) fn unreadable(path: &[u8], errno: Errno) -> PackError {
    PackError::Unreadable {
        path: escape(path),
        errno,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::ffi::OsStrExt as _;
    use std::os::unix::fs::symlink;
    use std::sync::atomic::{AtomicBool, Ordering};

    use rustix::fs::{RenameFlags, renameat_with};

    ///
    #[test]
    fn what_is_exchanged_for_a_link_between_two_calls_is_not_followed() {
        let ground = tempfile::tempdir().expect("made");
        let path = |name: &str| ground.path().join(name);
        fs::create_dir_all(path("tree/directory")).expect("made");
        fs::create_dir(path("outside")).expect("made");
        fs::write(path("outside/secret"), "secret contents").expect("written");
        fs::write(path("tree/file"), "own").expect("written");
        symlink(path("outside"), path("tree/to directory")).expect("made");
        symlink(path("outside/secret"), path("tree/to file")).expect("made");
        let is_done = AtomicBool::new(false);
        let mut packed = 0;
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !is_done.load(Ordering::Relaxed) {
                    for name in ["directory", "file"] {
                        let (one, other) = (format!("tree/{name}"), format!("tree/to {name}"));
                        let flags = RenameFlags::EXCHANGE;
                        renameat_with(CWD, path(&one), CWD, path(&other), flags).expect("moved");
                    }
                }
            });
            for _ in 0..3_000 {
                let mut out = Vec::new();
                let tree = path("tree");
                let task = PackTask {
                    path: tree.as_os_str().as_bytes(),
                    follows_link: false,
                    top: b"copy",
                };
                pack(task, &mut out, &mut |_, _| ()).expect("packed");
                packed += usize::from(out.windows(15).any(|bytes| bytes == b"secret contents"));
            }
            is_done.store(true, Ordering::Relaxed);
        });
        assert_eq!(
            packed, 0,
            "archives with the contents of what a link leads to"
        );
    }

    #[test]
    fn the_last_segment_has_no_slash_and_dots_are_contents() {
        for (path, last, contents) in [
            (&b"a"[..], &b"a"[..], false),
            (b"/a/b/", b"b", false),
            (b"a//", b"a", false),
            (b"a/.", b".", true),
            (b"..", b"..", true),
            (b"/", b"", true),
            (b"", b"", true),
        ] {
            assert_eq!(last_segment(path), last);
            assert_eq!(is_contents(path), contents);
        }
    }
}
