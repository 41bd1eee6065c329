//! Pushes a source artifact from the store to a registry or into a layout.

use std::io::Read;
use std::path::Path;

use oci_spec::image::{ANNOTATION_VERSION, ImageManifest};
use rustix::io::Errno;

use crate::oci::artifact::{ArtifactProblem, Document, check_layer, source_parts};
use crate::oci::error::OciError;
use crate::oci::layout::{LayoutEntry, LayoutWriter};
use crate::oci::observer::Observer;
use crate::oci::origin::Origin;
use crate::oci::registry::Registry;
use crate::oci::store::{Blob, Store, StoreError};
use archive::UnpackLimits;
use spec::digest::Digest;
use spec::oci::media::{MANIFEST, MANIFEST_BYTES_MAX, SOURCE};
use spec::oci::reference::Which;
use spec::oci::source_config::is_version;

/// A source artifact in the store. Its config and its layer are locked.
#[derive(Debug)]
pub struct StoredArtifact {
    pub digest: Digest,
    manifest: Vec<u8>,
    version: Option<String>,
    /// Config and layer; only the layer for the empty descriptor.
    blobs: Vec<Blob>,
}

impl StoredArtifact {
    /// Finds the artifact whose manifest has this digest; `None` if a part is not in the store.
    ///
    /// # Errors
    /// [`OciError::Artifact`]: not a source artifact; [`OciError::Store`].
    pub fn find(store: &Store, digest: &Digest) -> Result<Option<Self>, OciError> {
        let Some(manifest) = store.read(digest, MANIFEST_BYTES_MAX)? else {
            return Ok(None);
        };
        let refused = |problem: ArtifactProblem| problem.at(format!("the store: {digest}"));
        let parsed = Document::parse_manifest(&manifest).map_err(refused)?;
        let parts = source_parts(&parsed).map_err(refused)?;
        let annotations = parsed.annotations().as_ref();
        let version = annotations.and_then(|annotations| annotations.get(ANNOTATION_VERSION));
        let version = version.filter(|version| is_version(version)).cloned();
        let mut blobs = Vec::new();
        for part in parts.config.iter().chain([&parts.layer]) {
            match store.find_blob(part)? {
                Some(blob) => blobs.push(blob),
                None => return Ok(None),
            }
        }
        Ok(Some(Self {
            digest: *digest,
            manifest,
            version,
            blobs,
        }))
    }

    /// Fetches the missing parts of a source artifact whose manifest is in the store.
    ///
    /// # Errors
    /// [`OciError`]: not a source artifact, above `limits`, or a part is not available.
    pub fn fetch(
        store: &Store,
        manifest: &ImageManifest,
        origin: &dyn Origin,
        limits: &UnpackLimits,
        observer: &dyn Observer,
    ) -> Result<(), OciError> {
        let refused = |problem: ArtifactProblem| problem.at(origin.name());
        let parts = source_parts(manifest).map_err(refused)?;
        check_layer(&parts.layer, limits.compressed_bytes).map_err(refused)?;
        for part in parts.config.iter().chain([&parts.layer]) {
            store.fetch(part, origin, observer)?;
        }
        Ok(())
    }

    /// Returns the version in its manifest, if valid as a tag.
    #[must_use]
    pub fn version(&self) -> Option<String> {
        self.version.clone()
    }

    /// Uploads the missing parts, the manifest last, so that it never refers to missing blobs.
    /// Without `tag` the manifest is pushed by digest.
    ///
    /// # Errors
    /// [`OciError::Registry`], [`OciError::Cancelled`].
    pub fn push(self, registry: &Registry, tag: Option<&str>) -> Result<(), OciError> {
        for mut blob in self.blobs {
            registry.push_blob(&blob.digest, blob.bytes, &mut blob.file)?;
        }
        let which = tag.map_or(Which::Digest(self.digest), |tag| Which::Tag(tag.to_owned()));
        registry.push_manifest(&which, &self.manifest, MANIFEST)?;
        Ok(())
    }

    /// Writes the artifact into the layout `directory` under `name`, which is taken from another
    /// entry of that name.
    ///
    /// # Errors
    /// [`OciError::Layout`]; [`OciError::Cancelled`], which leaves the layout unchanged.
    pub fn write_layout(
        self,
        directory: &Path,
        name: &str,
        observer: &dyn Observer,
    ) -> Result<(), OciError> {
        let mut writer = LayoutWriter::create(directory)?;
        for mut blob in self.blobs {
            let added = writer.add_blob(&mut CancellableReader {
                inner: &mut blob.file,
                observer,
            });
            observer.check("writing the layout")?;
            let (found, _bytes) = added?;
            if found != blob.digest {
                return Err(StoreError::Digest {
                    place: "the store".to_owned(),
                    digest: blob.digest,
                    found,
                }
                .into());
            }
        }
        writer.add_blob(&mut self.manifest.as_slice())?;
        let entry = LayoutEntry {
            digest: self.digest,
            bytes: self.manifest.len() as u64,
            media_type: MANIFEST.to_owned(),
            artifact_type: Some(SOURCE.to_owned()),
            name: Some(name.to_owned()),
        };
        writer.finish(&entry, observer)
    }
}

struct CancellableReader<'call> {
    inner: &'call mut dyn Read,
    observer: &'call dyn Observer,
}

impl Read for CancellableReader<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        if self.observer.is_cancelled() {
            return Err(Errno::CANCELED.into());
        }
        self.inner.read(buffer)
    }
}
