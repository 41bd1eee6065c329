//! Takes manifests and blobs from the store, or from an origin if they are missing.

use std::cell::Cell;

use crate::oci::error::OciError;
use crate::oci::observer::Observer;
use crate::oci::origin::{FetchedManifest, Origin};
use crate::oci::store::{Blob, BlobDescriptor, Store, StoreError};
use crate::progress::Progress;
use spec::digest::Digest;
use spec::oci::media::MANIFEST_BYTES_MAX;
use spec::oci::reference::Which;

/// A store, and the origin of blobs that it lacks.
pub(super) struct Fetcher<'call> {
    pub(super) store: &'call Store,
    pub(super) origin: &'call dyn Origin,
    pub(super) observer: &'call dyn Observer,
    has_asked: Cell<bool>,
}

impl<'call> Fetcher<'call> {
    pub(super) fn new(
        store: &'call Store,
        origin: &'call dyn Origin,
        observer: &'call dyn Observer,
    ) -> Self {
        Self {
            store,
            origin,
            observer,
            has_asked: Cell::new(false),
        }
    }

    /// Whether anything was requested from the origin.
    pub(super) fn has_asked(&self) -> bool {
        self.has_asked.get()
    }

    /// Returns a manifest or an index with its digest.
    pub(super) fn manifest(&self, which: &Which) -> Result<(Digest, Vec<u8>), OciError> {
        if let Which::Digest(digest) = which
            && let Some(bytes) = self.store.read(digest, MANIFEST_BYTES_MAX)?
        {
            return Ok((*digest, bytes));
        }
        self.observer.check("asking for a manifest")?;
        self.has_asked.set(true);
        let fetched = match self.origin.is_local() {
            true => self.origin.manifest(which)?,
            false => self.wait_for(which)?,
        };
        let digest = self.store.put(&fetched.bytes)?;
        Ok((digest, fetched.bytes))
    }

    fn wait_for(&self, which: &Which) -> Result<FetchedManifest, OciError> {
        self.observer.progress(&Progress::Asking {
            place: &self.origin.shown(),
        });
        let fetched = self.origin.manifest(which);
        self.observer.progress(&Progress::Done);
        fetched
    }

    /// Returns the content of a blob of at most `bytes_max` bytes.
    pub(super) fn read(
        &self,
        descriptor: &BlobDescriptor,
        bytes_max: u64,
    ) -> Result<Vec<u8>, OciError> {
        if let Some(bytes) = self.store.read(&descriptor.digest, bytes_max)? {
            return Ok(bytes);
        }
        // Holds the lock of the blob until it is read.
        let _blob = self.fetch(descriptor)?;
        let bytes = self.store.read(&descriptor.digest, bytes_max)?;
        Ok(bytes.unwrap_or_default())
    }

    /// Passes a blob to `unpack`. A blob that is damaged on the disk is downloaded once more.
    pub(super) fn unpack<T>(
        &self,
        descriptor: &BlobDescriptor,
        unpack: impl Fn(&Blob) -> Result<T, OciError>,
    ) -> Result<T, OciError> {
        if let Some(blob) = self.store.find_blob(descriptor)? {
            match unpack(&blob) {
                Err(OciError::Store(error)) if error.is_other_bytes() => (),
                unpacked => return unpacked,
            }
        }
        unpack(&self.fetch(descriptor)?)
    }

    /// Checks the digest of a blob that cannot be unpacked: a refusal counts only for the right
    /// bytes. A damaged blob is removed.
    pub(super) fn check(&self, blob: &Blob) -> Result<(), OciError> {
        let found = self.store.digest_of(blob)?;
        if found == blob.digest {
            return Ok(());
        }
        self.store.remove_damaged(&blob.digest)?;
        Err(StoreError::Digest {
            place: "the store".to_owned(),
            digest: blob.digest,
            found,
        }
        .into())
    }

    fn fetch(&self, descriptor: &BlobDescriptor) -> Result<Blob, OciError> {
        self.has_asked.set(true);
        self.store.fetch(descriptor, self.origin, self.observer)
    }
}
