//! A source after resolution: the `ref` sources are replaced by what they stand for.

use std::sync::Arc;

use crate::origin::{SourceKind, SourceOrigin};
use spec::code_block::SourceTarget;
use spec::path::RelPath;

/// One source of files; a later one lies over the earlier ones.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layer {
    /// Where it is written.
    pub origin: SourceOrigin,
    pub form: LayerForm,
}

/// What a source is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LayerForm {
    /// All of a folder of the workspace, at the top of the bundle.
    Folder {
        /// Which; `None`: the workspace itself.
        path: Option<RelPath>,
    },
    /// A file whose content is here.
    Inline { path: RelPath, content: Arc<[u8]> },
    /// Files of the workspace.
    Local {
        /// The folder that `path` is relative to; `None`: the workspace.
        base: Option<RelPath>,
        /// As it is written; a pattern where nothing of that name is there. `None`: the folder
        /// itself.
        path: Option<RelPath>,
        /// Whether only a directory will do.
        directory: bool,
        target: SourceTarget,
        /// Which files of a directory.
        glob: Option<String>,
    },
    /// Files of a repository.
    GitHub {
        /// `owner/name`.
        repository: String,
        /// Commit, tag or branch.
        reference: String,
        /// The folder of the repository; `None`: all of it.
        path: Option<RelPath>,
        target: SourceTarget,
    },
}

impl LayerForm {
    /// What kind of source it is.
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
