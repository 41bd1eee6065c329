//! Writes the archive as a stream: canonical tar, compressed with gzip and hashed.

use std::cell::Cell;
use std::io::Write;

use flate2::Compression;
use rustix::io::Errno;
use sha2::{Digest as _, Sha256};

use crate::error::{BundleError, SizeLimit};
use crate::files::{DirectoryFiles, Found, FoundKind, Stamp};
use crate::gather::Gathered;
use crate::overlay::{Contents, Item};
use archive::canonical::write_members;
use spec::digest::Digest;
use spec::path::RelPath;
use sys::file::{CallError, errno_of};

const READ_BYTES: usize = 256 * 1024;
const LEVEL: u32 = 6;
/// "Unknown" (RFC 1952): the same on every host.
const OPERATING_SYSTEM: u8 = 255;

/// A written bundle.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WrittenBundle {
    /// SHA-256 of the canonical tar: the bundle's identity.
    pub content_digest: Digest,
    pub archive_digest: Digest,
    pub archive_bytes: u64,
    pub bytes: u64,
    pub entries: u64,
}

/// Writes the bundle as a `.tar.gz`. For one version of this program the same contents give the
/// same bytes. Each file is read once and refused if it changed since it was gathered.
///
/// # Errors
/// [`BundleError::Size`]: the archive is too large. [`BundleError::Output`]: writing to
/// `out` failed. [`BundleError::At`]: a file is unreadable or changed. The content of `out` is
/// then invalid.
pub fn write(
    gathered: &Gathered,
    files: &DirectoryFiles,
    out: &mut dyn Write,
) -> Result<WrittenBundle, BundleError> {
    let limit = gathered.archive_bytes_max;
    // The encoder does not keep the kind of an error.
    let is_full = Cell::new(false);
    let failed = |path: Option<&RelPath>, error: std::io::Error| {
        if is_full.get() {
            let entry =
                path.map_or_else(|| "the end of the archive".to_owned(), RelPath::to_string);
            let exceeded = SizeLimit::Archive { limit };
            return BundleError::Size { entry, exceeded };
        }
        write_error(&error)
    };
    let archive = Measured::new(out, limit, &is_full);
    let gzip = flate2::GzBuilder::new()
        .operating_system(OPERATING_SYSTEM)
        .write(archive, Compression::new(LEVEL));
    let mut tar = Measured::new(gzip, u64::MAX, &is_full);
    write_tar(gathered, files, &mut tar, &failed)?;
    let content_digest = Digest::from_hasher(tar.hasher);
    let mut archive = tar.inner.finish().map_err(|error| failed(None, error))?;
    archive.flush().map_err(|error| write_error(&error))?;
    Ok(WrittenBundle {
        content_digest,
        archive_bytes: archive.bytes,
        archive_digest: Digest::from_hasher(archive.hasher),
        bytes: gathered.tree.file_bytes(),
        entries: gathered.tree.len() as u64,
    })
}

/// Computes the identity of the bundle without writing it.
pub(crate) fn content_digest(
    gathered: &Gathered,
    files: &DirectoryFiles,
) -> Result<Digest, BundleError> {
    let is_full = Cell::new(false);
    let mut tar = Measured::new(std::io::sink(), u64::MAX, &is_full);
    write_tar(gathered, files, &mut tar, &|_path, error| {
        write_error(&error)
    })?;
    Ok(Digest::from_hasher(tar.hasher))
}

fn write_tar(
    gathered: &Gathered,
    files: &DirectoryFiles,
    tar: &mut impl Write,
    failed: &dyn Fn(Option<&RelPath>, std::io::Error) -> BundleError,
) -> Result<(), BundleError> {
    let mut buffer = vec![0; READ_BYTES];
    write_members(&gathered.tree, tar, failed, &mut |path, bytes, out| {
        let Some(placed) = gathered.overlay.get(path) else {
            return Ok(());
        };
        match &placed.item {
            Item::File {
                contents: Contents::Bytes(content),
                ..
            } => out
                .write_all(content)
                .map_err(|error| failed(Some(path), error)),
            Item::File {
                contents:
                    Contents::File {
                        root,
                        path: from,
                        stamp,
                    },
                ..
            } => {
                let expected = Expected {
                    bytes,
                    stamp: *stamp,
                };
                let files = gathered.root(*root, files);
                copy(files, from, expected, &mut buffer, &mut |data| {
                    out.write_all(data)
                        .map_err(|error| failed(Some(path), error))
                })
                .map_err(|error| match error {
                    BundleError::Output { .. } | BundleError::Size { .. } => error,
                    error => error.at(&gathered.origins[placed.source]),
                })
            }
            Item::Directory | Item::Symlink { .. } => Ok(()),
        }
    })
}

/// The file as it was gathered.
struct Expected {
    bytes: u64,
    stamp: Stamp,
}

/// Reads a file once. Refuses it if it changed since it was gathered or changes during the read.
fn copy(
    files: &DirectoryFiles,
    from: &RelPath,
    expected: Expected,
    buffer: &mut [u8],
    out: &mut dyn FnMut(&[u8]) -> Result<(), BundleError>,
) -> Result<(), BundleError> {
    let unreadable =
        |call, errno| BundleError::unreadable(from, CallError::new(call, from.to_string(), errno));
    let changed = || BundleError::Changed { path: from.clone() };
    let file = files.open(from).map_err(|error| match error.errno {
        // Removed or replaced.
        Errno::NOENT | Errno::LOOP | Errno::NOTDIR => changed(),
        errno => unreadable(error.call, errno),
    })?;
    let check_unchanged = || {
        let status = rustix::fs::fstat(&file).map_err(|errno| unreadable("fstat", errno))?;
        let current = Found::from_stat(&status);
        let has_size =
            matches!(current.kind, FoundKind::File { bytes, .. } if bytes == expected.bytes);
        if has_size && current.stamp == expected.stamp {
            Ok(())
        } else {
            Err(changed())
        }
    };
    check_unchanged()?;
    let mut left = expected.bytes;
    while left > 0 {
        let count = rustix::io::retry_on_intr(|| rustix::io::read(&file, &mut *buffer))
            .map_err(|errno| unreadable("read", errno))?;
        let read = count as u64;
        if read == 0 || read > left {
            return Err(changed());
        }
        left -= read;
        out(&buffer[..count])?;
    }
    // A concurrent writer changes the times or the size.
    check_unchanged()
}

fn write_error(error: &std::io::Error) -> BundleError {
    let errno = errno_of(error);
    BundleError::Output {
        file: "the archive".to_owned(),
        source: CallError::new("write", "the archive", errno),
    }
}

/// Counts and hashes the written bytes, up to a limit.
struct Measured<'call, Inner> {
    inner: Inner,
    hasher: Sha256,
    bytes: u64,
    limit: u64,
    is_full: &'call Cell<bool>,
}

impl<'call, Inner> Measured<'call, Inner> {
    fn new(inner: Inner, limit: u64, is_full: &'call Cell<bool>) -> Self {
        Self {
            inner,
            hasher: Sha256::new(),
            bytes: 0,
            limit,
            is_full,
        }
    }
}

impl<Inner: Write> Write for Measured<'_, Inner> {
    fn write(&mut self, data: &[u8]) -> std::io::Result<usize> {
        if self.bytes.saturating_add(data.len() as u64) > self.limit {
            self.is_full.set(true);
            return Err(std::io::ErrorKind::FileTooLarge.into());
        }
        let count = self.inner.write(data)?;
        self.hasher.update(&data[..count]);
        self.bytes += count as u64;
        Ok(count)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.inner.flush()
    }
}
