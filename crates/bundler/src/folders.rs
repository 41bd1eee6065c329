//! Folders named by the paths of sources.

use crate::error::BundleError;
use crate::walk::join;
use spec::code_block::SourcePath;
use spec::path::RelPath;

/// Returns the base folder of a source path, relative to the workspace (`None`: the
/// workspace itself). `base` is the folder of the manifest.
pub(crate) fn base_of(
    base: Option<&RelPath>,
    path: &SourcePath,
) -> Result<Option<RelPath>, BundleError> {
    path.base(base).ok_or_else(|| BundleError::Outside {
        path: path.to_string(),
        folder: base.map_or_else(|| ".".to_owned(), RelPath::to_string),
    })
}

pub(crate) fn folder_at(
    base: Option<&RelPath>,
    path: &SourcePath,
) -> Result<Option<RelPath>, BundleError> {
    let base = base_of(base, path)?;
    match &path.below {
        Some(below) => join(base.as_ref(), below).map(Some),
        None => Ok(base),
    }
}
