//! Whether a published schema agrees with the parser about a manifest.

use std::sync::LazyLock;

use jsonschema::Validator;
use runner::cli::schema;
use runner::cli::schema::SchemaName;
use serde_json::Value;
use spec::manifest::ManifestError;

/// Codes of refusals that depend on more than the shape of one value: on another key, on another
/// document, on this host. A schema may accept these.
const SEMANTIC: [&str; 15] = [
    "duplicate_claim",
    "fs_root_declared",
    "mount_ref_unresolvable",
    "plaintext_credential",
    "runner_ref_unresolvable",
    "sandbox_ref_unresolvable",
    "schema_too_large",
    "secrets_ref_unresolvable",
    "token_id_invalid",
    "image_unknown",
    "needs_contradict_run",
    "needs_unsatisfied",
    "code_cycle",
    "code_depth",
    "source_missing",
];

/// The schema of manifests.
pub(crate) static MANIFEST: LazyLock<Validator> = LazyLock::new(|| validator(SchemaName::Manifest));

/// A compiled schema.
pub(crate) fn validator(name: SchemaName) -> Validator {
    let schema: Value = serde_json::from_str(&schema::text(name)).expect("JSON");
    jsonschema::validator_for(&schema).expect("a schema of 2020-12")
}

/// The errors of `document`, each with its JSON Pointer.
pub(crate) fn errors(validator: &Validator, document: &Value) -> Vec<String> {
    validator
        .iter_errors(document)
        .map(|error| format!("{}: {error}", error.instance_path()))
        .collect()
}

/// Whether a schema must also refuse what the parser refuses with this code.
pub(crate) fn is_structural(refusal: &ManifestError) -> bool {
    // `1e3` and `10.0` are integers for JSON Schema.
    let written_otherwise = refusal
        .to_string()
        .contains("whole number in decimal digits");
    !SEMANTIC.contains(&refusal.code()) && !written_otherwise
}

/// Panics if the schema of manifests refuses what the parser accepts, or accepts what it refuses
/// for its shape.
pub(crate) fn assert_agreement(name: &str, document: &Value, refusal: Option<&ManifestError>) {
    let errors = errors(&MANIFEST, document);
    match refusal {
        None => assert!(errors.is_empty(), "{name}\n{document:#}\n{errors:#?}"),
        Some(refusal) if is_structural(refusal) => {
            assert!(
                !errors.is_empty(),
                "{name}\n{document:#}\nnot refused: {refusal}"
            );
        }
        Some(_) => (),
    }
}
