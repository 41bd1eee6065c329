//! Opens a file with an untrusted name or content, beneath a directory and checked by descriptor.

use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

use rustix::fs::{FileType, Mode, OFlags, Stat};
use rustix::io::Errno;

use crate::staging::FileLimits;
use crate::staging::copy::{CopyError, copy_hashed};
use crate::staging::error::Unfit;
use spec::digest::Digest;
use sys::file::open_beneath;

/// Whether a file may have several hard links.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum HardLinks {
    /// Allowed: a hard link cannot be distinguished from a file of the workspace.
    Accepted,
    /// Refused: the body could have linked a file that it may not read.
    Refused,
}

/// A regular file, open for reading.
#[derive(Debug)]
pub(super) struct Opened {
    pub(super) descriptor: OwnedFd,
    pub(super) bytes: u64,
    /// 0755 where its owner may execute it, else 0644.
    pub(super) mode: Mode,
    stat: Stat,
}

/// The remaining budget of this call.
#[derive(Debug)]
pub(super) struct Allowance {
    file_bytes: u64,
    total_bytes: u64,
    left_bytes: u64,
}

/// Why a copy failed: at its source or at its destination.
#[derive(Debug)]
pub(super) enum Failed {
    Source(Unfit),
    Sink(Errno),
}

impl Allowance {
    pub(super) fn new(limits: &FileLimits) -> Self {
        Self {
            file_bytes: limits.file_bytes,
            total_bytes: limits.total_bytes,
            left_bytes: limits.total_bytes,
        }
    }

    /// Refuses a file that is too large, before a byte of it is read.
    pub(super) fn check(&self, bytes: u64) -> Result<(), Unfit> {
        if bytes > self.file_bytes {
            return Err(Unfit::TooLarge {
                bytes,
                limit_bytes: self.file_bytes,
            });
        }
        if bytes > self.left_bytes {
            return Err(Unfit::TotalTooLarge {
                bytes,
                left_bytes: self.left_bytes,
                limit_bytes: self.total_bytes,
            });
        }
        Ok(())
    }

    pub(super) fn spend(&mut self, bytes: u64) {
        self.left_bytes = self.left_bytes.saturating_sub(bytes);
    }
}

/// Opens `path` beneath `directory` if it is a regular file, reached without any link.
///
/// Opened twice: first with `O_PATH`, which has no effect on what is opened, because merely
/// opening a device can act (a tape rewinds, a watchdog starts) and a FIFO can block.
pub(super) fn open_regular(
    directory: BorrowedFd<'_>,
    path: &[u8],
    hard_links: HardLinks,
) -> Result<Opened, Unfit> {
    let look = OFlags::PATH | OFlags::NOFOLLOW;
    let seen = open_beneath(directory, path, look, Mode::empty()).map_err(cannot_open)?;
    let seen = rustix::fs::fstat(&seen).map_err(Unfit::Unreadable)?;
    check_type(&seen, hard_links)?;
    let read = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY;
    let descriptor = open_beneath(directory, path, read, Mode::empty()).map_err(cannot_open)?;
    let stat = rustix::fs::fstat(&descriptor).map_err(Unfit::Unreadable)?;
    check_type(&stat, hard_links)?;
    if (stat.st_dev, stat.st_ino) != (seen.st_dev, seen.st_ino) {
        return Err(Unfit::Changed("was replaced"));
    }
    let executable = Mode::from_raw_mode(stat.st_mode).contains(Mode::XUSR);
    Ok(Opened {
        descriptor,
        bytes: u64::try_from(stat.st_size)
            .map_err(|_negative| Unfit::Unreadable(Errno::OVERFLOW))?,
        mode: Mode::from_raw_mode(if executable { 0o755 } else { 0o644 }),
        stat,
    })
}

