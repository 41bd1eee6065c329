//! Lookup of blobs by digest.

use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::os::fd::AsFd as _;

use rustix::fs::{FileType, OFlags};

use crate::oci::store::{BLOBS, Store, StoreError, Wanted, hexadecimal};
use spec::digest::Digest;
use sys::file;

const LOOKS_MAX: u32 = 8;

/// A locked blob: it is not removed while this value lives.
#[derive(Debug)]
pub struct Blob {
    pub digest: Digest,
    pub bytes: u64,
    /// At offset 0, for reading. Holds the shared lock.
    pub file: File,
}

impl Store {
    /// Opens the blob and marks it as used now.
    ///
    /// # Errors
    /// [`StoreError::Cache`].
    pub fn blob(&self, digest: &Digest) -> Result<Option<Blob>, StoreError> {
        let hex = hexadecimal(digest);
        let name = format!("{BLOBS}/{hex}");
        for _ in 0..LOOKS_MAX {
            let Some(found) = self.open_at(&name, OFlags::RDONLY)? else {
                return Ok(None);
            };
            let status = rustix::fs::fstat(&found).map_err(self.failed("fstat", &name))?;
            if FileType::from_raw_mode(status.st_mode) != FileType::RegularFile {
                return Ok(None);
            }
            store::share(found.as_fd(), &self.path_of(&name))?;
            // Removed before it was locked.
            if !self.is_still(&found, &name)? {
                continue;
            }
            file::touch(self.root().as_fd(), &name).map_err(self.failed("utimensat", &name))?;
            return Ok(Some(Blob {
                digest: *digest,
                bytes: u64::try_from(status.st_size).unwrap_or(0),
                file: File::from(found),
            }));
        }
        Ok(None)
    }

    /// Checks whether the blob exists. Does not count as a use.
    #[must_use]
    pub fn has(&self, digest: &Digest) -> bool {
        let name = self.path_of(&format!("{BLOBS}/{}", hexadecimal(digest)));
        std::fs::symlink_metadata(name).is_ok_and(|status| status.is_file())
    }

    /// Opens the blob that a descriptor names. On a size mismatch it hashes the blob: a damaged
    /// blob is removed, otherwise the descriptor is wrong.
    ///
    /// # Errors
    /// [`StoreError::Size`], [`StoreError::Cache`].
    pub fn wanted(&self, wanted: &Wanted) -> Result<Option<Blob>, StoreError> {
        let Some(blob) = self.blob(&wanted.digest)? else {
            return Ok(None);
        };
        if blob.bytes == wanted.bytes {
            return Ok(Some(blob));
        }
        if self.digest_of(&blob)? == wanted.digest {
            return Err(StoreError::Size {
                place: "the store".to_owned(),
                digest: wanted.digest,
                found: format!("{} bytes", blob.bytes),
                bytes: wanted.bytes,
            });
        }
        self.remove_damaged(&wanted.digest)?;
        Ok(None)
    }

    /// Reads a small blob and verifies it. Returns `None` if it is missing, longer than
    /// `bytes_max`, or damaged; a damaged blob is removed.
    ///
    /// # Errors
    /// [`StoreError::Cache`].
    pub fn read(&self, digest: &Digest, bytes_max: u64) -> Result<Option<Vec<u8>>, StoreError> {
        let Some(blob) = self.blob(digest)? else {
            return Ok(None);
        };
        if bytes_max < blob.bytes {
            return Ok(None);
        }
        let mut bytes = Vec::new();
        let read = blob.file.take(bytes_max).read_to_end(&mut bytes);
        read.map_err(self.unreadable(digest))?;
        if Digest::of(&bytes) == *digest {
            return Ok(Some(bytes));
        }
        self.remove_damaged(digest)?;
        Ok(None)
    }

    /// Like [`Store::read`], but does not count as a use and removes nothing.
    ///
    /// # Errors
    /// [`StoreError::Cache`].
    pub fn peek(&self, digest: &Digest, bytes_max: u64) -> Result<Option<Vec<u8>>, StoreError> {
        let name = format!("{BLOBS}/{}", hexadecimal(digest));
        let bytes = self.shelf.read(&name, bytes_max.saturating_add(1))?;
        Ok(bytes.filter(|bytes| Digest::of(bytes) == *digest))
    }

    /// Removes a damaged blob. Open file descriptors of it stay valid.
    ///
    /// # Errors
    /// [`StoreError::Cache`].
    pub fn remove_damaged(&self, digest: &Digest) -> Result<(), StoreError> {
        let _names = self.shelf.lock_names()?;
        self.unlink(&format!("{BLOBS}/{}", hexadecimal(digest)))
    }

    /// Hashes the bytes on the disk.
    ///
    /// # Errors
    /// [`StoreError::Cache`].
    pub fn digest_of(&self, blob: &Blob) -> Result<Digest, StoreError> {
        let mut file = &blob.file;
        let unreadable = self.unreadable(&blob.digest);
        file.seek(SeekFrom::Start(0)).map_err(&unreadable)?;
        store::hash(&mut file).map_err(unreadable)
    }

    pub(super) fn unreadable(
        &self,
        digest: &Digest,
    ) -> impl Fn(std::io::Error) -> StoreError + use<> {
        let failed = self.failed("read", &format!("{BLOBS}/{}", hexadecimal(digest)));
        move |error| failed(errno_of(&error))
    }
}

pub(super) fn errno_of(error: &std::io::Error) -> rustix::io::Errno {
    rustix::io::Errno::from_io_error(error).unwrap_or(rustix::io::Errno::IO)
}
