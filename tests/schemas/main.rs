//! The published schemas agree with the parsers, and a table explains each difference from the
//! schemas of the specifications.

#![expect(
    clippy::expect_used,
    clippy::panic,
    reason = "test code: a failure is a panic"
)]

mod agreement;
mod editor;
mod published;
mod vectors;

use std::process::Command;
use std::sync::LazyLock;

use jsonschema::Validator;

use runner::cli::schema;
use runner::cli::schema::SchemaName;
use serde_json::Value;
use spec::document::{self, Format};
use spec::host_config;

use agreement::{MANIFEST, assert_agreement, errors, validator};
use spec::parse_permit::ParsePermit;

/// For texts of these tests.
pub(crate) const PERMIT: ParsePermit = ParsePermit::for_trusted_text();

/// The schemas of the two kinds of configuration files.
static CONFIGURATION: LazyLock<[Validator; 2]> =
    LazyLock::new(|| [SchemaName::Config, SchemaName::Policy].map(validator));

/// Schemas of documents that people write.
const WRITTEN: [(&str, SchemaName); 4] = [
    ("manifest", SchemaName::Manifest),
    ("sandbox", SchemaName::Sandbox),
    ("config", SchemaName::Config),
    ("policy", SchemaName::Policy),
];

fn schema_of(name: SchemaName) -> Value {
    serde_json::from_str(&schema::text(name)).expect("JSON")
}

fn runner(words: &[&str]) -> (Option<i32>, String, String) {
    let output = Command::new(support::runner())
        .args(words)
        .env_clear()
        .env("HOME", "/nonexistent")
        .output()
        .expect("the program starts");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("text");
    (
        output.status.code(),
        text(output.stdout),
        text(output.stderr),
    )
}

#[test]
fn every_schema_is_a_schema_that_the_program_prints_and_its_id_names_no_host() {
    for (name, schema_name) in WRITTEN {
        let schema = schema_of(schema_name);
        assert!(jsonschema::meta::is_valid(&schema), "{name}");
        assert_eq!(schema["$id"], format!("urn:runner:schema:{name}"));
        assert_eq!(
            schema["$schema"],
            "https://json-schema.org/draft/2020-12/schema"
        );
        let (code, stdout, _) = runner(&["schema", name]);
        assert_eq!(code, Some(0));
        assert_eq!(stdout, schema::text(schema_name), "{name}");
    }
    for name in [
        "report", "doctor", "plan", "check", "lock", "history", "ps", "events",
    ] {
        let (_, stdout, _) = runner(&["schema", name]);
        let schema: serde_json::Value = serde_json::from_str(&stdout).expect("JSON");
        assert_eq!(schema["$id"], format!("urn:runner:schema:{name}"));
    }
    let (code, stdout, stderr) = runner(&["schema", "manifets"]);
    assert_eq!((code, stdout.as_str()), (Some(125), ""));
    for word in [
        "manifest", "sandbox", "config", "policy", "report", "doctor", "plan", "check", "lock",
        "history", "ps",
    ] {
        assert!(stderr.contains(word), "{stderr}");
    }
}

#[test]
fn every_property_of_a_schema_is_described() {
    fn walk(name: &str, schema: &Value, undescribed: &mut Vec<String>) {
        match schema {
            Value::Object(entries) => {
                for (key, value) in entries {
                    let is_map = key == "properties" || key == "$defs";
                    for (property, value) in value.as_object().into_iter().flatten() {
                        let described = value["description"]
                            .as_str()
                            .is_some_and(|text| !text.is_empty());
                        // Conditions repeat properties that are described at their definition.
                        let is_condition = name.contains("/allOf/") || name.contains("/anyOf/");
                        if is_map && !described && !is_condition {
                            undescribed.push(format!("{name}/{key}/{property}"));
                        }
                    }
                    walk(&format!("{name}/{key}"), value, undescribed);
                }
            }
            Value::Array(items) => {
                for (index, item) in items.iter().enumerate() {
                    walk(&format!("{name}/{index}"), item, undescribed);
                }
            }
            _ => (),
        }
    }
    let mut undescribed = Vec::new();
    for (name, schema_name) in WRITTEN {
        walk(name, &schema_of(schema_name), &mut undescribed);
    }
    assert!(undescribed.is_empty(), "{undescribed:#?}");
}

#[test]
fn two_schemas_say_the_same_of_the_same_block() {
    let manifest = schema_of(SchemaName::Manifest);
    let sandbox = schema_of(SchemaName::Sandbox);
    for (name, definition) in sandbox["$defs"].as_object().expect("definitions") {
        assert_eq!(&manifest["$defs"][name], definition, "{name}");
    }
    let (mut config, mut policy) = (schema_of(SchemaName::Config), schema_of(SchemaName::Policy));
    for key in ["$id", "title", "description"] {
        assert_ne!(config[key], policy[key], "{key}");
        config[key] = Value::Null;
        policy[key] = Value::Null;
    }
    assert_eq!(config, policy);
}

