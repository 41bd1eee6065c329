//! Blobs that are made locally: a config, a manifest, a packed layer.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsFd as _;

use rustix::fs::{Mode, OFlags};

use crate::oci::hashing::HashingFile;
use crate::oci::store::{BLOBS, BUILDING, Blob, Store, StoreError, blob_name};
use spec::digest::Digest;
use sys::file::errno_of;
use sys::lock::{release_file, try_claim_file};

const BLOB_MODE: u32 = 0o400;

/// A blob that is being written. Dropping it unfinished removes the file.
pub struct Draft<'store> {
    store: &'store Store,
    /// Locked, so that cleanup does not take it for the file of a killed process.
    file: HashingFile,
    name: String,
    is_published: bool,
}

impl std::fmt::Debug for Draft<'_> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("Draft")
            .field("name", &self.name)
            .field("bytes", &self.file.bytes())
            .finish_non_exhaustive()
    }
}

impl Write for Draft<'_> {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        self.file.write(buffer)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl Draft<'_> {
    /// Publishes the blob and returns digest and size in bytes.
    ///
    /// # Errors
    /// [`StoreError::Cache`]; the draft is removed.
    pub fn finish(mut self) -> Result<(Digest, u64), StoreError> {
        let (digest, bytes) = (self.file.digest(), self.file.bytes());
        let file = self.file.file.as_fd();
        let _in_use = self.store.publish(&self.name, &digest, file, bytes)?;
        self.is_published = true;
        Ok((digest, bytes))
    }
}

impl Drop for Draft<'_> {
    fn drop(&mut self) {
        if !self.is_published {
            // Closing the file releases the lock: the next sweep removes what is left.
            let _left = self.store.directory.root().unlink(&self.name);
        }
    }
}

impl Store {
    /// Begins a blob. Removes drafts of killed processes first.
    pub fn draft(&self) -> Result<Draft<'_>, StoreError> {
        let root = self.directory.root();
        root.make_directory(BUILDING)?;
        let names = self.directory.lock_names()?;
        self.directory.sweep(&names)?;
        let name = self.directory.draft_name()?;
        let file = root.new_file(&name)?;
        try_claim_file(file.as_fd()).map_err(root.failed("flock", &name))?;
        Ok(Draft {
            store: self,
            file: HashingFile::new(file),
            name,
            is_published: false,
        })
    }

    /// Stores `bytes` and returns their digest.
    pub fn put(&self, bytes: &[u8]) -> Result<Digest, StoreError> {
        let digest = Digest::of(bytes);
        if self.read(&digest, bytes.len() as u64)?.is_some() {
            return Ok(digest);
        }
        let mut draft = self.draft()?;
        if let Err(error) = draft.write_all(bytes) {
            let failed = self.directory.root().failed("write", &draft.name);
            return Err(failed(errno_of(&error)).into());
        }
        Ok(draft.finish()?.0)
    }

    /// Renames `name` to the blob of `digest`. The caller holds the lock on `name` and has verified
    /// the bytes.
    pub(super) fn publish(
        &self,
        name: &str,
        digest: &Digest,
        file: std::os::fd::BorrowedFd<'_>,
        bytes: u64,
    ) -> Result<Blob, StoreError> {
        let root = self.directory.root();
        // A rename can reach the disk before the data; a crash would then leave a torn blob.
        rustix::fs::fdatasync(file).map_err(root.failed("fdatasync", name))?;
        root.make_directory(BLOBS)?;
        let to = blob_name(digest);
        let names = self.directory.lock_names()?;
        root.rename(name, &to)?;
        // Not before the rename: a resumed download opens the file for writing.
        rustix::fs::fchmod(file, Mode::from_raw_mode(BLOB_MODE))
            .map_err(root.failed("fchmod", &to))?;
        // A separate open file description: the lock of the writer ends with that of `file`.
        let reader = root
            .file(&to, OFlags::RDONLY)?
            .ok_or(StoreError::Gone { digest: *digest })?;
        release_file(file).map_err(root.failed("flock", &to))?;
        // No process can remove the blob meanwhile, since `names` locks the names.
        store::lock_shared(reader.as_fd(), &root.path().join(&to))?;
        drop(names);
        self.enforce_size_limit()?;
        Ok(Blob {
            digest: *digest,
            bytes,
            file: File::from(reader),
        })
    }
}
