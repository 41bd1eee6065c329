//! What of a directory is taken, where that is not what bundles hold.

use crate::compose::error::SourceProblem;
use crate::compose::files::Found;
use crate::spec::path::RelPath;

/// Decides what of a tree is taken, instead of what bundles leave out everywhere.
pub(crate) trait Sieve {
    /// Called with each directory (`None`: the top) before it is listed.
    ///
    /// # Errors
    /// Where what it has to say about its files cannot be read.
    fn enter(&self, directory: Option<&RelPath>) -> Result<(), SourceProblem>;

    /// Whether what was found at `path` is taken; nothing below a directory is that is not.
    ///
    /// # Errors
    /// Where that cannot be told.
    fn takes(&self, path: &RelPath, found: &Found) -> Result<bool, SourceProblem>;
}
