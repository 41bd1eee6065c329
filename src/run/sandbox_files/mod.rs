//! Copies files between the host and a sandbox that stays, and watches them there.
//!
//! On the side of the sandbox a command of it packs or unpacks ([`inside`]), so that its files are what a
//! command of it may see and change. What comes out is a stranger's archive: a reader unpacks it.
//!
//! A snapshot is packed on the host ([`reading`]), since no command sees which files of an image were deleted,
//! and unpacked by a command of the new sandbox.

mod copying;
pub(super) mod inside;
pub(super) mod inside_watch;
pub(super) mod private;
mod reading;
mod streams;
mod watching;

pub(crate) use copying::{Copied, CopyError, Source, copy_in, copy_out, restore, send_archive};
pub(crate) use reading::{Snapshot, diff, snapshot};
pub(crate) use watching::watch;

/// The words that tell a command what it unpacks.
const NAMED: &str = "named";
const CONTENTS: &str = "contents";
const ARCHIVE: &str = "archive";
const SNAPSHOT: &str = "snapshot";
/// The words that tell a command what it does with a link at the end of a path.
const FOLLOW: &str = "follow";
const KEEP: &str = "keep";
/// The word that tells a command to watch the directories below, too.
const RECURSIVE: &str = "recursive";

/// The letters of the records of a command that watches.
mod record {
    pub(super) const STARTED: u8 = b'S';
    pub(super) const CREATE: u8 = b'c';
    pub(super) const WRITE: u8 = b'w';
    pub(super) const REMOVE: u8 = b'r';
    /// It has another name now.
    pub(super) const RENAME: u8 = b'm';
    pub(super) const CHMOD: u8 = b'a';
    /// Events were lost.
    pub(super) const OVERFLOW: u8 = b'o';
}

/// Most lines about skipped entries.
const SKIPPED_SHOWN_MAX: u64 = 20;

/// Tells of the first entries that are skipped, and then how many more.
struct Skipped<'run> {
    count: u64,
    tell: &'run mut dyn FnMut(String),
}

impl<'run> Skipped<'run> {
    fn new(tell: &'run mut dyn FnMut(String)) -> Self {
        Self { count: 0, tell }
    }

    fn add(&mut self, path: &str, why: &str) {
        self.count += 1;
        if self.count <= SKIPPED_SHOWN_MAX {
            (self.tell)(format!("skipped `{path}`: {why}"));
        }
    }

    fn end(self) {
        let more = self.count.saturating_sub(SKIPPED_SHOWN_MAX);
        if more > 0 {
            (self.tell)(format!("{more} more were skipped"));
        }
    }
}

/// What to say of an archive with entries that are no files, directories or links.
fn special_entries(skipped: u64) -> Option<String> {
    (skipped > 0).then(|| format!("{skipped} devices or FIFOs were skipped"))
}
