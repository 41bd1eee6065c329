//! Copies files between the host and a sandbox as a tar ([`pack`](mod@pack), [`unpack`](mod@unpack)), and
//! moves them to the destination ([`place`]).
//!
//! A [`snapshot`] is a tar of the private files of a sandbox, as a layer of an image. [`changes`] lists them.

pub mod changes;
mod layer_rules;
pub mod pack;
pub mod place;
pub mod snapshot;
pub mod unpack;

pub use layer_rules::{is_opaque, is_whiteout};

/// Name of the copied file or directory, in the tar and where it is unpacked.
pub const TOP: &[u8] = b"copy";

/// Maximum number of files, directories and links of one copy.
pub const ENTRIES_MAX: u64 = 1_000_000;
