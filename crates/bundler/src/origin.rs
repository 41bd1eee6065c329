//! Identifies a source by its manifest and its position there.

use std::fmt;

use spec::document::Place;

/// Kind of a source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SourceKind {
    /// A manifest's own folder, used by default.
    Folder,
    Inline,
    Local,
    GitHub,
    Reference,
    Snapshot,
    /// Added by this program: `.runner/manifest.json`.
    Resolved,
}

impl SourceKind {
    /// Returns the name used in manifests.
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

/// A source and its position in a manifest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourceOrigin {
    /// Path of the manifest in the workspace, escaped.
    pub file: String,
    pub place: Option<Place>,
    /// JSON Pointer; empty for the whole manifest.
    pub pointer: String,
    pub kind: SourceKind,
}

impl SourceOrigin {
    /// Refers to a whole file or directory.
    pub(crate) fn whole(file: String, kind: SourceKind) -> Self {
        Self {
            file,
            place: None,
            pointer: String::new(),
            kind,
        }
    }

    /// Formats file and JSON Pointer as in lock files: `tools/a/manifest.yaml#/code/sources/0`.
    pub(crate) fn name(&self) -> String {
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
