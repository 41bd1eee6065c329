//! The outcome of a vector, in one form for all actions.

use std::collections::BTreeMap;

use serde_json::Value;

/// The outcome of a vector; empty fields if the action has none.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    /// The refusal.
    pub(crate) error: Option<Told>,
    /// All refusals, for `check`.
    pub(crate) errors: Vec<Told>,
    /// Codes.
    pub(crate) warnings: Vec<String>,
    /// The files of the bundle, without `.runner`.
    pub(crate) tree: BTreeMap<Vec<u8>, Found>,
    pub(crate) digest: Option<String>,
    /// The resolved manifest.
    pub(crate) manifest: Option<Value>,
    /// JSON Pointer to file.
    pub(crate) provenance: Option<Value>,
    /// The requests of the manifest.
    pub(crate) asks: Option<Value>,
    pub(crate) handle: Option<Value>,
    /// Repository, reference and commit of each fetched source.
    pub(crate) resolved: Option<Value>,
    pub(crate) form: Option<String>,
    pub(crate) argv: Option<Vec<String>>,
    pub(crate) path: Option<String>,
    pub(crate) valid: Option<bool>,
}

/// A refusal.
#[derive(Debug, Clone)]
pub(crate) struct Told {
    pub(crate) code: String,
    pub(crate) at: Option<String>,
    /// All lines of the message, followed by the hint.
    pub(crate) message: String,
}

/// The entry at a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Found {
    File { mode: u32, bytes: Vec<u8> },
    Symlink { target: Vec<u8> },
    EmptyDirectory,
}

impl Outcome {
    pub(crate) fn refused(told: Told) -> Self {
        Self {
            error: Some(told),
            ..Self::default()
        }
    }
}
