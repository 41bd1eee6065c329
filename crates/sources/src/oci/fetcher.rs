//! Reads manifests and blobs from the store, or fetches missing ones from an origin.

use std::cell::Cell;

use crate::oci::error::OciError;
use crate::oci::observer::Observer;
use crate::oci::origin::Origin;
use crate::oci::store::{Blob, BlobDescriptor, Store, StoreError};
use crate::progress::Progress;
use reader::Problem;
use spec::digest::Digest;
use spec::oci::media::MANIFEST_BYTES_MAX;
use spec::oci::reference::Which;

/// A store, and the origin of missing blobs.
pub(super) struct Fetcher<'call> {
    pub(super) store: &'call Store,
    pub(super) origin: &'call dyn Origin,
    pub(super) observer: &'call dyn Observer,
    has_fetched: Cell<bool>,
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
            has_fetched: Cell::new(false),
        }
    }

    /// Whether the origin was needed: for a tag, or for a manifest or blob that the store lacked.
    pub(super) fn has_fetched(&self) -> bool {
        self.has_fetched.get()
    }

    /// Returns a manifest or an index with its digest.
    pub(super) fn manifest(&self, which: &Which) -> Result<(Digest, Vec<u8>), OciError> {
        if let Which::Digest(digest) = which
            && let Some(bytes) = self.store.read(digest, MANIFEST_BYTES_MAX)?
        {
            return Ok((*digest, bytes));
        }
        self.observer.check("fetching a manifest")?;
        self.has_fetched.set(true);
        let fetched = self.origin.manifest(which)?;
        let digest = self.store.put(&fetched.bytes)?;
        Ok((digest, fetched.bytes))
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
        // Keeps the blob locked until it is read.
        let _blob = self.fetch(descriptor)?;
        let digest = descriptor.digest;
        let bytes = self.store.read(&digest, bytes_max)?;
        Ok(bytes.ok_or(StoreError::Gone { digest })?)
    }

    /// Returns what `find` finds and `true`, else what `unpack` returns and `false`. Concurrent
    /// processes with the same `claim` unpack once. A blob that is damaged on the disk is downloaded
    /// again.
    pub(super) fn find_or_unpack<T>(
        &self,
        claim: &str,
        descriptor: &BlobDescriptor,
        find: impl Fn() -> Result<Option<T>, OciError>,
        unpack: impl Fn(&Blob) -> Result<T, OciError>,
    ) -> Result<(T, bool), OciError> {
        if let Some(found) = find()? {
            return Ok((found, true));
        }
        let _claim = self.store.claim(claim, self.observer)?;
        // Another process may have unpacked it meanwhile.
        if let Some(found) = find()? {
            return Ok((found, true));
        }
        if let Some(blob) = self.store.find_blob(descriptor)? {
            match unpack(&blob) {
                Err(OciError::Store(error)) if error.is_wrong_digest() => {
                    // `unpack` removed the damaged blob: download it again.
                }
                unpacked => return Ok((unpacked?, false)),
            }
        }
        Ok((unpack(&self.fetch(descriptor)?)?, false))
    }

    /// Ends the progress of unpacking `blob`. If the layer was refused or is not as expected,
    /// checks the digest of the blob, since its bytes may be damaged. A damaged blob is removed.
    pub(super) fn finish_unpacking<T>(
        &self,
        blob: &Blob,
        unpacked: &Result<T, Problem>,
        is_expected: impl Fn(&T) -> bool,
    ) -> Result<(), OciError> {
        self.observer.progress(&Progress::Done);
        self.observer.check("unpacking a layer")?;
        let is_suspect = match unpacked {
            Ok(unpacked) => !is_expected(unpacked),
            Err(error) => error.is_refusal(),
        };
        if !is_suspect {
            return Ok(());
        }
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
        self.has_fetched.set(true);
        self.store.fetch(descriptor, self.origin, self.observer)
    }
}
