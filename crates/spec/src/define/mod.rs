//! `define_io`, `define_runner`, `define_sandbox`: a block as a host has it in hand, complete.
//!
//! A definition is the value of the block as JSON. It is judged by the same reader as a manifest,
//! so there is one set of rules, and what comes back is a handle in which nothing is left open:
//! every default stands in it, every list is there. Nothing is read from anywhere and nothing is
//! started; what a host knows (its images, what is to be run) are arguments.
#![forbid(unsafe_code)]

mod io;
pub mod runner;
pub mod sandbox;

pub use io::{FileContract, IoHandle, define_io};
pub use runner::{
    LanguageNeeds, ResolvedRunner, RunnerEngine, RunnerHandle, RunnerLimits, RunnerSurroundings,
    define_runner,
};
pub use sandbox::{
    AuthState, MountHandle, ProviderConfig, SandboxAuth, SandboxEnvironment, SandboxHandle,
    SandboxLifecycle, SandboxLimits, SandboxNetwork, define_sandbox,
};

use serde_json::{Map, Value};

use crate::image::ImageError;
use crate::io::contract::ContractError;
use crate::manifest::{self, Format, Manifest, ManifestError};
use crate::report::WarningReport;

/// Why a definition is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DefineError {
    /// A rule of the block. JSON Pointers are those of the definition.
    #[error(transparent)]
    Block(#[from] ManifestError),
    /// The JSON Schema of `inputs` or `outputs`.
    #[error("define_io at /{block}")]
    Schema {
        /// `inputs` or `outputs`.
        block: &'static str,
        #[source]
        error: ContractError,
    },
    #[error("define_runner at /image")]
    Image(#[from] ImageError),
}

impl DefineError {
    /// Stable name of the problem.
    #[must_use]
    pub const fn code(&self) -> &'static str {
        match self {
            Self::Block(error) => error.code(),
            Self::Schema { error, .. } => error.code(),
            Self::Image(error) => error.code(),
        }
    }

    /// JSON Pointer of the value that is to blame, into the definition; empty for the whole.
    #[must_use]
    pub fn pointer(&self) -> String {
        match self {
            Self::Block(error) => error.pointer.clone().unwrap_or_default(),
            Self::Schema { block, .. } => format!("/{block}"),
            Self::Image(_) => "/image".to_owned(),
        }
    }

    /// What to do about it.
    #[must_use]
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Block(error) => error.hint(),
            Self::Schema { error, .. } => Some(error.hint().to_owned()),
            Self::Image(error) => error.hint(),
        }
    }
}

/// Reads `entries` as a manifest of only these keys; `function` stands where a file name would.
fn read(function: &'static str, entries: Map<String, Value>) -> Result<Manifest, ManifestError> {
    let text = Value::Object(entries).to_string();
    manifest::parse(text.as_bytes(), Format::Json, function)
}

/// The error of a definition that was read as the value of `key`. A line and a column would be
/// those of a text that nobody wrote.
fn of_definition(mut error: ManifestError, key: &str) -> ManifestError {
    error.place = None;
    error.pointer = error.pointer.map(|pointer| below(&pointer, key).to_owned());
    error
}

/// The warnings of a definition that was read as the value of `key`.
fn told(function: &str, warnings: &[WarningReport], key: &str) -> Vec<WarningReport> {
    let of_definition = |warning: &WarningReport| {
        let (_, rest) = warning.message.split_once(" at ")?;
        let message = format!("{function} at {}", below(rest, key));
        Some(WarningReport::new(&warning.code, message))
    };
    warnings
        .iter()
        .map(|warning| of_definition(warning).unwrap_or_else(|| warning.clone()))
        .collect()
}

/// A pointer into the definition, where `pointer` leads below `/key`.
fn below<'text>(pointer: &'text str, key: &str) -> &'text str {
    pointer
        .strip_prefix('/')
        .and_then(|inside| inside.strip_prefix(key))
        .filter(|rest| !rest.starts_with(char::is_alphanumeric))
        .unwrap_or(pointer)
}

/// The block itself, where the definition has the form `{inline: BLOCK}`.
fn unwrapped(definition: &Value) -> &Value {
    definition.get("inline").unwrap_or(definition)
}

/// The texts of a list; what is no text has been refused before.
fn texts(list: Option<&Value>) -> Vec<String> {
    let items = list.and_then(Value::as_array).map(Vec::as_slice);
    items
        .unwrap_or_default()
        .iter()
        .filter_map(|item| item.as_str().map(str::to_owned))
        .collect()
}

#[cfg(test)]
mod tests {
    use std::error::Error as _;

    use serde_json::json;

    use super::*;

    #[test]
    fn an_error_leaves_its_cause_to_the_chain() {
        let schema = define_io(&json!({"inputs": {"type": "nothing"}})).expect_err("no schema");
        let surroundings = RunnerSurroundings::default();
        let block = json!({"engine": "sandbox", "image": "none-such"});
        let image = define_runner(&block, &surroundings).expect_err("no image");
        for (error, begin) in [
            (schema, "define_io at /inputs"),
            (image, "define_runner at /image"),
        ] {
            assert_eq!(error.to_string(), begin);
            let cause = error.source().expect("a cause").to_string();
            assert!(!cause.is_empty() && !begin.contains(&cause), "{cause}");
        }
    }
}
