//! Resolved sources: `ref` sources are replaced by their content.

use std::sync::Arc;

use crate::origin::SourceOrigin;
use spec::code_block::SourceTarget;
use spec::path::RelPath;

/// One source of files; later ones override earlier ones.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layer {
    pub origin: SourceOrigin,
    pub form: LayerForm,
}

/// Form of a source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LayerForm {
    /// A whole folder of the workspace, at the root of the bundle. `None`: the workspace.
    Folder(Option<RelPath>),
    /// A file with its content in the manifest.
    Inline {
        path: RelPath,
        content: Arc<[u8]>,
    },
    Local(LocalSource),
    GitHub(RepositorySource),
}

/// Files of the workspace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LocalSource {
    /// Base of `path`; `None` for the workspace.
    pub base: Option<RelPath>,
    /// As written. A pattern if no file has this name. `None` for the folder itself.
    pub path: Option<RelPath>,
    pub directory: bool,
    pub target: SourceTarget,
    pub glob: Option<String>,
}

/// A folder of a repository.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RepositorySource {
    pub repository: String,
    /// Commit, tag or branch.
    pub reference: String,
    pub path: Option<RelPath>,
    pub target: SourceTarget,
}
