//! Parsing and writing of `oci-layout` and `index.json`.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::oci::artifact::shown;
use spec::digest::Digest;
use spec::oci::media::INDEX;
use spec::path::escape;

pub(super) const MARK: &str = "oci-layout";
pub(super) const MARK_TEXT: &str = "{\"imageLayoutVersion\":\"1.0.0\"}";
pub(super) const LIST: &str = "index.json";
const NAME: &str = "org.opencontainers.image.ref.name";
/// Largest `oci-layout`, in bytes.
pub(super) const MARK_BYTES_MAX: u64 = 4 << 10;

/// A manifest in the index of a layout.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LayoutEntry {
    pub digest: Digest,
    pub bytes: u64,
    pub media_type: String,
    pub artifact_type: Option<String>,
    /// The annotation `org.opencontainers.image.ref.name`.
    pub name: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Mark {
    image_layout_version: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct WrittenIndex {
    schema_version: u32,
    manifests: Vec<WrittenEntry>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct WrittenEntry {
    media_type: String,
    #[serde(default)]
    artifact_type: Option<String>,
    digest: String,
    size: u64,
    #[serde(default)]
    annotations: BTreeMap<String, String>,
}

/// Checks `oci-layout`; the problem completes "`oci-layout` …".
pub(super) fn mark_problem(bytes: &[u8]) -> Option<String> {
    match serde_json::from_slice::<Mark>(bytes) {
        Ok(mark) if mark.image_layout_version.starts_with("1.") => None,
        Ok(mark) => Some(format!(
            "is of version {}, expected 1.0.0",
            escape(mark.image_layout_version.as_bytes())
        )),
        Err(error) => Some(format!(
            "is not a version mark: {}",
            shown(&error.to_string())
        )),
    }
}

/// Lists the manifests of an index; the error completes "`index.json` …".
pub(super) fn listed(bytes: &[u8]) -> Result<Vec<LayoutEntry>, String> {
    let index: WrittenIndex = serde_json::from_slice(bytes)
        .map_err(|error| format!("is not an image index: {}", shown(&error.to_string())))?;
    if index.schema_version != 2 {
        return Err(format!(
            "has the schemaVersion {}, expected 2",
            index.schema_version
        ));
    }
    index
        .manifests
        .into_iter()
        .map(|mut entry| {
            let digest = Digest::parse(&entry.digest).ok_or_else(|| {
                let found = escape(entry.digest.as_bytes());
                format!("lists the digest `{found}`, expected sha256: and 64 digits")
            })?;
            Ok(LayoutEntry {
                digest,
                media_type: entry.media_type,
                artifact_type: entry.artifact_type,
                bytes: entry.size,
                name: entry.annotations.remove(NAME),
            })
        })
        .collect()
}

/// Returns `index.json` with `new` appended. It replaces the entry with the same name, and an
/// unnamed entry with the same digest. Other entries stay unchanged.
pub(super) fn with_entry(before: Option<&[u8]>, new: &LayoutEntry) -> Result<String, String> {
    let mut entries = match before {
        Some(before) => {
            listed(before)?;
            let index: Value = serde_json::from_slice(before)
                .map_err(|error| format!("is not an image index: {}", shown(&error.to_string())))?;
            index["manifests"].as_array().cloned().unwrap_or_default()
        }
        None => Vec::new(),
    };
    let name_of = |entry: &Value| entry["annotations"][NAME].as_str().map(str::to_owned);
    entries.retain(|entry| {
        let is_same_bytes = entry["digest"].as_str() == Some(new.digest.to_string().as_str());
        match name_of(entry) {
            Some(name) => Some(name) != new.name,
            None => !is_same_bytes,
        }
    });
    entries.push(written(new));
    let mut index = Map::new();
    index.insert("manifests".to_owned(), Value::Array(entries));
    index.insert("mediaType".to_owned(), json!(INDEX));
    index.insert("schemaVersion".to_owned(), json!(2));
    Ok(Value::Object(index).to_string())
}

fn written(new: &LayoutEntry) -> Value {
    let mut entry = Map::new();
    if let Some(name) = &new.name {
        entry.insert("annotations".to_owned(), json!({ NAME: name }));
    }
    if let Some(artifact_type) = &new.artifact_type {
        entry.insert("artifactType".to_owned(), json!(artifact_type));
    }
    entry.insert("digest".to_owned(), json!(new.digest));
    entry.insert("mediaType".to_owned(), json!(new.media_type));
    entry.insert("size".to_owned(), json!(new.bytes));
    Value::Object(entry)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(text: &str, name: Option<&str>) -> LayoutEntry {
        LayoutEntry {
            digest: Digest::of(text.as_bytes()),
            media_type: "m".to_owned(),
            artifact_type: None,
            bytes: 3,
            name: name.map(str::to_owned),
        }
    }

    #[test]
    fn a_name_belongs_to_one_manifest_and_foreign_entries_stay() {
        let first = with_entry(None, &entry("a", Some("x"))).expect("written");
        let second = with_entry(Some(first.as_bytes()), &entry("b", Some("y"))).expect("written");
        assert_eq!(listed(second.as_bytes()).expect("read").len(), 2);
        let third = with_entry(Some(second.as_bytes()), &entry("c", Some("x"))).expect("written");
        let names: Vec<_> = listed(third.as_bytes())
            .expect("read")
            .into_iter()
            .map(|listed| (listed.name, listed.digest))
            .collect();
        assert_eq!(
            names,
            [
                (Some("y".to_owned()), Digest::of(b"b")),
                (Some("x".to_owned()), Digest::of(b"c"))
            ]
        );
        let foreign = third.replacen("\"size\":3", "\"size\":3,\"platform\":{\"os\":\"o\"}", 1);
        let fourth = with_entry(Some(foreign.as_bytes()), &entry("d", None)).expect("written");
        assert!(fourth.contains("platform"), "{fourth}");
        let fifth = with_entry(Some(fourth.as_bytes()), &entry("d", None)).expect("written");
        assert_eq!(fourth, fifth);
    }

    #[test]
    fn an_invalid_index_is_refused_with_the_reason() {
        for (text, part) in [
            ("", "is not an image index"),
            ("[]", "is not an image index"),
            ("{\"schemaVersion\":2}", "manifests"),
            ("{\"schemaVersion\":1,\"manifests\":[]}", "schemaVersion 1"),
            (
                "{\"schemaVersion\":2,\"manifests\":[{\"mediaType\":\"m\",\"size\":1,\
                 \"digest\":\"sha256:../../x\"}]}",
                "expected sha256:",
            ),
            (
                "{\"schemaVersion\":2,\"manifests\":[{\"mediaType\":\"m\",\"size\":-1,\
                 \"digest\":\"x\"}]}",
                "is not an image index",
            ),
        ] {
            let error = listed(text.as_bytes()).expect_err(text);
            assert!(error.contains(part), "{text}: {error}");
        }
        assert_eq!(mark_problem(MARK_TEXT.as_bytes()), None);
        for text in ["", "{}", "{\"imageLayoutVersion\":\"2.0.0\"}"] {
            assert!(mark_problem(text.as_bytes()).is_some(), "{text}");
        }
    }
}
