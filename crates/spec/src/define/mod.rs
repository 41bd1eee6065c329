//! `define_io`, `define_runner`, `define_sandbox`: complete a block for a host.
//!
//! A definition is the block as JSON. The reader of manifests validates it, so there is one set of
//! rules. The returned handle has every default and every list. These functions do no I/O: the
//! host's images and the `run` value are arguments.

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
use crate::parse_permit::ParsePermit;
use crate::report::WarningReport;

/// Why a definition is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DefineError {
    /// A rule of the block. JSON Pointers point into the definition.
    #[error(transparent)]
    Block(#[from] ManifestError),
    #[error("define_io at /{block}")]
    Schema {
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

    /// JSON Pointer of the invalid value in the definition; empty for the whole.
    #[must_use]
    pub fn pointer(&self) -> String {
        match self {
            Self::Block(error) => error.pointer.clone().unwrap_or_default(),
            Self::Schema { block, .. } => format!("/{block}"),
            Self::Image(_) => "/image".to_owned(),
        }
    }

    /// A hint for the user.
    #[must_use]
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Block(error) => error.hint(),
            Self::Schema { error, .. } => Some(error.hint().to_owned()),
            Self::Image(error) => error.hint(),
        }
    }
}

/// Reads `entries` as a manifest with only these keys; `function` replaces the file name.
fn read(function: &'static str, entries: Map<String, Value>) -> Result<Manifest, ManifestError> {
    let text = Value::Object(entries).to_string();
    // The definition is the caller's.
    let permit = ParsePermit::for_trusted_text();
    manifest::parse(&permit, text.as_bytes(), Format::Json, function)
}

/// Makes an error point into the definition, which was read as the value of `key`. Line and column
/// are removed: they belong to a generated text.
fn error_in_definition(mut error: ManifestError, key: &str) -> ManifestError {
    error.place = None;
    error.pointer = error
        .pointer
        .map(|pointer| strip_key(&pointer, key).to_owned());
    error
}

fn warnings_in_definition(
    function: &str,
    warnings: &[WarningReport],
    key: &str,
) -> Vec<WarningReport> {
    let in_definition = |warning: &WarningReport| {
        let (_, rest) = warning.message.split_once(" at ")?;
        let rest = strip_key(rest, key);
        let at = if rest.starts_with(':') { "" } else { " at " };
        let message = format!("{function}{at}{rest}");
        Some(WarningReport::new(&warning.code, message))
    };
    warnings
        .iter()
        .map(|warning| in_definition(warning).unwrap_or_else(|| warning.clone()))
        .collect()
}

/// Removes `/key` from the start of `pointer`.
fn strip_key<'text>(pointer: &'text str, key: &str) -> &'text str {
    pointer
        .strip_prefix('/')
        .and_then(|inside| inside.strip_prefix(key))
        .filter(|rest| !rest.starts_with(char::is_alphanumeric))
        .unwrap_or(pointer)
}

fn unwrapped(definition: &Value) -> &Value {
    definition.get("inline").unwrap_or(definition)
}

/// The texts of a list. Other values have been refused.
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
    fn the_cause_of_an_error_is_its_source() {
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
