//! Bundles that were unpacked before, kept for the next run: private to one uid, found by what a
//! file is, or by the digest of its bytes.
//!
//! ```text
//! DIRECTORY/1/lock                     held while names in here change; 1: UNPACK_RULES
//!             trees/CONTENT/facts      what the tree is: read instead of walking it
//!                           tree/      the tree itself, as it was unpacked; never written again
//!             archives/SIZE/KEY        an archive's digest, and the content that it unpacks to
//!             identities/KEY           the same, for a file that has not changed since
//!             building/RANDOM/         what is being made, or is being removed
//! ```
//!
//! A tree is made in `building` and renamed when it is whole. Whoever uses one shares a lock on
//! its directory until the run is over, so that it is not removed meanwhile. Locks end with their
//! process, however that ended: what lies in `building` without a lock is garbage, and the next
//! one who makes something removes it. A tree without an entry in an index is found again by its
//! content; an entry without its tree is none.
//!
//! Nothing is written to the disk before it is used: a crash of the machine may leave files that
//! are not whole. So the facts name the boot in which they were written, and what is of an earlier
//! one is verified before it is used.
//!
//! What finding, making and removing need is the [`Shelf`]: other trees, which are no bundles and
//! have a key of their own, lie on one too ([`Shelf::held`], [`Shelf::keep`]).
//!
//! The digests of archives and the identities of files are keyed together with the limits that
//! the archive was unpacked under: under other limits it might be refused.
#![forbid(unsafe_code)]

mod checking;
pub mod copy;
pub mod error;
mod files;
pub mod identity;
mod keyed;
mod making;
pub mod place;
pub mod private;
pub mod shelf;
mod shrinking;
pub mod store;
mod waiting;

pub use checking::{Damaged, Listed, verify};
pub use copy::copy_into;
pub use error::{CacheError, is_full};
pub use identity::{Distrust, Identity, hash};
pub use keyed::OnShelf;
pub use making::disk_bytes;
pub use place::{Place, choose};
pub use shelf::{Building, Shelf};
pub use shrinking::{Collected, Shelved};
pub use store::{Cache, HeldTree, InUse, KeptTree, Record};
pub use waiting::share;

/// Version of what unpacking makes of an archive. It changes when any archive is unpacked to
/// something else than before: names, modes, links, what is left out, what is refused.
pub const UNPACK_RULES: u32 = 1;
