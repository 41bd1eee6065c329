//! Writes the archive: canonical tar through gzip, hashed, as a stream.

use std::io::Write;

use flate2::Compression;
use flate2::write::GzEncoder;
use rustix::io::Errno;
use sha2::{Digest as _, Sha256};

use crate::error::{BundleError, SizeLimit};
use crate::files::{DirectoryFiles, Found, FoundKind};
use crate::gather::Gathered;
use crate::overlay::{Contents, Item};
use archive::canonical::write_members;
use spec::digest::Digest;
use spec::path::RelPath;
use sys::file::CallError;

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
/// `out` failed. [`BundleError::Source`]: a file is unreadable or changed. The content of `out` is
/// then invalid.
pub fn write(
    gathered: &Gathered,
    files: &DirectoryFiles,
    out: &mut dyn Write,
) -> Result<WrittenBundle, BundleError> {
    let archive = Measured::new(out, Some(gathered.archive_bytes_max));
    let gzip = flate2::GzBuilder::new()
        .operating_system(OPERATING_SYSTEM)
        .write(archive, Compression::new(LEVEL));
    let mut tar = Measured::new(gzip, None);
    write_tar(gathered, files, &mut tar, &|tar: &Measured<
        GzEncoder<_>,
    >| {
        tar.inner.get_ref().has_crossed
    })?;
    let content_digest = Digest::from_hasher(tar.hasher);
    let mut gzip = tar.inner;
    let limit = gathered.archive_bytes_max;
    if let Err(error) = gzip.try_finish() {
        return Err(match gzip.get_ref().has_crossed {
            true => too_large(None, limit),
            false => unwritten(&error),
        });
    }
    let archive = gzip
        .finish()
        .and_then(|mut archive| archive.flush().map(|()| archive))
        .map_err(|error| unwritten(&error))?;
    Ok(WrittenBundle {
        content_digest,
        archive_bytes: archive.bytes,
        archive_digest: Digest::from_hasher(archive.hasher),
        bytes: gathered.tree.file_bytes(),
        entries: gathered.tree.len() as u64,
    })
}

/// Computes the identity of the bundle without writing it.
///
/// # Errors
/// As [`write()`], except for output errors.
pub(crate) fn content_digest(
    gathered: &Gathered,
    files: &DirectoryFiles,
) -> Result<Digest, BundleError> {
    let mut tar = Measured::new(std::io::sink(), None);
    write_tar(gathered, files, &mut tar, &|_| false)?;
    Ok(Digest::from_hasher(tar.hasher))
}

fn write_tar<Inner: Write>(
    gathered: &Gathered,
    files: &DirectoryFiles,
    tar: &mut Measured<Inner>,
    has_crossed: &dyn Fn(&Measured<Inner>) -> bool,
) -> Result<(), BundleError> {
    let mut buffer = vec![0; READ_BYTES];
    let limit = gathered.archive_bytes_max;
    // Compression drops the type of an error, so it is taken from the counter below.
    let outcome = write_members(
        &gathered.tree,
        tar,
        &|path, error| Stop::Write(path.cloned(), error),
        &mut |path, bytes, out| write_file(gathered, files, path, bytes, &mut buffer, out),
    );
    match outcome {
        Ok(()) => Ok(()),
        Err(Stop::Source(error)) => Err(*error),
        Err(Stop::Write(path, _)) if has_crossed(tar) => Err(too_large(path.as_ref(), limit)),
        Err(Stop::Write(_, error)) => Err(unwritten(&error)),
    }
}

enum Stop {
    Source(Box<BundleError>),
    Write(Option<RelPath>, std::io::Error),
}

fn write_file(
    gathered: &Gathered,
    files: &DirectoryFiles,
    path: &RelPath,
    bytes: u64,
    buffer: &mut [u8],
    out: &mut dyn Write,
) -> Result<(), Stop> {
    let failed = |error| Stop::Write(Some(path.clone()), error);
    let Some(placed) = gathered.overlay.get(path) else {
        return Ok(());
    };
    let refused = |error: BundleError| {
        let origin = &gathered.origins[placed.source];
        Stop::Source(Box::new(error.at(origin)))
    };
    let Item::File { contents, .. } = &placed.item else {
        return Ok(());
    };
    let (root, from, stamp) = match contents {
        Contents::Bytes(content) => return out.write_all(content).map_err(failed),
        Contents::File { root, path, stamp } => (*root, path, stamp),
    };
    let unreadable = |call, errno| {
        let error = CallError::new(call, from.to_string(), errno);
        refused(BundleError::unreadable(from, error))
    };
    let changed = || refused(BundleError::Changed { path: from.clone() });
    let file = gathered.root(root, files).open(from).map_err(|error| {
        match error.errno {
            // Removed or replaced.
            Errno::NOENT | Errno::LOOP | Errno::NOTDIR => changed(),
            errno => unreadable(error.call, errno),
        }
    })?;
    let check_unchanged = || {
        let status = rustix::fs::fstat(&file).map_err(|errno| unreadable("fstat", errno))?;
        let now = Found::of(&status);
        let same_size = matches!(now.kind, FoundKind::File { bytes: size, .. } if size == bytes);
        match same_size && now.stamp == *stamp {
            true => Ok(()),
            false => Err(changed()),
        }
    };
    check_unchanged()?;
    let mut left = bytes;
    while left > 0 {
        let count = rustix::io::retry_on_intr(|| rustix::io::read(&file, &mut *buffer))
            .map_err(|errno| unreadable("read", errno))?;
        let read = count as u64;
        if read == 0 || read > left {
            return Err(changed());
        }
        left -= read;
        out.write_all(&buffer[..count]).map_err(failed)?;
    }
    // A concurrent writer changes the times or the size.
    check_unchanged()
}

fn too_large(path: Option<&RelPath>, limit: u64) -> BundleError {
    BundleError::Size {
        entry: path.map_or_else(|| "the end of the archive".to_owned(), RelPath::to_string),
        what: SizeLimit::Archive { limit },
    }
}

fn unwritten(error: &std::io::Error) -> BundleError {
    let errno = Errno::from_io_error(error).unwrap_or(Errno::IO);
    BundleError::Output {
        file: "the archive".to_owned(),
        source: CallError::new("write", "the archive", errno),
    }
}

struct Measured<Inner> {
    inner: Inner,
    hasher: Sha256,
    bytes: u64,
    limit: Option<u64>,
    has_crossed: bool,
}

impl<Inner> Measured<Inner> {
    fn new(inner: Inner, limit: Option<u64>) -> Self {
        Self {
            inner,
            hasher: Sha256::new(),
            bytes: 0,
            limit,
            has_crossed: false,
        }
    }
}

impl<Inner: Write> Write for Measured<Inner> {
    fn write(&mut self, data: &[u8]) -> std::io::Result<usize> {
        let after = self.bytes.saturating_add(data.len() as u64);
        if self.limit.is_some_and(|limit| after > limit) {
            self.has_crossed = true;
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
