//! The result of `runner check`: the JSON document about one manifest. Its schema is
//! `schemas/check.schema.json`.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::document::{Place, SourceLine};
use crate::manifest::{ManifestError, PLAINTEXT_CREDENTIAL};
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
    /// The line, for messages. Not part of the document.
    #[serde(skip)]
    #[cfg_attr(test, schemars(skip))]
    pub source_line: Option<SourceLine>,
}

/// Adds the line of each error. `read` returns the text of a file by its name in errors. A file with a
/// credential in plain text gives no line.
pub fn add_source_lines(errors: &mut [CheckError], read: &dyn Fn(&str) -> Option<Vec<u8>>) {
    let mut texts: BTreeMap<String, Option<Vec<u8>>> = BTreeMap::new();
    for error in errors
        .iter()
        .filter(|error| error.code == PLAINTEXT_CREDENTIAL)
    {
        texts.insert(error.file.clone().unwrap_or_default(), None);
    }
    for error in errors {
        let (Some(file), Some(line), Some(column)) = (&error.file, error.line, error.column) else {
            continue;
        };
        let text = texts.entry(file.clone()).or_insert_with(|| read(file));
        let place = Place { line, column };
        error.source_line = text.as_ref().and_then(|text| SourceLine::find(text, place));
    }
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
            source_line: None,
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
