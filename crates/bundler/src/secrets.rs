//! Checks secrets against the inventories of a workspace and copies the needed entries into the
//! bundle.

use std::collections::BTreeMap;

use serde_json::{Value as Json, json};

use crate::error::BundleError;
use crate::files::DirectoryFiles;
use crate::manifests::inventory_of_workspace;
use spec::inventory::{Inventories, Inventory, may_have};
use spec::manifest::{self, Format, SecretRequest};
use spec::report::WarningReport;

const KEPT_HOME: [&str; 3] = ["backend", "audit", "tags"];

/// Checks each secret of the resolved `manifest` against the `named` inventories and the
/// workspace's own. Adds the entries at `metadata.runner.inventory`; a run checks them again and
/// enforces them. Violations are only warnings here, since the user of the bundle may supply other
/// values.
///
/// # Errors
/// [`BundleError::Manifest`]: inherited values conflict.
pub(crate) fn carry_inventory(
    manifest: &mut Json,
    named: Vec<Inventory>,
    files: &DirectoryFiles,
    file: &str,
) -> Result<Vec<WarningReport>, BundleError> {
    let mut deciding = named;
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
        let withheld = entries().find(|entry| may_have(entry, &who).is_none());
        if let Some(entry) = withheld.or_else(|| entries().next()) {
            carried.insert(&entry.slug, travelling(&entry.written));
        }
    }
    if !secrets.is_empty() {
        let carried: Vec<Json> = carried.into_values().collect();
        manifest["metadata"]["runner"]["inventory"] = json!({ "secrets": carried });
    }
    Ok(warnings)
}

fn travelling(written: &Json) -> Json {
    let mut entry = written.clone();
    if let Some(entry) = entry.as_object_mut() {
        entry.retain(|key, _| !KEPT_HOME.contains(&key.as_str()));
    }
    entry
}
