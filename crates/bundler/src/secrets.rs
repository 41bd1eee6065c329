//! Checks secrets against the inventories of a workspace, and copies the needed entries into the
//! bundle.

use std::collections::BTreeMap;

use serde_json::{Value as Json, json};

use crate::error::BundleError;
use crate::files::DirectoryFiles;
use crate::manifests::inventory_of_workspace;
use spec::inventory::{Inventories, Inventory, find_permission};
use spec::manifest::{self, Format, SecretRequest};
use spec::report::WarningReport;

/// Keys of an entry that stay in the workspace.
const LOCAL_KEYS: [&str; 3] = ["backend", "audit", "tags"];

/// Checks each secret of the resolved `manifest` against `inventories` and the workspace's own, and adds
/// the entries at `metadata.runner.inventory`. Violations are only warnings: the user of the bundle may
/// supply other values, and a run checks the entries again and enforces them.
pub(crate) fn add_inventory(
    manifest: &mut Json,
    inventories: Vec<Inventory>,
    files: &DirectoryFiles,
    file: &str,
) -> Result<Vec<WarningReport>, BundleError> {
    let mut deciding = inventories;
    deciding.extend(inventory_of_workspace(files));
    if deciding.is_empty() {
        return Ok(Vec::new());
    }
    let inventories = Inventories {
        deciding,
        others: Vec::new(),
    };
    let text = manifest.to_string();
    let parsed = manifest::parse(text.as_bytes(), Format::Json, file)
        .map_err(|error| BundleError::Manifest(vec![error]))?;
    let who = parsed.consumer();
    let mut warnings = Vec::new();
    let mut carried: BTreeMap<&str, Json> = BTreeMap::new();
    let secrets = parsed.secrets.iter();
    let secrets: Vec<&SecretRequest> = secrets.filter(|one| one.reference.is_secret()).collect();
    for request in &secrets {
        if let Err(refused) = inventories.check(request, &who) {
            let message = format!("{refused}: a run needs `--secret {}=…`", request.variable);
            warnings.push(WarningReport::new("secret_not_granted", message));
        }
        // Of several entries, one that denies applies.
        let entries = || inventories.entries_of(request, &who);
        let withheld = entries().find(|entry| find_permission(entry, &who).is_none());
        if let Some(entry) = withheld.or_else(|| entries().next()) {
            carried.insert(&entry.slug, without_local_keys(&entry.written));
        }
    }
    if !secrets.is_empty() {
        let carried: Vec<Json> = carried.into_values().collect();
        manifest["metadata"]["runner"]["inventory"] = json!({ "secrets": carried });
    }
    Ok(warnings)
}

fn without_local_keys(written: &Json) -> Json {
    let mut entry = written.clone();
    if let Some(entry) = entry.as_object_mut() {
        entry.retain(|key, _| !LOCAL_KEYS.contains(&key.as_str()));
    }
    entry
}
