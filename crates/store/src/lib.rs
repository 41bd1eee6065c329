//! Data stored for later runs, by one protocol: unpacked bundles, unpacked snapshots of sources,
//! layers of images, archives and folders of github, blobs.
//!
//! ```text
//! DIRECTORY/VERSION/lock               held while names change
//!                   trees/KEY/facts    size, list and digests: read instead of walking the tree
//!                             tree/    the tree itself, never written again
//!                   building/RANDOM    trees that are being built or removed
//!                   claims/NAME        locked for single flight
//!                   …                  files and stores of the owner of the directory
//! ```
//!
//! The protocol ([`StoreDirectory`]):
//!
//! - The directory has mode 0700 and belongs to this uid; no other user can replace a directory
//!   above it.
//! - An entry is made in `building` under a lock and renamed when it is complete. What lies in
//!   `building` without a lock is garbage of a killed process, which the next maker removes.
//! - A user of an entry shares the lock on its directory, which prevents removal and ends with the
//!   process.
//! - If several processes need the same entry, one claims its name and builds it; the others wait.
//! - Above the size limit the least recently used entries are removed, those in use never.
//! - A crash of the machine may leave incomplete files. Facts name the boot in which they were
//!   written, and a tree of an earlier boot is verified before use. A tree that cannot be verified
//!   against its key is written to the disk before it gets its name ([`Label`]).
//!
//! [`Cache`] has bundles and snapshots. Their key is the content digest, and two indexes find it:
//!
//! ```text
//! archives/SIZE/KEY        an archive's digest, and the content that it unpacks to
//! identities/KEY           the same, for a file that has not changed since
//! ```
//!
//! The keys of both indexes include the limits of the unpacking: under other limits the archive
//! might be refused. An index entry without its tree is ignored; a tree without an index entry is
//! found again by its content.
#![forbid(unsafe_code)]

mod cache;
mod checking;
mod copy;
mod directory;
mod entries;
mod error;
mod facts;
mod files;
mod identity;
mod locks;
mod place;
mod private;
mod publishing;

pub use cache::{Cache, CachedTree, InUse, ListedTree, Record};
pub use checking::{Damaged, Listed, check_tree, verify};
pub use copy::copy_into;
pub use directory::{Claim, Names, StoreDirectory};
pub use entries::{Building, Collected, EntryUse, KeyedTree, Label};
pub use error::{CacheError, is_full};
pub use files::OpenDirectory;
pub use identity::{Distrust, Identity, hash};
pub use locks::share;
pub use place::{Place, choose, file_system};
pub use publishing::disk_bytes;

/// Version of unpacking. It changes when any archive is unpacked differently: names, modes, links,
/// skipped entries or refusals.
pub const UNPACK_RULES: u32 = 1;
