//! Copies files between the host and a sandbox that stays.
//!
//! On the side of the sandbox a command of it packs or unpacks ([`inside`]), so that its files are what a
//! command of it may see and change. What comes out is a stranger's archive: a reader unpacks it.

mod copying;
pub(super) mod inside;
mod streams;

pub(crate) use copying::{Copied, CopyError, Source, copy_in, copy_out, send_archive};

/// The words that tell a command what it unpacks.
const NAMED: &str = "named";
const CONTENTS: &str = "contents";
const ARCHIVE: &str = "archive";
/// The words that tell a command what it does with a link at the end of a path.
const FOLLOW: &str = "follow";
const KEEP: &str = "keep";

/// Most lines about skipped entries.
const SKIPPED_SHOWN_MAX: u64 = 20;
