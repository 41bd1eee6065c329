//! Copies files between the host and a sandbox: a tar on the way ([`pack`](mod@pack), [`unpack`](mod@unpack)),
//! and the place of its entries at the destination ([`place`]).

pub mod pack;
pub mod place;
pub mod unpack;

/// The name of what is copied in the tar, and in the directory that it is unpacked to.
pub const TOP: &[u8] = b"copy";

/// Maximum number of files, directories and links of one copy.
pub const ENTRIES_MAX: u64 = 1_000_000;
