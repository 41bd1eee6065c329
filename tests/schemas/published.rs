//! The schemas of the specifications and those of `schemas/`: a table in the docs lists the differences.

use std::fmt::Write as _;

use jsonschema::{Registry, Validator};
use serde_json::{Value, json};

use crate::agreement::{MANIFEST, errors};
use crate::vectors::{self, Vector};
use support::source_path;

const TABLE: &str = "docs/schema-differences.md";

/// Each published schema, and the addresses by which the others refer to it.
const PUBLISHED: [(&str, &[&str]); 7] = [
    (
        "CODE",
        &["https://agentproto.sh/schemas/aip-26/CODE.schema.json"],
    ),
    (
        "IO",
        &[
            "https://agentproto.sh/schemas/aip-16/IO.schema.json",
            "https://agentproto.sh/docs/aip-16/IO.schema.json",
        ],
    ),
    (
        "RUNNER",
        &["https://agentproto.sh/schemas/aip-17/RUNNER.schema.json"],
    ),
    (
        "SANDBOX",
        &["https://agentproto.sh/schemas/aip-36/SANDBOX.schema.json"],
    ),
    (
        "SECRETS",
        &["https://agentproto.sh/schemas/aip-19/SECRETS.schema.json"],
    ),
    (
        "TOOL",
        &["https://agentproto.sh/docs/aip-14/TOOL.schema.json"],
    ),
    (
        "WORKFLOW",
        &["https://agentproto.sh/docs/aip-15/WORKFLOW.schema.json"],
    ),
];
/// Referenced schemas that are not here: they accept everything.
const ABSENT: [&str; 2] = [
    "https://agentproto.sh/schemas/aip-35/STORAGE.schema.json",
    "https://agentproto.sh/schemas/aip-38/POLICY.schema.json",
];

/// Each key of a manifest whose value has a published schema.
const BLOCKS: [(&str, &str); 11] = [
    ("code", "CODE#/$defs/code"),
    ("run", "CODE#/$defs/run"),
    ("runner", "RUNNER#/$defs/runner"),
    ("runtime", "RUNNER#/$defs/runner"),
    ("sandbox", "SANDBOX"),
    ("inputs", "IO#/$defs/inputs"),
    ("outputs", "IO#/$defs/outputs"),
    ("inputsFiles", "IO#/$defs/inputsFiles"),
    ("outputsFiles", "IO#/$defs/outputsFiles"),
    ("approval", "TOOL#/properties/approval"),
    ("timeout_ms", "TOOL#/properties/timeout_ms"),
];

fn published(name: &str) -> Value {
    let path = vectors::tests_path(&format!("vectors/published/{name}.schema.json"));
    let text = std::fs::read_to_string(&path).expect("a published schema");
    serde_json::from_str(&text).expect("JSON")
}

/// The result of all published schemas for a manifest.
fn validator() -> Validator {
    let mut registry = Registry::new();
    for (name, addresses) in PUBLISHED {
        let mut schema = published(name);
        // One text has two addresses; the address is stated here.
        schema.as_object_mut().expect("a map").remove("$id");
        for address in addresses {
            registry = registry.add(*address, schema.clone()).expect("a schema");
        }
    }
    for address in ABSENT {
        registry = registry.add(address, json!({})).expect("a schema");
    }
    let registry = registry.prepare().expect("every reference is known");
    let reference = |target: &str| {
        let (name, pointer) = target.split_once('#').unwrap_or((target, ""));
        let (_, addresses) = PUBLISHED
            .iter()
            .find(|(known, _)| *known == name)
            .expect("a published schema");
        json!({ "$ref": format!("{}#{pointer}", addresses[0]) })
    };
    let properties: serde_json::Map<String, Value> = BLOCKS
        .iter()
        .map(|(key, target)| ((*key).to_owned(), reference(target)))
        .collect();
    let whole = json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "properties": properties,
        "if": { "properties": { "kind": { "const": "code-workspace" } }, "required": ["kind"] },
        "then": reference("CODE#/$defs/codeWorkspaceManifest"),
    });
    jsonschema::options()
        .with_registry(&registry)
        .offline()
        .build(&whole)
        .expect("a schema")
}

