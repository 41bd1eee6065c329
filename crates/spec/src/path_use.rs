//! Uses of paths by the processes of a run, as `--trace` sees them: what a call asked for, and what a
//! look-up in the body's view found at that time. The result of the call itself is not seen, nor what the
//! kernel opens for a call, such as the interpreter of a script and the loader of a program.

use serde::Serialize;

use crate::merged::{Merged, Occurrences};
use crate::why_report::Operation;

/// Maximum bytes of all paths of one [`Merged`] set; further uses are only counted.
pub(crate) const PATH_BYTES_KEPT_MAX: usize = 8 << 20;
/// Maximum number of distinct uses of one [`Merged`] set; further ones are only counted.
pub(crate) const USES_MAX: usize = 20_000;

/// What a call does with a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum PathOperation {
    /// Asks whether it exists, for its metadata or for the target of a link.
    Inspect,
    /// Opens a file for reading, or a directory.
    Read,
    /// Opens an existing file for writing, or changes its metadata.
    Write,
    /// Makes an entry: a file, a directory, a link, or the new name of a renamed file.
    Create,
    /// Removes an entry: also the old name of a renamed file.
    Remove,
    /// Executes a program.
    Execute,
    /// Connects to a unix socket.
    Connect,
}

impl PathOperation {
    /// The word in reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Inspect => "inspect",
            Self::Read => "read",
            Self::Write => "write",
            Self::Create => "create",
            Self::Remove => "remove",
            Self::Execute => "execute",
            Self::Connect => "connect",
        }
    }

    /// The operation that `runner why --path` decides about.
    #[must_use]
    pub const fn asked(self) -> Operation {
        match self {
            Self::Inspect | Self::Read => Operation::Read,
            Self::Write | Self::Create | Self::Remove | Self::Connect => Operation::Write,
            Self::Execute => Operation::Execute,
        }
    }
}

/// What the look-up of a path in the body's view found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum PathOutcome {
    /// It exists, or for [`PathOperation::Create`] its directory does, and no mount forbids the operation.
    Found,
    /// It does not exist, or for [`PathOperation::Create`] its directory does not: ENOENT.
    Absent,
    /// It is on a mount that is read-only, and the operation writes: EROFS.
    ReadOnly,
    /// It is on a mount from which nothing can be executed: EACCES.
    NoExec,
    /// The mode does not permit it: EACCES.
    NotPermitted,
}

/// One use. Equal ones are merged.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PathUse {
    /// The operation of the call.
    pub operation: PathOperation,
    /// Absolute, as the body names it, without `.` and `..`. Symbolic links are resolved as far as the
    /// path exists, except for a last one that the call does not follow. Not more than
    /// [`crate::path::PATH_BYTES_MAX`] bytes, which may be anything but NUL: escape it to show it.
    pub path: Vec<u8>,
    /// What was found there.
    pub outcome: PathOutcome,
}

/// The uses of a run, bounded.
#[derive(Debug, Default)]
pub struct PathUses {
    /// Those with [`PathOutcome::Found`].
    pub found: KeptUses,
    /// All others. Kept apart, so that many successful uses cannot displace them.
    pub failed: KeptUses,
    /// Calls whose path could not be read or looked up.
    pub unknown: u64,
}

impl PathUses {
    /// Adds one use.
    pub fn add(&mut self, path_use: PathUse, now_ms: u64) {
        match path_use.outcome {
            PathOutcome::Found => self.found.add(path_use, now_ms),
            _ => self.failed.add(path_use, now_ms),
        }
    }
}

/// Distinct uses, at most 20,000 and 8 MiB of their paths.
#[derive(Debug)]
pub struct KeptUses {
    uses: Merged<PathUse>,
    bytes: usize,
}

impl Default for KeptUses {
    fn default() -> Self {
        Self {
            uses: Merged::of_at_most(USES_MAX),
            bytes: 0,
        }
    }
}

impl KeptUses {
    fn add(&mut self, path_use: PathUse, now_ms: u64) {
        let bytes = path_use.path.len();
        if self.uses.add(path_use, now_ms) {
            self.bytes += bytes;
        }
        if self.bytes > PATH_BYTES_KEPT_MAX {
            self.uses.close();
        }
    }

    /// The distinct uses, ordered by first occurrence.
    pub fn distinct(&self) -> impl Iterator<Item = &(PathUse, Occurrences)> {
        self.uses.distinct()
    }

    /// Number of calls that are only counted, because too many others are kept.
    #[must_use]
    pub fn unlisted(&self) -> u64 {
        self.uses.unlisted()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path_use(path: &[u8], outcome: PathOutcome) -> PathUse {
        PathUse {
            operation: PathOperation::Read,
            path: path.to_vec(),
            outcome,
        }
    }

    #[test]
    fn successful_uses_do_not_displace_failed_ones() {
        let mut uses = PathUses::default();
        for number in 0..USES_MAX + 5 {
            let path = format!("/{number}");
            uses.add(path_use(path.as_bytes(), PathOutcome::Found), 1);
        }
        uses.add(path_use(b"/a", PathOutcome::Absent), 2);
        uses.add(path_use(b"/a", PathOutcome::Absent), 3);
        assert_eq!(uses.found.distinct().count(), USES_MAX);
        assert_eq!(uses.found.unlisted(), 5);
        let equal = Occurrences {
            first_ms: 2,
            count: 2,
        };
        let failed: Vec<_> = uses.failed.distinct().collect();
        assert_eq!(failed, [&(path_use(b"/a", PathOutcome::Absent), equal)]);
    }

    #[test]
    fn the_bytes_of_all_paths_are_limited() {
        let mut uses = PathUses::default();
        let long = |number: usize| format!("/{number:04094}").into_bytes();
        for number in 0..USES_MAX {
            uses.add(path_use(&long(number), PathOutcome::Found), 0);
        }
        let kept = uses.found.distinct().count();
        assert_eq!(kept, PATH_BYTES_KEPT_MAX / 4_095 + 1);
        uses.add(path_use(&long(0), PathOutcome::Found), 0);
        let unlisted = u64::try_from(USES_MAX - kept).expect("a number");
        assert_eq!(uses.found.unlisted(), unlisted);
    }
}
