//! The store: manifests, configs and layers by their digest, shared by processes that run at once,
//! private to one uid.
//!
//! ```text
//! DIRECTORY/1/lock                 held while names in here change
//!             blobs/HEX            whole and verified, read-only; HEX is the SHA-256 of the bytes
//!             partial/HEX          a download under way: locked by the one who writes it, gone on
//!                                  with by the next one where that was killed
//!             names/HEX            a name and the digest of the manifest that it stands for
//!             claims/NAME          locked while one process does what others would do as well
//!             building/RANDOM      blobs that are being made here
//!             snapshots/           unpacked source snapshots: a cache of trees
//!             layers/, prepared/   layers of images, and those that a preparation made: shelves
//! ```
//!
//! A blob is written to `partial`, hashed on the way, written to the disk and renamed when its
//! digest is right: what lies in `blobs` is whole, whoever was killed and whenever the power went.
//! Trees are not written to the disk; those of an earlier boot are verified before they are used.
//!
//! Whoever uses a blob or a tree shares a lock on it, so that it is not removed meanwhile; locks
//! end with their process. What was not used for longest goes when the whole takes more than its
//! size.

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

/// Version of this layout. It changes when anything in it means something else than before.
const LAYOUT: u32 = 1;
/// Version of what becomes of a layer, or of a preparation; older trees are made anew.
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

/// The store at one place.
#[derive(Debug)]
pub struct Store {
    shelf: Shelf,
    size_bytes: u64,
}

/// What a descriptor says of a blob.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wanted {
    /// SHA-256 of the bytes.
    pub digest: Digest,
    /// How many there are.
    pub bytes: u64,
}

impl Store {
    /// Opens the store at `place`, making what is missing. One on a file system that is read-only
    /// is opened where it is there.
    ///
    /// # Errors
    /// [`StoreError::Cache`]: it is not safe, or cannot be made.
    pub fn open(place: &StorePlace) -> Result<Self, StoreError> {
        Ok(Self {
            shelf: Shelf::open(&place.directory, LAYOUT, false)?,
            size_bytes: place.size_bytes,
        })
    }

    /// Most that everything in it may take together.
    #[must_use]
    pub fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    /// Its directory, free of links.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.shelf.path()
    }

    /// Unpacked source snapshots.
    ///
    /// # Errors
    /// [`StoreError::Cache`].
    pub fn snapshots(&self) -> Result<Cache, StoreError> {
        // What goes first, of all that is in here, is for the store to say.
        Ok(Cache::below(&self.shelf, SNAPSHOTS, self.size_bytes)?)
    }

    /// Unpacked layers of images, by their `ChainID`.
    ///
    /// # Errors
    /// [`StoreError::Cache`].
    pub fn layers(&self) -> Result<Shelf, StoreError> {
        Ok(self.shelf.below(LAYERS, LAYER_RULES)?)
    }

    /// Layers that preparations made, by the digest of what they were made of.
    ///
    /// # Errors
    /// [`StoreError::Cache`].
    pub fn prepared(&self) -> Result<Shelf, StoreError> {
        Ok(self.shelf.below(PREPARED, LAYER_RULES)?)
    }

    /// Why a tree could not be written here.
    #[must_use]
    pub(crate) fn no_room(&self, errno: Errno) -> StoreError {
        self.failed("write", SNAPSHOTS)(errno)
    }

    fn root(&self) -> &OwnedFd {
        self.shelf.root()
    }

    /// Makes a part of it; that it is there is fine.
    fn make_part(&self, part: &str) -> Result<(), StoreError> {
        match rustix::fs::mkdirat(self.root(), part, Mode::from_raw_mode(DIRECTORY_MODE)) {
            Ok(()) | Err(Errno::EXIST) => Ok(()),
            Err(errno) => Err(self.failed("mkdirat", part)(errno)),
        }
    }

    /// Opens `name`, which is no link; `None`: there is none.
    fn open_at(&self, name: &str, flags: OFlags) -> Result<Option<OwnedFd>, StoreError> {
        let flags = flags | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
        match rustix::fs::openat(self.root(), name, flags, Mode::from_raw_mode(0o600)) {
            Ok(file) => Ok(Some(file)),
            Err(Errno::NOENT) => Ok(None),
            Err(errno) => Err(self.failed("openat", name)(errno)),
        }
    }

    /// Whether `file` still has the name that it was opened by.
    fn is_still(&self, file: &OwnedFd, name: &str) -> Result<bool, StoreError> {
        Ok(self.shelf.is_still(file, name)?)
    }

    /// Removes a file; that it is gone is fine.
    fn unlink(&self, name: &str) -> Result<(), StoreError> {
        match rustix::fs::unlinkat(self.root(), name, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(errno) => Err(self.failed("unlinkat", name)(errno)),
        }
    }

    fn path_of(&self, name: &str) -> PathBuf {
        self.path().join(name)
    }

    /// An error of `call` on `name`.
    fn failed(&self, call: &'static str, name: &str) -> impl Fn(Errno) -> StoreError + use<> {
        let object = escape(self.path_of(name).as_os_str().as_encoded_bytes());
        move |errno| {
            StoreError::Cache(store::CacheError::Call(CallError::new(
                call, &*object, errno,
            )))
        }
    }
}

/// A digest as a file name.
fn hexadecimal(digest: &Digest) -> String {
    digest.to_string().trim_start_matches("sha256:").to_owned()
}
