//! Origins of manifests and blobs.

use std::fmt;
use std::io::Read;

use crate::oci::error::OciError;
use spec::digest::Digest;
use spec::oci::reference::Which;

/// A repository of a registry, or a layout.
pub trait Origin {
    /// Returns the name for messages. It contains no credentials.
    fn name(&self) -> String;

    /// Fetches a manifest or an index of at most
    /// [`MANIFEST_BYTES_MAX`](spec::oci::media::MANIFEST_BYTES_MAX) bytes. Implementations verify
    /// the digest.
    ///
    /// # Errors
    /// [`OciError`]: missing, not allowed, too large, or a wrong digest.
    fn manifest(&self, which: &Which) -> Result<FetchedManifest, OciError>;

    /// Opens a blob at byte `from_byte`. The caller verifies the digest.
    ///
    /// # Errors
    /// [`OciError`]: missing, or not allowed.
    fn blob(&self, digest: &Digest, from_byte: u64) -> Result<BlobStream<'_>, OciError>;
}

/// A fetched manifest or index.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FetchedManifest {
    pub bytes: Vec<u8>,
    /// SHA-256 of `bytes`, verified.
    pub digest: Digest,
}

/// Bytes of a blob. Get the [`OciError`] of a failed read with [`OciError::of_read`].
pub struct BlobStream<'origin> {
    /// First byte of the reader: the requested one, or 0 if the origin cannot resume.
    pub starts_at: u64,
    /// An early end is an error only if the origin states the size. Compare with the expected size.
    pub reader: Box<dyn Read + 'origin>,
}

impl fmt::Debug for BlobStream<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("BlobStream")
            .field("starts_at", &self.starts_at)
            .finish_non_exhaustive()
    }
}
