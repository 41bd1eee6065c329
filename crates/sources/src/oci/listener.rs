//! Who is told what happens, and who can end it.

use std::time::Duration;

use spec::digest::Digest;

/// Is told how far things are, and asked whether to go on.
///
/// It is asked for each piece of a body and several times a second while something is waited for,
/// also from inside of a connection: hence `Send` and `Sync`, and an `Arc` where a registry is made.
pub trait Listener: Send + Sync {
    fn progress(&self, now: &Progress<'_>);

    /// Whether the caller wants an end. Once it said so, it says so always.
    fn is_cancelled(&self) -> bool;
}

/// Hears nothing and never wants an end.
#[derive(Debug, Clone, Copy, Default)]
pub struct Silent;

impl Listener for Silent {
    fn progress(&self, _now: &Progress<'_>) {}

    fn is_cancelled(&self) -> bool {
        false
    }
}

/// What is being done, for a terminal.
#[derive(Debug, Clone, Copy)]
pub enum Progress<'now> {
    /// A document is asked for.
    Asking {
        /// The place, for messages.
        place: &'now str,
    },
    /// Bytes of a blob have come.
    Receiving {
        digest: &'now Digest,
        /// So many so far.
        bytes: u64,
        /// So many in all.
        of_bytes: u64,
    },
    /// A blob was unpacked up to here.
    Unpacking {
        digest: &'now Digest,
        /// So many of its bytes were read.
        bytes: u64,
        /// So many it has.
        of_bytes: u64,
    },
    /// Bytes of a blob were sent.
    Sending {
        digest: &'now Digest,
        /// So many so far.
        bytes: u64,
        /// So many in all.
        of_bytes: u64,
    },
    /// The same is tried again after a pause.
    Waiting { cause: &'now str, pause: Duration },
    /// What was asked for is there, or failed.
    Done,
}
