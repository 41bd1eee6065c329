//! Parsing and writing of `oci-layout` and `index.json`.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::answers;
use crate::oci::artifact::abbreviate;
use spec::digest::Digest;
use spec::oci::media::INDEX;
use spec::path::escape;

pub(super) const LAYOUT_FILE: &str = "oci-layout";
pub(super) const LAYOUT_FILE_TEXT: &str = "{\"imageLayoutVersion\":\"1.0.0\"}";
pub(super) const INDEX_FILE: &str = "index.json";
const NAME_ANNOTATION: &str = "org.opencontainers.image.ref.name";
pub(super) const LAYOUT_FILE_BYTES_MAX: u64 = 4 << 10;

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
struct LayoutFile {
    image_layout_version: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct IndexDocument {
    schema_version: u32,
    manifests: Vec<IndexDescriptor>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct IndexDescriptor {
    media_type: String,
    artifact_type: Option<String>,
    digest: String,
    size: u64,
    #[serde(default)]
    annotations: BTreeMap<String, String>,
}

/// Checks the version in `oci-layout`. The error completes the sentence "`oci-layout` …".
pub(super) fn check_layout_file(bytes: &[u8]) -> Result<(), String> {
    let file: LayoutFile = answers::parse_as(bytes)
        .map_err(|problem| format!("has no version: {}", abbreviate(&problem)))?;
    if !file.image_layout_version.starts_with("1.") {
        let version = escape(file.image_layout_version.as_bytes());
        return Err(format!("is of version {version}, expected 1.0.0"));
    }
    Ok(())
}

/// Lists the manifests of an index. The error completes the sentence "`index.json` …".
pub(super) fn parse_index(bytes: &[u8]) -> Result<Vec<LayoutEntry>, String> {
    let index: IndexDocument = answers::parse_as(bytes)
        .map_err(|problem| format!("is not an image index: {}", abbreviate(&problem)))?;
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
                name: entry.annotations.remove(NAME_ANNOTATION),
            })
        })
        .collect()
}

/// Appends `new` to an `index.json`. It replaces the entry with the same name, and an unnamed entry
/// with the same digest. Other entries and keys stay unchanged.
pub(super) fn add_entry(before: Option<&[u8]>, new: &LayoutEntry) -> Result<String, String> {
    let mut index = Map::new();
    if let Some(before) = before {
        parse_index(before)?;
        index = answers::parse_as(before)
            .map_err(|problem| format!("is not an image index: {}", abbreviate(&problem)))?;
    }
    let mut entries = match index.remove("manifests") {
        Some(Value::Array(entries)) => entries,
        _ => Vec::new(),
    };
    let name_of = |entry: &Value| {
        entry["annotations"][NAME_ANNOTATION]
            .as_str()
            .map(str::to_owned)
    };
    entries.retain(|entry| {
        let is_same_digest = entry["digest"].as_str() == Some(new.digest.to_string().as_str());
        match name_of(entry) {
            Some(name) => Some(name) != new.name,
            None => !is_same_digest,
        }
    });
    entries.push(entry_value(new));
    index.insert("manifests".to_owned(), Value::Array(entries));
    index.insert("mediaType".to_owned(), json!(INDEX));
    index.insert("schemaVersion".to_owned(), json!(2));
    Ok(Value::Object(index).to_string())
}

fn entry_value(new: &LayoutEntry) -> Value {
    let mut entry = Map::new();
    if let Some(name) = &new.name {
        entry.insert("annotations".to_owned(), json!({ NAME_ANNOTATION: name }));
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
    fn a_name_belongs_to_one_manifest_and_other_entries_stay() {
        let first = add_entry(None, &entry("a", Some("x"))).expect("written");
        let second = add_entry(Some(first.as_bytes()), &entry("b", Some("y"))).expect("written");
        assert_eq!(parse_index(second.as_bytes()).expect("read").len(), 2);
        let third = add_entry(Some(second.as_bytes()), &entry("c", Some("x"))).expect("written");
        let names: Vec<_> = parse_index(third.as_bytes())
            .expect("read")
            .into_iter()
            .map(|entry| (entry.name, entry.digest))
            .collect();
        assert_eq!(
            names,
            [
                (Some("y".to_owned()), Digest::of(b"b")),
                (Some("x".to_owned()), Digest::of(b"c"))
            ]
        );
        let foreign = third.replacen("\"size\":3", "\"size\":3,\"platform\":{\"os\":\"o\"}", 1);
        let foreign = foreign.replacen('{', "{\"annotations\":{\"of\":\"the index\"},", 1);
        let fourth = add_entry(Some(foreign.as_bytes()), &entry("d", None)).expect("written");
        assert!(fourth.contains("platform"), "{fourth}");
        assert!(fourth.contains("the index"), "{fourth}");
        let fifth = add_entry(Some(fourth.as_bytes()), &entry("d", None)).expect("written");
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
            let error = parse_index(text.as_bytes()).expect_err(text);
            assert!(error.contains(part), "{text}: {error}");
        }
        assert_eq!(check_layout_file(LAYOUT_FILE_TEXT.as_bytes()), Ok(()));
        for text in ["", "{}", "{\"imageLayoutVersion\":\"2.0.0\"}"] {
            assert!(check_layout_file(text.as_bytes()).is_err(), "{text}");
        }
    }
}
