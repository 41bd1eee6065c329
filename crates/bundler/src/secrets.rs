//! Checks secrets against the inventories of a workspace, and copies the needed entries into the
//! bundle.

use std::collections::BTreeMap;

use serde_json::{Map, Value as Json, json};

use crate::error::BundleError;
use crate::manifests::ManifestFile;
use crate::runnable::manifest_error;
use spec::document::excerpt;
use spec::inventory::{Inventories, Inventory, find_permission};
use spec::manifest::{self, Format, Problem, SecretRequest};
use spec::parse_permit::ParsePermit;
use spec::path::escape;
use spec::report::WarningReport;

/// Keys of an entry that stay in the workspace.
const LOCAL_KEYS: [&str; 3] = ["backend", "audit", "tags"];

/// Checks each secret of `manifest`, the resolved form of `file`, against the inventories of the workspace,
/// and adds the entries at `metadata.runner.inventory`. Violations are only warnings: the user of the
/// bundle may supply other values, and a run checks the entries again and enforces them.
pub(crate) fn add_inventory(
    manifest: &mut Json,
    file: &ManifestFile,
    deciding: Vec<Inventory>,
) -> Result<Vec<WarningReport>, BundleError> {
    if deciding.is_empty() {
        return Ok(Vec::new());
    }
    let inventories = Inventories {
        deciding,
        others: Vec::new(),
    };
    let text = manifest.to_string();
    // Written by this process.
    let permit = ParsePermit::for_trusted_text();
    let parsed = manifest::parse(
        &permit,
        text.as_bytes(),
        Format::Json,
        &escape(file.path.file_name()),
    )
    .map_err(|error| BundleError::Manifest(vec![error]))?;
    let consumer = parsed.consumer();
    let mut warnings = Vec::new();
    let mut carried: BTreeMap<&str, Json> = BTreeMap::new();
    let secrets = parsed.secrets.iter();
    let secrets: Vec<&SecretRequest> = secrets
        .filter(|request| request.reference.is_secret())
        .collect();
    for request in &secrets {
        if let Err(refused) = inventories.check(request, &consumer) {
            let message = format!(
                "{refused}: a run without `--secret {}=…` may be refused; {}",
                request.variable, refused.line
            );
            warnings.push(WarningReport::new("secret_not_granted", message));
        }
        // If one of several inventories denies the secret, its entry is the one that a run must see.
        let entries = || inventories.entries_of(request, &consumer);
        let denying = entries().find(|entry| find_permission(entry, &consumer).is_none());
        if let Some(entry) = denying.or_else(|| entries().next()) {
            carried.insert(&entry.slug, without_local_keys(&entry.written));
        }
    }
    if !secrets.is_empty() {
        let carried: Vec<Json> = carried.into_values().collect();
        let inventory = json!({ "secrets": carried });
        match runner_metadata(manifest) {
            Ok(map) => map.insert("inventory".to_owned(), inventory),
            // Without the entries, the bundle would not be bound by the inventory.
            Err(pointer) => return Err(not_a_map(manifest, file, pointer)),
        };
    }
    Ok(warnings)
}

/// Returns the map at `metadata.runner`, and creates it if it is missing. The error is the JSON Pointer of a
/// value that is not a map.
pub(crate) fn runner_metadata(manifest: &mut Json) -> Result<&mut Map<String, Json>, &'static str> {
    let mut value = manifest;
    let mut pointer = "";
    for (key, next) in [("metadata", "/metadata"), ("runner", "/metadata/runner")] {
        let map = value.as_object_mut().ok_or(pointer)?;
        value = map.entry(key).or_insert(Json::Null);
        pointer = next;
        if value.is_null() {
            *value = json!({});
        }
    }
    value.as_object_mut().ok_or(pointer)
}

fn not_a_map(manifest: &Json, file: &ManifestFile, pointer: &str) -> BundleError {
    let found = manifest.pointer(pointer).unwrap_or_default().to_string();
    let problem = Problem::WrongType {
        found: format!("`{}`", excerpt(&found)),
        expected: "a map, because a bundle carries the inventory of its secrets in it".to_owned(),
        hint: None,
    };
    let error = manifest_error(&file.root, &file.path, pointer, problem);
    BundleError::Manifest(vec![error])
}

fn without_local_keys(written: &Json) -> Json {
    let mut entry = written.clone();
    if let Some(entry) = entry.as_object_mut() {
        entry.retain(|key, _| !LOCAL_KEYS.contains(&key.as_str()));
    }
    entry
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::DirectoryFiles;
    use crate::manifests::{INVENTORY, Registry};
    use crate::resolve::{ResolveRequest, resolve};
    use spec::path::RelPath;

    /// Resolves a manifest with a secret and this `metadata`, in a workspace whose inventory denies it.
    fn resolved(metadata: &str) -> Result<(Json, Vec<WarningReport>), BundleError> {
        let workspace = tempfile::tempdir().expect("a directory");
        let inventory = workspace.path().join(INVENTORY);
        std::fs::create_dir(inventory.parent().expect("a parent")).expect("made");
        let entry = "{slug: some-key, name: N, description: D, access: {bind: [{tool: another}]}}";
        std::fs::write(inventory, format!("---\nsecrets:\n- {entry}\n---\n")).expect("written");
        let manifest = format!(
            "id: mine\nrun: [./a]\nsecrets: {{KEY: {{vault: some-key}}}}\nmetadata: {metadata}\n"
        );
        std::fs::write(workspace.path().join("manifest.yaml"), manifest).expect("written");
        let request = ResolveRequest {
            manifest: &RelPath::parse(b"manifest.yaml").expect("a path"),
            registry: &Registry::new(),
            require_pin: false,
        };
        let files = DirectoryFiles::open_root(workspace.path()).expect("opened");
        resolve(request, &files).map(|resolution| (resolution.manifest, resolution.warnings))
    }

    #[test]
    fn the_inventory_is_added_to_the_metadata_or_the_manifest_is_refused() {
        for metadata in ["", "{}", "{runner: {other: 1}}", "{runner: null}"] {
            let (manifest, _) = resolved(metadata).expect(metadata);
            let slug = manifest.pointer("/metadata/runner/inventory/secrets/0/slug");
            assert_eq!(slug, Some(&json!("some-key")), "{metadata}");
            assert!(manifest.pointer("/metadata/runner/provenance").is_some());
        }
        for (metadata, pointer) in [
            ("text", "manifest.yaml:4:11 at /metadata: found `\"text\"`"),
            (
                "{runner: [1]}",
                "manifest.yaml:4:20 at /metadata/runner: found `[1]`",
            ),
        ] {
            let error = resolved(metadata).expect_err("not a map").to_string();
            assert!(error.starts_with(pointer), "{error}");
        }
    }

    #[test]
    fn a_warning_about_a_denied_secret_has_the_line_to_add() {
        let (_, warnings) = resolved("{}").expect("resolved");
        let message = &warnings.first().expect("a warning").message;
        assert!(message.contains("--secret KEY=…"), "{message}");
        let line = "access: {bind: [{tool: \"mine\"}]}";
        assert!(message.contains(line), "{message}");
    }
}
