//! Folders that the paths of sources name.

use crate::error::SourceProblem;
use crate::walk::join;
use spec::code_block::SourcePath;
use spec::path::RelPath;

/// Returns the folder that a source path starts at, relative to the workspace (`None`: the
/// workspace itself). `base` is the folder of the manifest.
pub(crate) fn base_of(
    base: Option<&RelPath>,
    path: &SourcePath,
) -> Result<Option<RelPath>, SourceProblem> {
    path.base(base).ok_or_else(|| SourceProblem::Outside {
        path: path.to_string(),
        folder: base.map_or_else(|| ".".to_owned(), RelPath::to_string),
    })
}

pub(crate) fn folder_at(
    base: Option<&RelPath>,
    path: &SourcePath,
) -> Result<Option<RelPath>, SourceProblem> {
    let base = base_of(base, path)?;
    match &path.below {
        Some(below) => join(base.as_ref(), below).map(Some),
        None => Ok(base),
    }
}
