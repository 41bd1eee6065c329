//! The result of `runner check`: the JSON document about one manifest. Its schema is
//! `schemas/check.schema.json`.

use serde::Serialize;

use crate::manifest::ManifestError;
use crate::report::WarningReport;

/// The JSON document about one manifest.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(extend("$id" = "urn:runner:schema:check")))]
pub struct CheckReport {
    /// Whether there are no errors.
    pub valid: bool,
    /// What it is called: its `name`, else its `id`, else its folder. Absent where it cannot be
    /// read.
    pub name: Option<String>,
    /// Everything that is not accepted: in the manifest, in the documents of its blocks, and in
    /// the code-workspaces that it refers to.
    pub errors: Vec<CheckError>,
    /// What a person should know.
    pub warnings: Vec<WarningReport>,
    /// JSON Pointers of what is valid and not acted on, behind `FILE#` where it does not stand in
    /// the manifest itself.
    pub ignored: Vec<String>,
}

/// One thing that is not accepted.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct CheckError {
    /// Stable.
    pub code: String,
    /// What was found and what was expected.
    pub message: String,
    /// The file, relative to the workspace.
    pub file: Option<String>,
    /// Counted from 1.
    pub line: Option<u32>,
    /// Counted from 1, in characters.
    pub column: Option<u32>,
    /// JSON Pointer (RFC 6901) into the file; empty: the whole of it.
    pub pointer: Option<String>,
    /// What to do.
    pub hint: Option<String>,
}

impl From<&ManifestError> for CheckError {
    fn from(error: &ManifestError) -> Self {
        Self {
            code: error.code().to_owned(),
            message: error.problem.to_string(),
            file: Some(error.file.clone()),
            line: error.place.map(|place| place.line),
            column: error.place.map(|place| place.column),
            pointer: error.pointer.clone(),
            hint: error.hint(),
        }
    }
}

impl std::fmt::Display for CheckError {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if let Some(file) = &self.file {
            write!(formatter, "{}", crate::path::escape(file.as_bytes()))?;
            if let (Some(line), Some(column)) = (self.line, self.column) {
                write!(formatter, ":{line}:{column}")?;
            }
            formatter.write_str(": ")?;
        }
        write!(formatter, "{} ({})", self.message, self.code)?;
        if let Some(pointer) = self
            .pointer
            .as_deref()
            .filter(|pointer| !pointer.is_empty())
        {
            write!(formatter, "\n    at {pointer}")?;
        }
        if let Some(hint) = &self.hint {
            write!(formatter, "\n    hint: {hint}")?;
        }
        Ok(())
    }
}
