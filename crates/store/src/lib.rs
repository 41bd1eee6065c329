//! Stores on disk for data that later runs use again: unpacked bundles, unpacked snapshots of sources,
//! layers of images, archives and folders of GitHub, blobs. All follow one protocol.
//!
//! ```text
//! DIRECTORY/VERSION/lock               locked while names change
//!                   trees/KEY/facts    size, list and digests: read instead of walking the tree
//!                             tree/    the tree, never written again
//!                   building/RANDOM    trees that are being built or removed
//!                   claims/NAME        locked for single flight
//!                   …                  files and stores of the owner of the directory
//! ```
//!
//! The protocol ([`StoreDirectory`]):
//!
//! - The directory has mode 0700 and belongs to this uid; no other user can replace a directory
//!   above it.
//! - An entry is created in `building` under a lock and renamed when it is complete. An unlocked
//!   entry of `building` is garbage of a killed process. The next process that builds removes it.
//! - A user of an entry holds a shared lock on its directory. The lock prevents removal and ends with
//!   the process.
//! - If several processes need the same entry, one claims its name and builds it; the others wait.
//! - Above the size limit the least recently used entries are removed. Entries in use stay.
//! - A crash of the machine may leave incomplete files. Facts name the boot in which they were
//!   written, and a tree of an earlier boot is verified before use. A tree that cannot be verified
//!   against its key is synced to disk before it gets its name ([`Label`]).
//!
//! [`Cache`] stores bundles and snapshots. Their key is the content digest. Two indexes find it:
//!
//! ```text
//! archives/SIZE/KEY        an archive's digest, and the content that it unpacks to
//! identities/KEY           the same, for a file that has not changed since
//! ```
//!
//! The keys of both indexes include the unpack limits, because other limits may refuse the archive.
//! An index entry without its tree is ignored; a tree without an index entry is found again by its
//! content.
#![forbid(unsafe_code)]

mod cache;
mod checking;
mod copy;
mod directory;
mod entries;
mod error;
mod facts;
mod files;
mod history;
mod identity;
mod location;
mod locks;
mod private;
mod publishing;

pub use cache::{Cache, CachedTree, InUse, ListedTree, Record};
pub use checking::{Damaged, Listed, check_tree, verify};
pub use copy::copy_into;
pub use directory::{Claim, NamesLock, StoreDirectory};
pub use entries::{Building, Collected, EntryUse, KeyedTree, Label};
pub use error::CacheError;
pub use files::{InUseDirectory, OpenDirectory};
pub use history::{History, HistoryError, read_history};
pub use identity::{Distrust, Identity, hash};
pub use location::{CacheLocation, file_system, select_location};
pub use locks::lock_shared;
pub use publishing::disk_bytes;

/// Version of the unpacking rules. It changes when any archive is unpacked differently: names, modes,
/// links, skipped entries or refusals.
pub const UNPACK_RULES: u32 = 1;