#[test]
fn the_examples_of_the_specifications_are_accepted_or_refused_as_decided() {
    let sandbox_schema = validator(SchemaName::Sandbox);
    let mut wrong = Vec::new();
    for vector in vectors::own() {
        let found = vector
            .refusal
            .as_ref()
            .map_or("accepted", |refusal| refusal.code());
        if vector.result.as_deref() != Some(found) {
            wrong.push(format!(
                "{}: {:?} was expected, found {found}: {:?}",
                vector.title(),
                vector.result,
                vector.refusal.as_ref().map(ToString::to_string)
            ));
        }
        let judgements = [
            vector
                .document
                .as_ref()
                .map(|document| errors(&MANIFEST, document)),
            vector
                .sandbox
                .as_ref()
                .map(|block| errors(&sandbox_schema, block)),
        ];
        for errors in judgements.into_iter().flatten() {
            let accepts = vector.refusal.is_none() || vector.schema_accepts;
            if errors.is_empty() != accepts {
                wrong.push(format!("{}: the schema says {errors:#?}", vector.title()));
            }
        }
        if vector.refusal.is_none() && vector.schema_accepts {
            wrong.push(format!(
                "{}: `schema: accepts` is for refused ones",
                vector.title()
            ));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn the_schema_says_of_every_conformance_vector_what_the_parser_says() {
    for vector in vectors::conformance() {
        if let Some(document) = &vector.document {
            assert_agreement(&vector.title(), document, vector.refusal.as_ref());
        }
    }
}

/// Parses a configuration file and validates it with the schema; `None` if it is not a document.
fn configuration_errors(text: &str) -> Option<Vec<String>> {
    let root = if text
        .lines()
        .all(|line| line.is_empty() || line.starts_with('#'))
    {
        Value::Null
    } else {
        let root = document::parse(&PERMIT, text.as_bytes(), Format::Yaml).ok()?;
        root.to_json().ok()?
    };
    let found = CONFIGURATION
        .each_ref()
        .map(|validator| errors(validator, &root));
    assert_eq!(found[0], found[1]);
    let [errors, _] = found;
    Some(errors)
}

#[test]
fn a_configuration_file_is_refused_where_it_is_wrong_and_the_schema_agrees() {
    let mut wrong = Vec::new();
    for item in vectors::data("vectors/config.yaml")
        .as_array()
        .expect("a list")
    {
        let text = item["text"].as_str().expect("text");
        let parsed = host_config::parse("f", text.as_bytes());
        let judged = configuration_errors(text);
        let Some(says) = item["says"].as_str() else {
            if let Err(error) = parsed {
                wrong.push(format!("{text:?}: {error}"));
            }
            if judged.as_ref().is_none_or(|errors| !errors.is_empty()) {
                wrong.push(format!("{text:?}: the schema says {judged:?}"));
            }
            continue;
        };
        let Err(error) = parsed else {
            wrong.push(format!("{text:?}: accepted"));
            continue;
        };
        let told = format!("{error} | {}", error.hint.as_deref().unwrap_or_default());
        let place = format!("f:{}", item["at"].as_str().expect("a place"));
        let is_one_line = !told.contains('\n') && !told.contains("at line");
        if !told.starts_with(&place) || !told.contains(says) || !is_one_line {
            wrong.push(format!("{text:?}: {told}"));
        }
        let accepts = item["schema"] == "accepts";
        if judged.is_some_and(|errors| errors.is_empty() != accepts) {
            wrong.push(format!(
                "{text:?}: the schema and the parser differ: {told}"
            ));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn the_documented_configuration_is_accepted_and_names_every_key() {
    let page = include_str!("../../docs/configuration.md");
    let (_, rest) = page.split_once("```yaml\n").expect("an example");
    let (example, _) = rest.split_once("```").expect("its end");
    host_config::parse("example", example.as_bytes()).expect("accepted");
    assert_eq!(configuration_errors(example), Some(Vec::new()));
    let root = document::parse(&PERMIT, example.as_bytes(), Format::Yaml).expect("YAML");
    let document = root.to_json().expect("JSON");
    let keys = |value: &Value| -> Vec<String> {
        let map = value.as_object().expect("a map");
        map.keys().cloned().collect()
    };
    let schema = schema_of(SchemaName::Config);
    let mut known = keys(&schema["properties"]);
    let mut written = keys(&document);
    known.sort();
    written.sort();
    assert_eq!(known, written);
}
