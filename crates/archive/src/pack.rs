//! Reads a directory of the host as a bundle, with the same rules, tree and digest as its archive.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags};
use rustix::io::Errno;

use crate::entry_rules::SEGMENTS_MAX;
use crate::error::{Refusal, UnpackError, shown};
use crate::links::check_target;
use crate::tree::archive_order;
use crate::tree_writer::{TreeWriter, is_in_version_control};
use crate::unpack::{UnpackLimits, Unpacked};
use spec::path::RelPath;
use sys::credentials::HostIds;
use sys::file::{CallError, open_beneath, type_name};

/// Size of one read of a file, in bytes.
const READ_BYTES: usize = 128 * 1024;

/// Copies the directory `source` into the empty directory `into`, with the same result as unpacking an
/// archive of it: see [`crate::unpack()`].
///
/// # Errors
/// As [`crate::unpack()`]; [`UnpackError::Source`] and [`UnpackError::SourceChanged`] if the source
/// cannot be read, or changes during the copy.
pub fn unpack_directory(
    source: BorrowedFd<'_>,
    into: BorrowedFd<'_>,
    limits: &UnpackLimits,
) -> Result<Unpacked, UnpackError> {
    unpack_directory_as(source, into, limits, None)
}

/// As [`unpack_directory`], if `source` is readable only with the current ids and `into` is writable only
/// with `ids`, as for a supervisor that runs as root and the tmpfs of a body.
///
/// # Errors
/// As [`unpack_directory`].
pub fn unpack_directory_as(
    source: BorrowedFd<'_>,
    into: BorrowedFd<'_>,
    limits: &UnpackLimits,
    ids: Option<HostIds>,
) -> Result<Unpacked, UnpackError> {
    let writer = TreeWriter::new(into, limits.tree_limits(), ids);
    read_directory(source, writer, limits)?.finish(into, None)
}

/// Passes every entry beneath `source` to `writer`.
pub(crate) fn read_directory<'fd>(
    source: BorrowedFd<'_>,
    writer: TreeWriter<'fd>,
    limits: &UnpackLimits,
) -> Result<TreeWriter<'fd>, UnpackError> {
    let mut walk = Walk {
        writer,
        limits: *limits,
        index: 0,
        listed: 0,
        file_bytes: 0,
        buffer: vec![0; READ_BYTES],
    };
    let mut open = vec![walk.list(source, None)?];
    while let Some(level) = open.last_mut() {
        let Some((path, file_type)) = level.remaining.pop() else {
            open.pop();
            continue;
        };
        let directory = level.directory.as_fd();
        if let Some(below) = walk.visit(directory, path, file_type)? {
            open.push(below);
        }
    }
    Ok(walk.writer)
}

/// A directory being visited.
struct Level {
    directory: OwnedFd,
    /// The next one last.
    remaining: Vec<(RelPath, FileType)>,
}

struct Walk<'fd> {
    writer: TreeWriter<'fd>,
    limits: UnpackLimits,
    index: u64,
    listed: u64,
    file_bytes: u64,
    buffer: Vec<u8>,
}

