//! Where manifests and blobs come from, whatever it is.

use std::fmt;
use std::io::Read;

use crate::oci::error::OciError;
use spec::digest::Digest;
use spec::oci::reference::Which;

/// A repository of a registry, or a layout.
pub trait Origin {
    /// What messages call it. No credentials are in it.
    fn shown(&self) -> String;

    /// Whether it lies on this machine, so that nobody waits for its answers.
    fn is_local(&self) -> bool {
        false
    }

    /// A manifest or an index. Its bytes have the digest that is returned with them, which is the
    /// one that was asked for; they are at most
    /// [`MANIFEST_BYTES_MAX`](spec::oci::media::MANIFEST_BYTES_MAX).
    ///
    /// # Errors
    /// [`OciError`]: it is not there, may not be had, is too large or another one.
    fn manifest(&self, which: &Which) -> Result<FetchedManifest, OciError>;

    /// A blob from its byte `from_byte` on. Its digest is not looked at: that is the reader's to do
    /// once it has every byte.
    ///
    /// # Errors
    /// [`OciError`]: it is not there or may not be had.
    fn blob(&self, digest: &Digest, from_byte: u64) -> Result<BlobStream<'_>, OciError>;
}

/// A manifest or an index, as it came.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FetchedManifest {
    pub bytes: Vec<u8>,
    /// What they are, without parameters, in lower case: as the origin says, or the document's own
    /// `mediaType` where it says nothing.
    pub media_type: String,
    /// SHA-256 of the bytes.
    pub digest: Digest,
}

/// Bytes of a blob.
///
/// An error of the reader may hold an [`OciError`]: [`OciError::of_read`] has it out again.
pub struct BlobStream<'origin> {
    /// The first byte that the reader gives: what was asked for, or 0 where the origin cannot begin
    /// later.
    pub starts_at: u64,
    /// The bytes up to the end. An end that comes too early is an error where the origin says how
    /// many there are; only whoever knows the size can always tell.
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
