//! The permission to parse.

/// The permission to decompress, decode or match text. Functions that do so with what a stranger wrote
/// take a reference to it.
///
/// A process has one if it gave up its rights. With rights, it has one for text that is trusted.
#[derive(Debug)]
pub struct ParsePermit(());

impl ParsePermit {
    /// For the process that gave up its rights; the crate `confinement` calls this, and nothing else.
    #[must_use]
    pub const fn after_giving_up_rights() -> Self {
        Self(())
    }

    /// For text that this program or its caller wrote: flags, configuration, policies. Not for files of
    /// bundles, answers of servers and what the body leaves.
    #[must_use]
    pub const fn for_trusted_text() -> Self {
        Self(())
    }
}

/// For texts of tests.
#[cfg(test)]
pub(crate) const PERMIT: ParsePermit = ParsePermit::for_trusted_text();
