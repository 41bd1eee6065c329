//! Compares the outcome of a vector with its expectation.

use serde_json::Value;

use crate::ground;
use crate::outcome::{Found, Outcome, Told};
use crate::vector::{Expect, Vector};

/// Maximum number of bytes of a file that a difference shows.
const SHOWN_BYTES: usize = 80;

/// Every difference, as text.
pub(crate) fn differences(vector: &Vector, outcome: &Outcome) -> Vec<String> {
    let expect = &vector.expect;
    let mut found = Vec::new();
    of_error(expect, outcome, &mut found);
    // The only outcome is that a value was validated.
    if expect.error.is_none() && expect.valid.is_none() && outcome.error.is_some() {
        return found;
    }
    if let Some(expected) = &expect.errors {
        let expected: Vec<String> = expected
            .iter()
            .map(|error| format!("{} at {}", error.error, error.at))
            .collect();
        let told: Vec<String> = outcome
            .errors
            .iter()
            .map(|told| format!("{} at {}", told.code, told.at.as_deref().unwrap_or("")))
            .collect();
        if expected != told {
            found.push(format!(
                "expected the errors {expected:#?}, found {told:#?}"
            ));
        }
    }
    if let Some(warnings) = &expect.warnings {
        let sorted = |codes: &[String]| {
            let mut codes = codes.to_vec();
            codes.sort();
            codes
        };
        if sorted(warnings) != sorted(&outcome.warnings) {
            let told = &outcome.warnings;
            found.push(format!(
                "expected the warnings {warnings:?}, found {told:?}"
            ));
        }
    }
    if let Some(tree) = &expect.tree {
        of_tree(tree, outcome, &mut found);
    }
    let whole = [
        ("digest", &expect.digest, &outcome.digest),
        ("form", &expect.form, &outcome.form),
        ("path", &expect.path, &outcome.path),
    ];
    for (what, expected, is) in whole {
        if expected.is_some() && expected != is {
            found.push(format!("expected the {what} {expected:?}, found {is:?}"));
        }
    }
    if expect.argv.is_some() && expect.argv != outcome.argv {
        let (expected, is) = (&expect.argv, &outcome.argv);
        found.push(format!("expected {expected:?}, found {is:?}"));
    }
    if expect.valid.is_some() && expect.valid != outcome.valid {
        let (expected, is) = (expect.valid, outcome.valid);
        found.push(format!("expected valid {expected:?}, found {is:?}"));
    }
    let parts = [
        ("manifest", &expect.manifest, &outcome.manifest),
        ("provenance", &expect.provenance, &outcome.provenance),
        ("asks", &expect.asks, &outcome.asks),
        ("handle", &expect.handle, &outcome.handle),
        ("resolved", &expect.resolved, &outcome.resolved),
    ];
    for (what, expected, is) in parts {
        match (expected, is) {
            (None, _) => (),
            (Some(_), None) => found.push(format!("there is no {what}")),
            (Some(expected), Some(is)) => of_part(what, expected, is, &mut found),
        }
    }
    for pointer in &expect.absent {
        let whole = outcome.manifest.as_ref().or(outcome.handle.as_ref());
        match whole {
            None => found.push("there is neither manifest nor handle".to_owned()),
            Some(whole) => {
                if let Some(is) = whole.pointer(pointer) {
                    found.push(format!("{pointer} should not be there, found {is}"));
                }
            }
        }
    }
    found
}

fn of_error(expect: &Expect, outcome: &Outcome, found: &mut Vec<String>) {
    match (&expect.error, &outcome.error) {
        (None, Some(told)) if expect.valid.is_none() => {
            found.push(format!("refused: {}: {}", told.code, told.message));
        }
        (Some(code), None) => found.push(format!("accepted, expected {code}")),
        (Some(code), Some(told)) if *code != told.code => {
            found.push(format!(
                "expected {code}, found {}: {}",
                told.code, told.message
            ));
        }
        (_, Some(told)) => of_message(expect, told, found),
        (None, None) => (),
    }
}

fn of_message(expect: &Expect, told: &Told, found: &mut Vec<String>) {
    if expect.at.is_some() && expect.at != told.at {
        found.push(format!(
            "expected at {:?}, found {:?}: {}",
            expect.at, told.at, told.message
        ));
    }
    for name in &expect.names {
        if !told.message.contains(name.as_str()) {
            found.push(format!(
                "the message does not name {name:?}: {}",
                told.message
            ));
        }
    }
    for name in &expect.names_not {
        if told.message.contains(name.as_str()) {
            found.push(format!("the message repeats {name:?}: {}", told.message));
        }
    }
}

fn of_tree(tree: &serde_json::Map<String, Value>, outcome: &Outcome, found: &mut Vec<String>) {
    let expected = ground::expected(tree);
    for (path, what) in &expected {
        let name = path.escape_ascii();
        match outcome.tree.get(path) {
            None => found.push(format!("`{name}` is missing")),
            Some(is) if is != what => {
                found.push(format!(
                    "`{name}`: expected {}, found {}",
                    shown(what),
                    shown(is)
                ));
            }
            Some(_) => (),
        }
    }
    for (path, is) in &outcome.tree {
        if !expected.contains_key(path) {
            found.push(format!(
                "`{}` is too much: {}",
                path.escape_ascii(),
                shown(is)
            ));
        }
    }
}

fn shown(what: &Found) -> String {
    let cut = |bytes: &[u8]| {
        bytes[..bytes.len().min(SHOWN_BYTES)]
            .escape_ascii()
            .to_string()
    };
    match what {
        Found::File { mode, bytes } => {
            format!("a file, {mode:04o}, {} bytes `{}`", bytes.len(), cut(bytes))
        }
        Found::Symlink { target } => format!("a link to `{}`", cut(target)),
        Found::EmptyDirectory => "an empty directory".to_owned(),
    }
}

/// Maps: every expected key. Lists: the same length and order; `egress` in any order.
fn of_part(at: &str, expected: &Value, is: &Value, found: &mut Vec<String>) {
    match (expected, is) {
        (Value::Object(expected), Value::Object(is)) => {
            for (key, value) in expected {
                let below = format!("{at}/{key}");
                match is.get(key) {
                    Some(is) => of_part(&below, value, is, found),
                    None => found.push(format!("{below} is missing, expected {value}")),
                }
            }
        }
        (Value::Array(expected), Value::Array(is)) if expected.len() == is.len() => {
            let (mut expected, mut is) = (expected.clone(), is.clone());
            if at.ends_with("/egress") {
                expected.sort_by_key(Value::to_string);
                is.sort_by_key(Value::to_string);
            }
            for (index, (expected, is)) in expected.iter().zip(&is).enumerate() {
                of_part(&format!("{at}/{index}"), expected, is, found);
            }
        }
        _ if expected == is => (),
        _ => found.push(format!("{at}: expected {expected}, found {is}")),
    }
}
