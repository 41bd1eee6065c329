//! Files beneath an open directory: `openat2(2)` with `RESOLVE_BENEATH`, never through a link.

use std::ffi::CString;
use std::io::Read as _;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{
    AtFlags, Dir, FileType, Mode, OFlags, ResolveFlags, Timespec, Timestamps, UTIME_NOW,
};
use rustix::io::{Errno, retry_on_intr};
use rustix::path::Arg;

/// A failed system call with its object and errno.
#[derive(Debug, thiserror::Error)]
#[error("{call} {object}: {errno}")]
pub struct CallError {
    pub call: &'static str,
    /// Escaped.
    pub object: String,
    #[source]
    pub errno: Errno,
}

impl CallError {
    /// Creates the error of `call` on `object`.
    pub fn new(call: &'static str, object: impl Into<String>, errno: Errno) -> Self {
        Self {
            call,
            object: object.into(),
            errno,
        }
    }
}

const BENEATH: ResolveFlags = ResolveFlags::BENEATH
    .union(ResolveFlags::NO_SYMLINKS)
    .union(ResolveFlags::NO_MAGICLINKS);

/// Opens `path` beneath `directory` with `flags` and close-on-exec (openat2(2)). Fails with ELOOP or
/// EXDEV for a link or a path out of the directory.
///
/// If openat2 returns ENOSYS (with systemd's `RestrictSUIDSGID=` and `DynamicUser=`), walks the path
/// by component with `O_NOFOLLOW`. The result is the same, except that `O_PATH` opens a link itself.
pub fn open_beneath(
    directory: BorrowedFd<'_>,
    path: &[u8],
    flags: OFlags,
    mode: Mode,
) -> Result<OwnedFd, Errno> {
    let name = CString::new(path).map_err(|_nul| Errno::INVAL)?;
    match rustix::fs::openat2(directory, &name, flags | OFlags::CLOEXEC, mode, BENEATH) {
        Err(Errno::NOSYS) => open_component_by_component(directory, path, flags, mode),
        // EAGAIN: a rename raced with the resolution (openat2(2)); retry once.
        Err(Errno::AGAIN) => {
            rustix::fs::openat2(directory, &name, flags | OFlags::CLOEXEC, mode, BENEATH)
        }
        other => other,
    }
}

fn open_component_by_component(
    directory: BorrowedFd<'_>,
    path: &[u8],
    flags: OFlags,
    mode: Mode,
) -> Result<OwnedFd, Errno> {
    let (parents, name) = match path.iter().rposition(|byte| *byte == b'/') {
        Some(cut) => (&path[..cut], &path[cut + 1..]),
        None => (&path[..0], path),
    };
    if path.first() == Some(&b'/') || name == b".." {
        return Err(Errno::XDEV);
    }
    let mut parent: Option<OwnedFd> = None;
    for component in parents
        .split(|byte| *byte == b'/')
        .filter(|part| !part.is_empty())
    {
        if component == b".." {
            return Err(Errno::XDEV);
        }
        let at = parent.as_ref().map_or(directory, AsFd::as_fd);
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        parent = Some(rustix::fs::openat(at, component, flags, Mode::empty())?);
    }
    let at = parent.as_ref().map_or(directory, AsFd::as_fd);
    rustix::fs::openat(at, name, flags | OFlags::NOFOLLOW | OFlags::CLOEXEC, mode)
}

/// Opens the directory `name` of `parent` for reading, not through a link at its end.
pub fn open_directory(parent: BorrowedFd<'_>, name: impl Arg) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::openat(parent, name, flags, Mode::empty())
}

/// The names in a directory, in the order of the file system.
///
/// # Errors
/// The errno of openat(2) or getdents64(2).
pub fn names(directory: impl AsFd) -> Result<Vec<Vec<u8>>, Errno> {
    let mut names = Vec::new();
    for entry in Dir::read_from(directory)? {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        if !matches!(name, b"." | b"..") {
            names.push(name.to_vec());
        }
    }
    Ok(names)
}

/// Writes all of `data`.
///
/// # Errors
/// The errno of write(2).
pub fn write_all(file: BorrowedFd<'_>, mut data: &[u8]) -> Result<(), Errno> {
    while !data.is_empty() {
        match retry_on_intr(|| rustix::io::write(file, data))? {
            // write(2) to a regular file never returns 0; do not loop on it.
            0 => return Err(Errno::IO),
            written => data = data.get(written..).unwrap_or_default(),
        }
    }
    Ok(())
}

/// Removes the directory `name` of `parent` with everything in it. Follows no link. Needs a descriptor for
/// each directory on the way.
///
/// # Errors
/// The errno of openat(2), getdents64(2) or unlinkat(2).
pub fn remove_tree(parent: BorrowedFd<'_>, name: &[u8]) -> Result<(), Errno> {
    let directory = open_directory(parent, name)?;
    for entry in Dir::read_from(&directory)? {
        let entry = entry?;
        let name = entry.file_name();
        match name.to_bytes() {
            b"." | b".." => (),
            below if entry.file_type() == FileType::Directory => {
                remove_tree(directory.as_fd(), below)?;
            }
            _ => rustix::fs::unlinkat(&directory, name, AtFlags::empty())?,
        }
    }
    rustix::fs::unlinkat(parent, name, AtFlags::REMOVEDIR)
}

