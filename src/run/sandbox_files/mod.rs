//! Copies files between the host and a sandbox that stays, and watches them there.
//!
//! In the sandbox, a command packs or unpacks ([`inside`]), with the access of any command there. Its output
//! is not trusted: a reader unpacks it.
//!
//! A snapshot is packed on the host ([`reading`]), since commands do not see which files of an image were
//! deleted. A command of the new sandbox unpacks it.

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

/// Arguments of the command that unpacks: the kind of its input.
const NAMED: &str = "named";
const CONTENTS: &str = "contents";
const ARCHIVE: &str = "archive";
const SNAPSHOT: &str = "snapshot";
/// Whether a command follows a link at the end of a path.
const FOLLOW: &str = "follow";
const KEEP: &str = "keep";
/// Also watches the directories below.
const RECURSIVE: &str = "recursive";

/// First byte of each record of the command that watches.
mod record {
    pub(super) const STARTED: u8 = b'S';
    pub(super) const CREATE: u8 = b'c';
    pub(super) const WRITE: u8 = b'w';
    pub(super) const REMOVE: u8 = b'r';
    /// Moved; has another path now.
    pub(super) const RENAME: u8 = b'm';
    pub(super) const CHMOD: u8 = b'a';
    /// Events were lost.
    pub(super) const OVERFLOW: u8 = b'o';
}

/// Maximum number of lines about skipped entries.
const SKIPPED_SHOWN_MAX: u64 = 20;

/// Reports the first skipped entries, then the number of others.
struct Skipped<'run> {
    count: u64,
    report: &'run mut dyn FnMut(String),
}

impl<'run> Skipped<'run> {
    fn new(report: &'run mut dyn FnMut(String)) -> Self {
        Self { count: 0, report }
    }

    fn add(&mut self, path: &str, why: &str) {
        self.count += 1;
        if self.count <= SKIPPED_SHOWN_MAX {
            (self.report)(format!("skipped `{path}`: {why}"));
        }
    }

    fn end(self) {
        let more = self.count.saturating_sub(SKIPPED_SHOWN_MAX);
        if more > 0 {
            (self.report)(format!("{more} more were skipped"));
        }
    }
}

/// The warning for an archive with entries other than files, directories and links.
fn special_entries_warning(skipped: u64) -> Option<String> {
    (skipped > 0).then(|| format!("{skipped} devices or FIFOs were skipped"))
}
