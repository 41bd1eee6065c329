//! Which source something comes from: the manifest that names it, and the place there.

use std::fmt;

use spec::document::Place;
use spec::path::RelPath;

/// What kind of source it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SourceKind {
    /// A manifest's own folder, where nothing else is said.
    Folder,
    /// `inline`.
    Inline,
    /// `local`.
    Local,
    /// `github`.
    GitHub,
    /// `ref`.
    Reference,
    /// A directory that becomes a source artifact.
    Snapshot,
    /// What this program adds: `.runner/manifest.json`.
    Resolved,
}

impl SourceKind {
    /// As it is written in a manifest.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Folder => "folder",
            Self::Inline => "inline",
            Self::Local => "local",
            Self::GitHub => "github",
            Self::Reference => "ref",
            Self::Snapshot => "snapshot",
            Self::Resolved => "resolved manifest",
        }
    }
}

/// A source, and where it is written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourceOrigin {
    /// The manifest, relative to the workspace, escaped.
    pub file: String,
    pub place: Option<Place>,
    /// JSON Pointer of the source; empty: the manifest as a whole.
    pub pointer: String,
    /// What kind of source it is.
    pub kind: SourceKind,
}

impl SourceOrigin {
    /// The manifest at `path` as a whole.
    #[must_use]
    pub fn folder_of(path: &RelPath) -> Self {
        Self {
            file: path.to_string(),
            place: None,
            pointer: String::new(),
            kind: SourceKind::Folder,
        }
    }

    /// File and JSON Pointer, `tools/a/manifest.yaml#/code/sources/0`: what a lock file calls it.
    #[must_use]
    pub fn name(&self) -> String {
        format!("{}#{}", self.file, self.pointer)
    }
}

/// `tools/a/manifest.yaml:4:7 at /code/sources/0 (local)`.
impl fmt::Display for SourceOrigin {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.file)?;
        if let Some(place) = self.place {
            write!(formatter, ":{place}")?;
        }
        if !self.pointer.is_empty() {
            write!(formatter, " at {}", self.pointer)?;
        }
        write!(formatter, " ({})", self.kind.name())
    }
}