impl Opened {
    /// Copies the whole file to `sink`. Returns the digest of the written bytes.
    pub(super) fn copy_to(
        &self,
        sink: BorrowedFd<'_>,
        buffer: &mut [u8],
    ) -> Result<Digest, Failed> {
        let digest =
            copy_hashed(self.descriptor.as_fd(), sink, self.bytes, buffer).map_err(|error| {
                match error {
                    CopyError::Read(errno) => Failed::Source(Unfit::Unreadable(errno)),
                    CopyError::Write(errno) => Failed::Sink(errno),
                    CopyError::Shrank => Failed::Source(Unfit::Changed("shrank")),
                    CopyError::Grew => Failed::Source(Unfit::Changed("grew")),
                }
            })?;
        // Bytes that are overwritten in place keep the size: only the time shows a torn copy.
        let after = rustix::fs::fstat(&self.descriptor)
            .map_err(|errno| Failed::Source(Unfit::Unreadable(errno)))?;
        let version = |stat: &Stat| (stat.st_size, stat.st_mtime, stat.st_mtime_nsec);
        if version(&after) != version(&self.stat) {
            return Err(Failed::Source(Unfit::Changed("was written to")));
        }
        Ok(digest)
    }
}

fn check_type(stat: &Stat, hard_links: HardLinks) -> Result<(), Unfit> {
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => (),
        FileType::Symlink => return Err(Unfit::Link),
        other => return Err(Unfit::NotRegular(sys::file::type_name(other))),
    }
    if hard_links == HardLinks::Refused && stat.st_nlink != 1 {
        return Err(Unfit::HardLinked);
    }
    if !Mode::from_raw_mode(stat.st_mode).contains(Mode::RUSR) && hard_links == HardLinks::Refused {
        return Err(Unfit::ModeUnreadable(stat.st_mode & 0o7777));
    }
    Ok(())
}

fn cannot_open(errno: Errno) -> Unfit {
    match errno {
        Errno::NOENT | Errno::NOTDIR => Unfit::Missing,
        Errno::LOOP | Errno::XDEV => Unfit::Escapes(errno),
        Errno::NXIO => Unfit::NotRegular("a socket or a device"),
        _ => Unfit::Unreadable(errno),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, SystemTime};

    #[test]
    fn a_file_that_is_overwritten_in_place_while_it_is_copied_is_noticed() {
        let home = tempfile::tempdir().expect("a directory");
        let path = home.path().join("file");
        std::fs::write(&path, b"before").expect("written");
        let directory = std::fs::File::open(home.path()).expect("opened");
        let opened = open_regular(directory.as_fd(), b"file", HardLinks::Refused).expect("regular");
        std::fs::write(&path, b"after.").expect("written");
        // The clock of the file system is coarse: both writes may fall into one tick.
        let later = SystemTime::now() + Duration::from_secs(5);
        let file = std::fs::File::options()
            .write(true)
            .open(&path)
            .expect("opened");
        file.set_modified(later).expect("set");
        let sink = tempfile::tempfile().expect("a file");
        let copied = opened.copy_to(sink.as_fd(), &mut [0; 4_096]);
        assert!(matches!(
            copied,
            Err(Failed::Source(Unfit::Changed("was written to")))
        ));
    }

    /// D-03: an open file is read to its end, even if its name is removed or replaced.
    #[test]
    fn a_file_that_is_removed_or_replaced_while_it_is_copied_is_copied_whole() {
        use std::io::{Read as _, Seek as _};
        let home = tempfile::tempdir().expect("a directory");
        let path = home.path().join("file");
        let directory = std::fs::File::open(home.path()).expect("opened");
        for replaced in [false, true] {
            std::fs::write(&path, b"before").expect("written");
            let opened =
                open_regular(directory.as_fd(), b"file", HardLinks::Refused).expect("regular");
            std::fs::remove_file(&path).expect("removed");
            if replaced {
                std::os::unix::fs::symlink("/etc/passwd", &path).expect("linked");
            }
            let mut sink = tempfile::tempfile().expect("a file");
            let copied = opened.copy_to(sink.as_fd(), &mut [0; 4_096]);
            assert!(copied.is_ok());
            let mut text = String::new();
            sink.rewind().expect("rewound");
            sink.read_to_string(&mut text).expect("read");
            assert_eq!(text, "before");
        }
    }
}