impl Walk<'_> {
    /// Opens and lists a directory, in the order of the canonical tar.
    fn list(
        &mut self,
        directory: BorrowedFd<'_>,
        path: Option<&RelPath>,
    ) -> Result<Level, UnpackError> {
        let shown_path = path.map_or(&b"."[..], RelPath::as_bytes);
        let failed = |call, errno| unreadable(call, shown_path, errno);
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW;
        let name = path.map_or(&b"."[..], RelPath::file_name);
        let directory = open_beneath(directory, name, flags, Mode::empty())
            .map_err(|errno| failed("openat2", errno))?;
        let listing = Dir::read_from(&directory).map_err(|errno| failed("openat", errno))?;
        let mut remaining = Vec::new();
        for entry in listing {
            let entry = entry.map_err(|errno| failed("getdents64", errno))?;
            let name = entry.file_name().to_bytes();
            if matches!(name, b"." | b"..") {
                continue;
            }
            let path = RelPath::parse_in(path, name)
                .map_err(|error| UnpackError::entry(self.index, name, Refusal::path(error)))?;
            self.listed += 1;
            // Checked here because all names of a directory are in memory before it is visited.
            if self.listed > self.limits.entries {
                let refusal = Refusal::too_many_entries(self.limits.entries);
                return Err(UnpackError::entry(self.listed, path.as_bytes(), refusal));
            }
            let file_type = match entry.file_type() {
                FileType::Unknown => {
                    let status =
                        rustix::fs::statat(&directory, path.file_name(), AtFlags::SYMLINK_NOFOLLOW)
                            .map_err(|errno| unreadable("fstatat", path.as_bytes(), errno))?;
                    FileType::from_raw_mode(status.st_mode)
                }
                known => known,
            };
            if is_in_version_control(&path) {
                self.writer.leave_out(path);
                continue;
            }
            remaining.push((path, file_type));
        }
        remaining.sort_by(|(a, type_a), (b, type_b)| {
            // Descending: the next entry is popped from the end.
            archive_order(
                (b.as_bytes(), *type_b == FileType::Directory),
                (a.as_bytes(), *type_a == FileType::Directory),
            )
        });
        Ok(Level {
            directory,
            remaining,
        })
    }

    /// Copies one entry; returns the listing of a directory.
    fn visit(
        &mut self,
        parent: BorrowedFd<'_>,
        path: RelPath,
        file_type: FileType,
    ) -> Result<Option<Level>, UnpackError> {
        self.index += 1;
        let index = self.index;
        let refused = |refusal| UnpackError::entry(index, path.as_bytes(), refusal);
        let segments = path.segments().count();
        if segments > SEGMENTS_MAX {
            return Err(refused(Refusal::too_deep(segments, SEGMENTS_MAX)));
        }
        match file_type {
            FileType::Directory => {
                let below = self.list(parent, Some(&path))?;
                self.writer.add_directory(index, path)?;
                Ok(Some(below))
            }
            FileType::RegularFile => self.copy_file(parent, path).map(|()| None),
            FileType::Symlink => {
                let target = rustix::fs::readlinkat(parent, path.file_name(), Vec::new())
                    .map_err(|errno| unreadable("readlinkat", path.as_bytes(), errno))?
                    .into_bytes();
                check_target(&path, &target).map_err(|error| refused(error.about("it")))?;
                self.writer.add_symlink(index, path, target).map(|()| None)
            }
            other => Err(refused(unsupported_type(other))),
        }
    }

    fn copy_file(&mut self, parent: BorrowedFd<'_>, path: RelPath) -> Result<(), UnpackError> {
        let failed = |call, errno| unreadable(call, path.as_bytes(), errno);
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::NOFOLLOW;
        let source = open_beneath(parent, path.file_name(), flags, Mode::empty())
            .map_err(|errno| failed("openat2", errno))?;
        let status = rustix::fs::fstat(&source).map_err(|errno| failed("fstat", errno))?;
        let name = shown(path.as_bytes());
        let file_type = FileType::from_raw_mode(status.st_mode);
        if file_type != FileType::RegularFile {
            let refusal = unsupported_type(file_type);
            return Err(UnpackError::entry(self.index, path.as_bytes(), refusal));
        }
        let expected_bytes = u64::try_from(status.st_size).unwrap_or(0);
        let limit_bytes = self.limits.unpacked_bytes;
        self.file_bytes = self.file_bytes.saturating_add(expected_bytes);
        if self.file_bytes > limit_bytes {
            return Err(UnpackError::TooManyBytes {
                index: self.index,
                name,
                limit_bytes,
            });
        }
        let executable = status.st_mode & 0o100 != 0;
        let changed = UnpackError::SourceChanged {
            name: name.clone(),
            expected_bytes,
        };
        let mut sink = self
            .writer
            .add_file(self.index, path, executable, expected_bytes)?;
        let mut total = 0;
        loop {
            let count = match rustix::io::read(&source, &mut self.buffer) {
                Ok(0) => break,
                Ok(count) => count,
                Err(Errno::INTR) => continue,
                Err(errno) => return Err(unreadable("read", name.as_bytes(), errno)),
            };
            total += count as u64;
            if total > expected_bytes {
                return Err(changed);
            }
            sink.write(&self.buffer[..count])?;
        }
        if total != expected_bytes {
            return Err(changed);
        }
        sink.end();
        Ok(())
    }
}

fn unsupported_type(file_type: FileType) -> Refusal {
    let what = type_name(file_type);
    Refusal::new(
        "entry_type",
        format!("it is {what}; expected a file, a directory or a link"),
    )
}

fn unreadable(call: &'static str, path: &[u8], errno: Errno) -> UnpackError {
    UnpackError::Source {
        name: shown(path),
        source: CallError::new(call, shown(path), errno),
    }
}