/// Reads `file` to its end; for files of proc and cgroupfs, whose size is unknown.
pub(crate) fn read_to_end(file: &OwnedFd) -> Result<Vec<u8>, Errno> {
    let mut text = Vec::new();
    let mut chunk = [0_u8; 4096];
    loop {
        match rustix::io::read(file, &mut chunk) {
            Ok(0) => return Ok(text),
            Ok(count) => text.extend_from_slice(&chunk[..count]),
            Err(Errno::INTR) => (),
            Err(errno) => return Err(errno),
        }
    }
}

/// Reason why an open file was not read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unread {
    Stat(Errno),
    /// Directory, FIFO, device …
    NotRegular,
    Read(Errno),
    TooLarge,
}

/// The size of a regular file of at most `bytes_max` bytes (fstat(2)).
pub fn regular_size(file: BorrowedFd<'_>, bytes_max: usize) -> Result<usize, Unread> {
    let status = rustix::fs::fstat(file).map_err(Unread::Stat)?;
    if FileType::from_raw_mode(status.st_mode) != FileType::RegularFile {
        return Err(Unread::NotRegular);
    }
    match usize::try_from(status.st_size) {
        Ok(bytes) if bytes <= bytes_max => Ok(bytes),
        _ => Err(Unread::TooLarge),
    }
}

/// Reads a regular file of at most `bytes_max` bytes. Open untrusted names with `O_NONBLOCK`,
/// because opening a FIFO blocks.
pub fn read_regular(file: OwnedFd, bytes_max: usize) -> Result<Vec<u8>, Unread> {
    let size_bytes = regular_size(file.as_fd(), bytes_max)?;
    let limit = u64::try_from(bytes_max).map_or(u64::MAX, |bytes| bytes.saturating_add(1));
    let mut bytes = Vec::with_capacity(size_bytes.saturating_add(1));
    std::fs::File::from(file)
        .take(limit)
        .read_to_end(&mut bytes)
        .map_err(|error| Unread::Read(errno_of(&error)))?;
    if bytes.len() > bytes_max {
        return Err(Unread::TooLarge);
    }
    Ok(bytes)
}

/// Sets both times of `name` in `directory` to now, without following a link (utimensat(2)).
/// Ignores a read-only file system.
pub fn touch(directory: BorrowedFd<'_>, name: &str) -> Result<(), Errno> {
    let now = Timespec {
        tv_sec: 0,
        tv_nsec: UTIME_NOW,
    };
    let times = Timestamps {
        last_access: now,
        last_modification: now,
    };
    match rustix::fs::utimensat(directory, name, &times, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(()) | Err(Errno::ROFS) => Ok(()),
        Err(errno) => Err(errno),
    }
}

/// Returns the name of a file type for messages, with its article.
#[must_use]
pub const fn type_name(file_type: FileType) -> &'static str {
    match file_type {
        FileType::RegularFile => "a file",
        FileType::Directory => "a directory",
        FileType::Symlink => "a symlink",
        FileType::Fifo => "a fifo",
        FileType::Socket => "a socket",
        FileType::CharacterDevice => "a character device",
        FileType::BlockDevice => "a block device",
        FileType::Unknown => "of an unknown type",
    }
}

/// Returns the errno of `error`; EIO if it has none.
#[must_use]
pub fn errno_of(error: &std::io::Error) -> Errno {
    Errno::from_io_error(error).unwrap_or(Errno::IO)
}

/// Whether `errno` means that the file system or the quota is full.
#[must_use]
pub fn is_full(errno: Errno) -> bool {
    [Errno::NOSPC, Errno::DQUOT].contains(&errno)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn both(path: &[u8], directory: BorrowedFd<'_>) -> [Option<Errno>; 2] {
        [open_beneath, open_component_by_component]
            .map(|open| open(directory, path, OFlags::RDONLY, Mode::empty()).err())
    }

    #[test]
    fn both_ways_of_opening_stay_beneath_the_directory_and_follow_no_link() {
        let outside = tempfile::tempdir().expect("a directory");
        let inside = outside.path().join("inside");
        std::fs::create_dir_all(inside.join("a")).expect("made");
        std::fs::write(inside.join("a/file"), b"x").expect("written");
        std::fs::write(outside.path().join("secret"), b"x").expect("written");
        std::os::unix::fs::symlink("..", inside.join("up")).expect("linked");
        std::os::unix::fs::symlink("a", inside.join("link")).expect("linked");
        let directory = std::fs::File::open(&inside).expect("opened");
        assert_eq!(both(b"a/file", directory.as_fd()), [None, None]);
        for path in [
            &b"up/secret"[..],
            b"link/file",
            b"../secret",
            b"a/../../secret",
            b"/etc/passwd",
            b"link",
        ] {
            for errno in both(path, directory.as_fd()) {
                assert!(errno.is_some(), "{} was opened", path.escape_ascii());
            }
        }
    }
}
