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
    /// The `name` of the manifest, else its `id`, else its folder; `null`: it cannot be read.
    pub name: Option<String>,
    /// Errors in the manifest, in its block documents, and in the code-workspaces that it refers
    /// to.
    pub errors: Vec<CheckError>,
    /// Warnings.
    pub warnings: Vec<WarningReport>,
    /// JSON Pointers of valid values that have no effect; in other files than the manifest with
    /// `FILE#` in front.
    pub ignored: Vec<String>,
}

/// An error.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct CheckError {
    /// Stable error code.
    pub code: String,
    /// What was found and what was expected.
    pub message: String,
    /// The file, relative to the workspace.
    pub file: Option<String>,
    /// Line, counted from 1.
    pub line: Option<u32>,
    /// Column in characters, counted from 1.
    pub column: Option<u32>,
    /// JSON Pointer (RFC 6901) into the file; empty: the whole file.
    pub pointer: Option<String>,
    /// How to correct the error.
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
