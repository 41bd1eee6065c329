//! The directory provider: one file per slug, `namespace/slug` in a directory.

use std::fs::File;
use std::io::Read as _;
use std::os::fd::AsFd as _;
use std::path::Path;

use rustix::fs::{FileType, Mode, OFlags};
use rustix::io::Errno;

use crate::error::{Unusable, escaped_path};
use crate::{VALUE_BYTES_MAX, without_newline};
use spec::secret::Secret;
use sys::file::{errno_of, open_beneath};

const GROUP_AND_OTHERS: u32 = 0o077;

/// Reads the value from the file of `slug`, which must be valid, beneath `directory`.
///
/// The file must be regular, accessible to its owner only, and reached without symbolic links.
pub(super) fn read(directory: &Path, slug: &str) -> Result<Secret, Unusable> {
    let file = || escaped_path(directory, slug);
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let root = rustix::fs::open(directory, flags, Mode::empty()).map_err(Unusable::Directory)?;
    // First opened with O_PATH: opening a device can have side effects, and opening a FIFO can block.
    let path_only = open_beneath(
        root.as_fd(),
        slug.as_bytes(),
        OFlags::PATH | OFlags::NOFOLLOW,
        Mode::empty(),
    );
    check_private_file(
        path_only
            .map_err(|errno| open_error(errno, file()))?
            .as_fd(),
        &file,
    )?;
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY;
    let opened = open_beneath(root.as_fd(), slug.as_bytes(), flags, Mode::empty())
        .map_err(|errno| open_error(errno, file()))?;
    check_private_file(opened.as_fd(), &file)?;
    // Allocated at full size: a growing vector leaves copies of the secret in freed memory.
    let mut bytes = Vec::with_capacity(VALUE_BYTES_MAX + 2);
    let bytes_max = u64::try_from(VALUE_BYTES_MAX).map_or(u64::MAX, |bytes| bytes + 2);
    let read = File::from(opened).take(bytes_max).read_to_end(&mut bytes);
    let value = without_newline(bytes);
    match read {
        Err(error) => Err(Unusable::Unreadable {
            file: file(),
            errno: errno_of(&error),
        }),
        Ok(_) if value.bytes().len() > VALUE_BYTES_MAX => Err(Unusable::TooLong),
        Ok(_) => Ok(value),
    }
}

fn open_error(errno: Errno, file: String) -> Unusable {
    match errno {
        Errno::NOENT | Errno::NOTDIR => Unusable::NoFile { file },
        Errno::LOOP | Errno::XDEV => Unusable::Link { file },
        errno => Unusable::Unreadable { file, errno },
    }
}

fn check_private_file(
    opened: std::os::fd::BorrowedFd<'_>,
    file: &dyn Fn() -> String,
) -> Result<(), Unusable> {
    let status = rustix::fs::fstat(opened).map_err(|errno| Unusable::Unreadable {
        file: file(),
        errno,
    })?;
    match FileType::from_raw_mode(status.st_mode) {
        FileType::RegularFile => (),
        FileType::Symlink => return Err(Unusable::Link { file: file() }),
        _ => return Err(Unusable::NotRegular { file: file() }),
    }
    let mode = status.st_mode & 0o7777;
    if mode & GROUP_AND_OTHERS == 0 {
        Ok(())
    } else {
        Err(Unusable::Shared { file: file(), mode })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    fn write(path: &Path, bytes: &[u8], mode: u32) {
        std::fs::create_dir_all(path.parent().expect("a parent")).expect("made");
        std::fs::write(path, bytes).expect("written");
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).expect("set");
    }

    #[test]
    fn a_private_file_is_read_without_its_trailing_newline() {
        let directory = tempfile::tempdir().expect("a directory");
        let at = directory.path();
        write(&at.join("plain"), b"s3cret", 0o600);
        write(&at.join("prod/key"), b"two\nlines\n\n", 0o400);
        write(
            &at.join("longest"),
            &[vec![b'x'; VALUE_BYTES_MAX], b"\n".to_vec()].concat(),
            0o600,
        );
        assert_eq!(read(at, "plain").expect("read").bytes(), b"s3cret");
        assert_eq!(read(at, "prod/key").expect("read").bytes(), b"two\nlines\n");
        let longest = read(at, "longest").expect("read");
        assert_eq!(longest.bytes().len(), VALUE_BYTES_MAX);
    }

    /// The file type and mode are checked before any byte is read.
    #[test]
    fn only_private_regular_files_are_read_and_nothing_blocks() {
        let directory = tempfile::tempdir().expect("a directory");
        let at = directory.path();
        write(&at.join("world"), b"canary", 0o644);
        write(&at.join("group"), b"canary", 0o640);
        write(&at.join("written"), b"canary", 0o602);
        write(&at.join("huge"), &vec![b'x'; VALUE_BYTES_MAX + 1], 0o600);
        write(&at.join("folder/inner"), b"canary", 0o600);
        symlink("folder/inner", at.join("link")).expect("linked");
        symlink("folder", at.join("way")).expect("linked");
        symlink("/etc/hostname", at.join("out")).expect("linked");
        let fifo = at.join("fifo");
        rustix::fs::mknodat(
            rustix::fs::CWD,
            &fifo,
            FileType::Fifo,
            Mode::from_raw_mode(0o600),
            0,
        )
        .expect("a FIFO");
        for (slug, part) in [
            ("world", "other users may read or write (mode 0644)"),
            ("group", "other users may read or write (mode 0640)"),
            ("written", "other users may read or write (mode 0602)"),
            ("huge", "more than 64 KiB"),
            ("link", "is a link"),
            ("way/inner", "is reached through one"),
            ("out", "is a link"),
            ("fifo", "not a regular file"),
            ("folder", "not a regular file"),
            ("missing", "has no file"),
            ("world/inner", "has no file"),
        ] {
            let error = read(at, slug).expect_err(slug).to_string();
            assert!(error.contains(part), "{slug}: {error}");
            assert!(!error.contains("canary"), "{error}");
        }
        let error = read(Path::new("/nonexistent"), "plain").expect_err("no directory");
        assert!(matches!(error, Unusable::Directory(_)));
    }
}
