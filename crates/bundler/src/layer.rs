//! Resolved sources: `ref` sources are replaced by their content.

use std::sync::Arc;

use crate::origin::{SourceKind, SourceOrigin};
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
    /// A whole folder of the workspace, at the root of the bundle.
    Folder {
        /// `None` for the workspace.
        path: Option<RelPath>,
    },
    /// A file with its content in the manifest.
    Inline { path: RelPath, content: Arc<[u8]> },
    Local {
        /// Base of `path`; `None` for the workspace.
        base: Option<RelPath>,
        /// As written; a pattern if no such file exists. `None` for the folder itself.
        path: Option<RelPath>,
        directory: bool,
        target: SourceTarget,
        glob: Option<String>,
    },
    GitHub {
        repository: String,
        /// Commit, tag or branch.
        reference: String,
        path: Option<RelPath>,
        target: SourceTarget,
    },
}

impl LayerForm {
    /// Returns the kind of the source.
    #[must_use]
    pub fn kind(&self) -> SourceKind {
        match self {
            Self::Folder { .. } => SourceKind::Folder,
            Self::Inline { .. } => SourceKind::Inline,
            Self::Local { .. } => SourceKind::Local,
            Self::GitHub { .. } => SourceKind::GitHub,
        }
    }
}
