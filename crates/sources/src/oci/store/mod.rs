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
//!             layers/, prepared/   unpacked layers of images and of provisioning: shelves
//! ```
//!
//! A blob is written to `partial`, hashed, synced and then renamed, so `blobs` survives a kill or
//! power loss. Trees are not synced; those of an earlier boot are verified before use.
//!
//! A user of a blob or tree holds a shared lock on it, which prevents removal and ends with the
//! process. Above the size limit the least recently used objects are removed.

mod blobs;
mod claims;
mod collecting;
mod draft;
pub mod error;
mod fetching;
mod names;
mod place;

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::io::Errno;

use spec::digest::Digest;
use spec::path::escape;
use store::{Cache, Shelf};
use sys::file::CallError;

pub use blobs::Blob;
pub use claims::Claim;
pub use collecting::{Gone, Listed};
pub use draft::Draft;
pub use error::StoreError;
pub use place::StorePlace;

/// Version of this layout. Increment it when the meaning of a file changes.
const LAYOUT: u32 = 1;
/// Version of the unpack and provisioning rules. Trees of an older version are rebuilt.
const LAYER_RULES: u32 = 1;
const DIRECTORY_MODE: u32 = 0o700;

const BLOBS: &str = "blobs";
const PARTIAL: &str = "partial";
const NAMES: &str = "names";
const CLAIMS: &str = "claims";
const BUILDING: &str = "building";
const SNAPSHOTS: &str = "snapshots";
const LAYERS: &str = "layers";
const PREPARED: &str = "prepared";

/// An opened store.
#[derive(Debug)]
pub struct Store {
    shelf: Shelf,
    size_bytes: u64,
}

/// A blob as named by a descriptor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wanted {
    pub digest: Digest,
    pub bytes: u64,
}

impl Store {
    /// Opens the store at `place` and creates what is missing. On a read-only file system an
    /// existing store is opened.
    ///
    /// # Errors
    /// [`StoreError::Cache`]: unsafe, or cannot be created.
    pub fn open(place: &StorePlace) -> Result<Self, StoreError> {
        Ok(Self {
            shelf: Shelf::open(&place.directory, LAYOUT, false)?,
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
        self.shelf.path()
    }

    /// Opens the cache of unpacked source snapshots.
    ///
    /// # Errors
    /// [`StoreError::Cache`].
    pub fn snapshots(&self) -> Result<Cache, StoreError> {
        // The store decides on evictions across all parts.
        Ok(Cache::below(&self.shelf, SNAPSHOTS, self.size_bytes)?)
    }

    /// Opens the shelf of unpacked image layers, by `ChainID`.
    ///
    /// # Errors
    /// [`StoreError::Cache`].
    pub fn layers(&self) -> Result<Shelf, StoreError> {
        Ok(self.shelf.below(LAYERS, LAYER_RULES)?)
    }

    /// Opens the shelf of layers from provisioning, by the digest of their inputs.
    ///
    /// # Errors
    /// [`StoreError::Cache`].
    pub fn prepared(&self) -> Result<Shelf, StoreError> {
        Ok(self.shelf.below(PREPARED, LAYER_RULES)?)
    }

    #[must_use]
    pub(crate) fn no_room(&self, errno: Errno) -> StoreError {
        self.failed("write", SNAPSHOTS)(errno)
    }

    fn root(&self) -> &OwnedFd {
        self.shelf.root()
    }

    fn make_part(&self, part: &str) -> Result<(), StoreError> {
        match rustix::fs::mkdirat(self.root(), part, Mode::from_raw_mode(DIRECTORY_MODE)) {
            Ok(()) | Err(Errno::EXIST) => Ok(()),
            Err(errno) => Err(self.failed("mkdirat", part)(errno)),
        }
    }

    /// Opens `name` without following links; `None` if it does not exist.
    fn open_at(&self, name: &str, flags: OFlags) -> Result<Option<OwnedFd>, StoreError> {
        let flags = flags | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
        match rustix::fs::openat(self.root(), name, flags, Mode::from_raw_mode(0o600)) {
            Ok(file) => Ok(Some(file)),
            Err(Errno::NOENT) => Ok(None),
            Err(errno) => Err(self.failed("openat", name)(errno)),
        }
    }

    fn is_still(&self, file: &OwnedFd, name: &str) -> Result<bool, StoreError> {
        Ok(self.shelf.is_still(file, name)?)
    }

    fn unlink(&self, name: &str) -> Result<(), StoreError> {
        match rustix::fs::unlinkat(self.root(), name, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(errno) => Err(self.failed("unlinkat", name)(errno)),
        }
    }

    fn path_of(&self, name: &str) -> PathBuf {
        self.path().join(name)
    }

    fn failed(&self, call: &'static str, name: &str) -> impl Fn(Errno) -> StoreError + use<> {
        let object = escape(self.path_of(name).as_os_str().as_encoded_bytes());
        move |errno| {
            StoreError::Cache(store::CacheError::Call(CallError::new(
                call, &*object, errno,
            )))
        }
    }
}

fn hexadecimal(digest: &Digest) -> String {
    digest.to_string().trim_start_matches("sha256:").to_owned()
}
