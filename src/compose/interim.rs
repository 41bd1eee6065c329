//! Until inheritance is there.
use std::collections::BTreeMap;

use crate::spec::document::Node;
use crate::spec::manifest::{BlockDocuments, Manifest, ManifestError};
use crate::spec::report::WarningReport;

#[derive(Debug, Clone)]
pub(crate) struct Level {
    pub(crate) file: String,
    pub(crate) resolved: serde_json::Value,
}
pub(crate) struct Inherited {
    pub(crate) manifest: serde_json::Value,
    pub(crate) provenance: BTreeMap<String, String>,
    pub(crate) warnings: Vec<WarningReport>,
}
pub(crate) fn resolved(root: &Node, _: &Manifest, _: &BlockDocuments) -> serde_json::Value {
    let mut value = root.to_json().unwrap_or_default();
    if let Some(map) = value.as_object_mut() {
        map.remove("code");
        map.remove("source");
    }
    value
}
pub(crate) fn inherit(own: Level, _: &[Level]) -> Result<Inherited, ManifestError> {
    let provenance = own.resolved.as_object().into_iter().flatten();
    let provenance = provenance
        .map(|(key, _)| (format!("/{key}"), own.file.clone()))
        .collect();
    Ok(Inherited {
        provenance,
        manifest: own.resolved,
        warnings: Vec::new(),
    })
}