/// The reason for a difference: the one that the vector names, else the first that lists the code of the
/// refusal, or the place of an error of the published schema if the runner accepts the document.
fn reason<'reasons>(
    reasons: &'reasons [Value],
    vector: &Vector,
    published_errors: &[String],
    we_accept: bool,
) -> &'reasons Value {
    let lists = |reason: &Value, key: &str, word: &str| {
        let words = reason[key].as_array().into_iter().flatten();
        words.filter_map(Value::as_str).any(|known| known == word)
    };
    let by_vector = |reason: &&Value| vector.why.as_deref() == reason["id"].as_str();
    let by_code = |reason: &&Value| {
        let code = vector.refusal.as_ref().map(|refusal| refusal.code());
        !we_accept && code.is_some_and(|code| lists(reason, "codes", code))
    };
    let by_place = |reason: &&Value| {
        we_accept
            && published_errors.iter().any(|error| {
                let place = error.split(": ").next().unwrap_or_default();
                let mut prefixes = place.match_indices('/').map(|(at, _)| &place[..at]);
                prefixes.any(|prefix| lists(reason, "places", prefix))
                    || lists(reason, "places", place)
            })
    };
    let found = match vector.why {
        Some(_) => reasons.iter().find(by_vector),
        None => reasons
            .iter()
            .find(by_code)
            .or_else(|| reasons.iter().find(by_place)),
    };
    found.unwrap_or_else(|| {
        panic!(
            "{}: the published schemas differ, and no reason of \
             tests/vectors/published/reasons.yaml is named (`why`) or fits: the runner says {:?}, the published schema \
             {published_errors:#?}",
            vector.title(),
            vector.refusal.as_ref().map(ToString::to_string),
        )
    })
}

/// The document, and the vectors that name a reason without a difference.
fn table() -> (String, Vec<String>) {
    let published = validator();
    let reasons = match vectors::data("vectors/published/reasons.yaml") {
        Value::Array(reasons) => reasons,
        other => panic!("a list was expected: {other}"),
    };
    let mut rows = Vec::new();
    let mut idle = Vec::new();
    let mut used: Vec<&str> = Vec::new();
    let (mut count, mut same) = (0, 0);
    for vector in vectors::own().into_iter().chain(vectors::conformance()) {
        let Some(document) = &vector.document else {
            continue;
        };
        count += 1;
        let published_errors = errors(&published, document);
        let own_errors = errors(&MANIFEST, document);
        if published_errors.is_empty() == own_errors.is_empty() {
            same += 1;
            if vector.why.is_some() {
                idle.push(vector.title());
            }
            continue;
        }
        let says = |errors: &[String]| {
            if errors.is_empty() {
                "accept"
            } else {
                "refuse"
            }
        };
        let answer = match &vector.refusal {
            Some(refusal) => format!("{} (`{}`)", says(&own_errors), refusal.code()),
            None => says(&own_errors).to_owned(),
        };
        let reason = reason(&reasons, &vector, &published_errors, own_errors.is_empty());
        let id = reason["id"].as_str().expect("an id");
        used.push(id);
        let row = format!(
            "| {} | {} | {} | {answer} | [{id}](#{id}) |",
            vector.file.rsplit('/').next().unwrap_or_default(),
            vector.name.replace('|', "\\|").replace('\n', " "),
            says(&published_errors),
        );
        rows.push(row);
    }
    let mut text = format!(
        "# Differences to the published schemas\n\n\
         Of {count} manifests, the schemas of the specifications (`tests/vectors/published/`) and those of \
         this program (`schemas/`) both accept or both refuse {same}. The other {} are listed here, with \
         the number of cases for each reason. `RUNNER_UPDATE_GOLDEN=1 cargo test --test schemas` writes \
         this file; the reasons are in `tests/vectors/published/reasons.yaml`.\n\n## Reasons\n",
        rows.len()
    );
    for reason in &reasons {
        let id = reason["id"].as_str().expect("an id");
        let why = reason["why"].as_str().expect("a reason");
        let cases = used.iter().filter(|used| **used == id).count();
        if cases == 0 {
            idle.push(format!("reasons.yaml: {id}"));
        }
        write!(text, "\n### {id}\n\n{} ({cases})\n", why.trim()).expect("written");
    }
    text.push_str(
        "\n## Vectors\n\n| file | vector | published | this program | reason |\n| --- | --- | --- | --- | --- |\n",
    );
    for row in rows {
        text.push_str(&row);
        text.push('\n');
    }
    (text, idle)
}

#[test]
fn every_difference_to_the_published_schemas_is_in_the_table_with_its_reason() {
    let (text, idle) = table();
    assert!(idle.is_empty(), "a reason that nothing needs: {idle:#?}");
    support::golden::assert_golden(&source_path(TABLE), &text);
}

#[test]
fn the_published_schemas_are_schemas() {
    for (name, _) in PUBLISHED {
        assert!(jsonschema::meta::is_valid(&published(name)), "{name}");
    }
}
