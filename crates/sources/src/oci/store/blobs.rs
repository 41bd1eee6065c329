//! Lookup of blobs by digest.

use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::os::fd::AsFd as _;

use rustix::fs::{FileType, OFlags};

use crate::oci::store::{BlobDescriptor, Store, StoreError, blob_name};
use spec::digest::Digest;
use sys::file::errno_of;
use sys::lock::release_file;

/// Most attempts to open a blob that another process replaces.
const ATTEMPTS_MAX: u32 = 8;

/// A locked blob. It is not removed while this value lives.
#[derive(Debug)]
pub struct Blob {
    pub digest: Digest,
    pub bytes: u64,
    /// At offset 0, for reading. Holds the shared lock.
    pub file: File,
}

impl Drop for Blob {
    fn drop(&mut self) {
        // If this fails, the lock ends with the last descriptor.
        let _closed = release_file(self.file.as_fd());
    }
}

impl Store {
    /// Opens the blob and marks it as used now.
    pub fn blob(&self, digest: &Digest) -> Result<Option<Blob>, StoreError> {
        let name = blob_name(digest);
        let root = self.directory.root();
        for _ in 0..ATTEMPTS_MAX {
            let Some(found) = root.file(&name, OFlags::RDONLY)? else {
                return Ok(None);
            };
            let status = rustix::fs::fstat(&found).map_err(root.failed("fstat", &name))?;
            if FileType::from_raw_mode(status.st_mode) != FileType::RegularFile {
                return Ok(None);
            }
            store::lock_shared(found.as_fd(), &root.path().join(&name))?;
            // Another process removed or replaced it before it was locked.
            if !root.is_still(&found, &name)? {
                continue;
            }
            root.touch(&name)?;
            return Ok(Some(Blob {
                digest: *digest,
                bytes: u64::try_from(status.st_size).unwrap_or(0),
                file: File::from(found),
            }));
        }
        Ok(None)
    }

    /// Whether the blob exists. Does not count as a use.
    #[must_use]
    pub fn has(&self, digest: &Digest) -> bool {
        let path = self.path().join(blob_name(digest));
        std::fs::symlink_metadata(path).is_ok_and(|status| status.is_file())
    }

    /// Opens the blob of `descriptor`. If the size differs, hashes the blob: a damaged blob is
    /// removed, else the descriptor is wrong.
    ///
    /// # Errors
    /// [`StoreError::Size`], [`StoreError::Cache`].
    pub(crate) fn find_blob(
        &self,
        descriptor: &BlobDescriptor,
    ) -> Result<Option<Blob>, StoreError> {
        let Some(blob) = self.blob(&descriptor.digest)? else {
            return Ok(None);
        };
        if blob.bytes == descriptor.bytes {
            return Ok(Some(blob));
        }
        if self.digest_of(&blob)? == descriptor.digest {
            return Err(StoreError::Size {
                place: "the store".to_owned(),
                digest: descriptor.digest,
                found: format!("{} bytes", blob.bytes),
                bytes: descriptor.bytes,
            });
        }
        self.remove_damaged(&descriptor.digest)?;
        Ok(None)
    }

    /// Reads a small blob and verifies it. Returns `None` if it is missing, longer than
    /// `bytes_max`, or damaged; a damaged blob is removed.
    pub fn read(&self, digest: &Digest, bytes_max: u64) -> Result<Option<Vec<u8>>, StoreError> {
        let Some(blob) = self.blob(digest)? else {
            return Ok(None);
        };
        if blob.bytes > bytes_max {
            return Ok(None);
        }
        let mut bytes = Vec::new();
        let read = (&blob.file).take(bytes_max).read_to_end(&mut bytes);
        read.map_err(|error| self.unreadable(digest, &error))?;
        if Digest::of(&bytes) == *digest {
            return Ok(Some(bytes));
        }
        self.remove_damaged(digest)?;
        Ok(None)
    }

    /// Like [`Store::read`], but does not count as a use and removes nothing.
    pub fn peek(&self, digest: &Digest, bytes_max: u64) -> Result<Option<Vec<u8>>, StoreError> {
        let name = blob_name(digest);
        let bytes = self
            .directory
            .root()
            .read(&name, bytes_max.saturating_add(1))?;
        Ok(bytes.filter(|bytes| Digest::of(bytes) == *digest))
    }

    /// Removes a damaged blob. Open file descriptors of it stay valid.
    pub fn remove_damaged(&self, digest: &Digest) -> Result<(), StoreError> {
        let _names = self.directory.lock_names()?;
        Ok(self.directory.root().unlink(&blob_name(digest))?)
    }

    /// Hashes the bytes on the disk.
    pub fn digest_of(&self, blob: &Blob) -> Result<Digest, StoreError> {
        let mut file = &blob.file;
        let hashed = file
            .seek(SeekFrom::Start(0))
            .and_then(|_start| store::hash(&mut file));
        hashed.map_err(|error| self.unreadable(&blob.digest, &error))
    }

    fn unreadable(&self, digest: &Digest, error: &std::io::Error) -> StoreError {
        let name = blob_name(digest);
        self.directory.root().failed("read", &name)(errno_of(error)).into()
    }
}
