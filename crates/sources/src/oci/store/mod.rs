//! The store: manifests, configs and layers by digest, shared by concurrent processes and private
//! to one uid.
//!
//! ```text
//! DIRECTORY/1/lock                 held while names change
//!             blobs/HEX            complete and verified, read-only; HEX is the SHA-256
//!             partial/HEX          a download: locked by its writer, resumed by the next one
//!             names/HEX            a name and the digest of its manifest
//!             claims/NAME          locked for single flight
//!             building/RANDOM      blobs that are being made locally
//!             snapshots/           unpacked source snapshots: a cache of trees
//!             layers/, prepared/   unpacked layers of images and of provisioning: keyed trees
//! ```
//!
//! [`store::StoreDirectory`] implements locks, claims and drafts. A blob is written to `partial`,
//! hashed, synced and then renamed, so that `blobs` survives a kill or power loss. Trees are not
//! synced; those of an earlier boot are verified before use.
//!
//! A user of a blob or tree holds a shared lock on it, which prevents removal and ends with the
//! process. Above the size limit the least recently used objects are removed.

mod blobs;
mod collecting;
mod draft;
pub mod error;
mod fetching;
mod names;
mod place;

use std::path::Path;
use std::time::Duration;

use rustix::io::Errno;

use crate::oci::error::OciError;
use crate::oci::observer::Observer;
use spec::digest::Digest;
use store::{Cache, Claim, StoreDirectory};

pub use blobs::Blob;
pub use collecting::{NamedManifest, Removed};
pub use draft::Draft;
pub use error::StoreError;
pub use place::StorePlace;

/// Version of this layout. Increment it when the meaning of a file changes.
const LAYOUT: u32 = 1;
/// Version of the unpack and provisioning rules. Trees of an older version are rebuilt.
const LAYER_RULES: u32 = 1;

const BLOBS: &str = "blobs";
const PARTIAL: &str = "partial";
const NAMES: &str = "names";
const BUILDING: &str = "building";
const SNAPSHOTS: &str = "snapshots";
const LAYERS: &str = "layers";
const PREPARED: &str = "prepared";

/// An opened store. Methods that document no errors fail with [`StoreError::Cache`] only.
#[derive(Debug)]
pub struct Store {
    directory: StoreDirectory,
    size_bytes: u64,
}

/// Digest and size of a blob in an OCI descriptor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlobDescriptor {
    pub digest: Digest,
    pub bytes: u64,
}

impl Store {
    /// Opens the store at `place` and creates missing parts. On a read-only file system an
    /// existing store is opened.
    ///
    /// # Errors
    /// [`StoreError::Cache`]: unsafe, or cannot be created.
    pub fn open(place: &StorePlace) -> Result<Self, StoreError> {
        Ok(Self {
            directory: StoreDirectory::open(&place.directory, LAYOUT, false)?,
            size_bytes: place.size_bytes,
        })
    }

    /// Returns the size limit of the whole store.
    #[must_use]
    pub fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    /// Returns the directory, with all links resolved.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.directory.path()
    }

    /// Opens the cache of unpacked source snapshots.
    pub fn snapshots(&self) -> Result<Cache, StoreError> {
        // The store evicts across all parts.
        Ok(Cache::below(&self.directory, SNAPSHOTS, self.size_bytes)?)
    }

    /// Opens the store of unpacked image layers.
    pub fn layers(&self) -> Result<StoreDirectory, StoreError> {
        Ok(self.directory.below(LAYERS, LAYER_RULES)?)
    }

    /// Opens the store of layers from provisioning, by the digest of their inputs.
    pub fn prepared(&self) -> Result<StoreDirectory, StoreError> {
        Ok(self.directory.below(PREPARED, LAYER_RULES)?)
    }

    /// Claims `name`, a plain file name. Waits while another process holds the claim.
    ///
    /// # Errors
    /// [`OciError::Cancelled`], [`OciError::Store`].
    pub fn claim(&self, name: &str, observer: &dyn Observer) -> Result<Claim<'_>, OciError> {
        self.directory.claim(name, |pause| wait(observer, pause))
    }

    #[must_use]
    pub(crate) fn write_error(&self, errno: Errno) -> StoreError {
        self.directory.root().failed("write", SNAPSHOTS)(errno).into()
    }
}

fn wait(observer: &dyn Observer, pause: Duration) -> Result<(), OciError> {
    let during = "waiting for another process that does the same";
    observer.pause("another process does the same", pause, during)
}

fn blob_name(digest: &Digest) -> String {
    format!("{BLOBS}/{}", digest.hexadecimal())
}
