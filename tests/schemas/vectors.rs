//! The manifests for schemas and parser: data files, each a list of items.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use spec::document::{self, Format};
use spec::manifest::{self, ManifestError};

use crate::PERMIT;
use support::source_path;

/// One manifest and its expected result.
pub(crate) struct Vector {
    /// The data file, below `tests/`.
    pub(crate) file: String,
    pub(crate) name: String,
    /// The manifest, unless its text is not a document.
    pub(crate) document: Option<Value>,
    /// Only the block, if the text is that of a SANDBOX.md.
    pub(crate) sandbox: Option<Value>,
    /// The refusal of the parser.
    pub(crate) refusal: Option<ManifestError>,
    /// `accepted`, or the code of the refusal; only if the data states it.
    pub(crate) result: Option<String>,
    /// Whether the data states that the schema accepts what the parser refuses.
    pub(crate) schema_accepts: bool,
    /// Why a published schema disagrees: an id of `reasons.yaml`.
    pub(crate) why: Option<String>,
}

impl Vector {
    /// File and name.
    pub(crate) fn title(&self) -> String {
        format!("{}: {}", self.file, self.name)
    }
}

/// `tests/PATH` of this tree.
pub(crate) fn tests_path(path: &str) -> PathBuf {
    source_path("tests").join(path)
}

/// A data file as JSON.
pub(crate) fn data(path: &str) -> Value {
    let text = std::fs::read(tests_path(path)).unwrap_or_else(|error| panic!("{path}: {error}"));
    document::parse(&PERMIT, &text, Format::Yaml)
        .and_then(|root| root.to_json())
        .unwrap_or_else(|error| panic!("tests/{path}:{:?}: {error}", error.place))
}

/// The data files below `tests/FOLDER`, sorted; empty without such a folder.
fn files(folder: &str) -> Vec<String> {
    let Ok(entries) = std::fs::read_dir(tests_path(folder)) else {
        return Vec::new();
    };
    let mut files: Vec<String> = entries
        .map(|entry| entry.expect("an entry").file_name())
        .filter_map(|name| name.into_string().ok())
        .filter(|name| Path::new(name).extension().is_some_and(|end| end == "yaml"))
        .map(|name| format!("{folder}/{name}"))
        .collect();
    files.sort();
    files
}

fn items(path: &str) -> Vec<Value> {
    match data(path) {
        Value::Array(items) => items,
        other => panic!("tests/{path}: a list was expected: {other}"),
    }
}

/// The examples of the specifications, and our own vectors.
pub(crate) fn own() -> Vec<Vector> {
    let mut files = files("vectors/spec-examples");
    files.push("vectors/probes.yaml".to_owned());
    files
        .iter()
        .flat_map(|file| items(file).into_iter().map(|item| own_vector(file, &item)))
        .collect()
}

fn own_vector(file: &str, item: &Value) -> Vector {
    for key in item.as_object().expect("a map").keys() {
        let known = ["name", "section", "text", "as", "result", "schema", "why"];
        assert!(known.contains(&key.as_str()), "{file}: unknown key {key}");
    }
    let text = |key: &str| item[key].as_str().map(str::to_owned);
    let name = text("name").unwrap_or_else(|| panic!("{file}: no name: {item}"));
    let written = text("text").unwrap_or_else(|| panic!("{file}: no text: {name}"));
    let mut vector = judged(file, &name, &written, item["as"] == "sandbox");
    vector.result = text("result");
    vector.schema_accepts = item["schema"] == "accepts";
    vector.why = text("why");
    vector
}

/// The manifests of the conformance suite; empty without it.
pub(crate) fn conformance() -> Vec<Vector> {
    files("conformance")
        .iter()
        .flat_map(|file| {
            items(file)
                .into_iter()
                .filter_map(|item| conformance_vector(file, &item))
        })
        .collect()
}

fn conformance_vector(file: &str, item: &Value) -> Option<Vector> {
    let name = item["name"].as_str()?;
    match &item["manifest"] {
        Value::String(text) => Some(judged(file, name, text, false)),
        document @ Value::Object(_) => Some(judged(file, name, &document.to_string(), false)),
        _ => None,
    }
}

/// The result of the parser for a text: YAML, JSON, or front matter if it starts with `---`.
fn judged(file: &str, name: &str, text: &str, is_sandbox: bool) -> Vector {
    let format = match text {
        text if text.starts_with("---") => Format::FrontMatter,
        text if text.starts_with("{\"") => Format::Json,
        _ => Format::Yaml,
    };
    let block = document::parse(&PERMIT, text.as_bytes(), format).and_then(|root| root.to_json());
    let (document, sandbox, refusal) = match block {
        Err(_) => {
            let parsed = manifest::parse(&PERMIT, text.as_bytes(), format, "manifest");
            (None, None, Some(parsed.expect_err(name)))
        }
        Ok(block) if is_sandbox => {
            let document = json!({ "sandbox": block });
            let parsed = manifest::parse(
                &PERMIT,
                document.to_string().as_bytes(),
                Format::Json,
                "manifest",
            );
            (Some(document), Some(block), parsed.err())
        }
        Ok(document) => {
            let parsed = manifest::parse(&PERMIT, text.as_bytes(), format, "manifest");
            (Some(document), None, parsed.err())
        }
    };
    Vector {
        file: file.to_owned(),
        name: name.to_owned(),
        document,
        sandbox,
        refusal,
        result: None,
        schema_accepts: false,
        why: None,
    }
}
