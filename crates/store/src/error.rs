//! Errors of the stores of this host.

use std::path::Path;

use rustix::io::Errno;

use spec::path::escape_path;
use sys::file::CallError;

/// Error of a store. The cache of bundles never fails a run: the run unpacks the bundle instead.
#[derive(Debug, thiserror::Error)]
pub enum CacheError {
    /// A system call on a file of the store failed.
    #[error("the cache cannot be used")]
    Call(#[source] CallError),
    /// Another user could put trees there.
    #[error("the cache is not safe: {path} is {found}; expected {expected}")]
    Unsafe {
        path: String,
        found: String,
        expected: &'static str,
    },
    /// Another process has not released a lock in time.
    #[error(
        "the cache cannot be used: {path} is locked by another process, or by a body that sees it"
    )]
    Locked { path: String },
    /// The content of an entry does not match its name.
    #[error("the entry {entry} of the cache is damaged: {problem}")]
    Damaged {
        entry: String,
        /// Escaped.
        problem: String,
    },
}

impl CacheError {
    /// Whether the file system is full: the bundle may still fit elsewhere.
    #[must_use]
    pub fn is_full(&self) -> bool {
        matches!(self, Self::Call(error) if sys::file::is_full(error.errno))
    }

    /// Whether a file or a link was found where a directory was expected.
    pub(crate) fn is_other_file(&self) -> bool {
        matches!(self, Self::Call(error) if [Errno::NOTDIR, Errno::LOOP].contains(&error.errno))
    }
}

/// Maps the error of `call` on `path`.
pub(crate) fn failed(call: &'static str, path: &Path) -> impl Fn(Errno) -> CacheError {
    move |errno| {
        let object = escape_path(path);
        CacheError::Call(CallError::new(call, object, errno))
    }
}
