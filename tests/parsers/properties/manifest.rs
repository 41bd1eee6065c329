//! A manifest: its text as a document, compared with `serde_json` if it is JSON, and the parsed manifest.

use super::PERMIT;
use spec::document::{self, DocumentProblem, Format, Node, Place, Value};
use spec::manifest::{BlockDocuments, parse_with, resolved};

/// The first byte selects the encoding of the text. A refusal has a position in the text; an
/// accepted document has one written form, which is parsed to the same value.
pub(crate) fn check(bytes: &[u8]) {
    let Some((kind, text)) = bytes.split_first() else {
        return;
    };
    let format = match kind % 4 {
        0 | 1 => Format::Yaml,
        2 => Format::Json,
        _ => Format::FrontMatter,
    };
    let root = match document::parse(&PERMIT, text, format) {
        Ok(root) => root,
        Err(error) => {
            let is_placeless = matches!(error.problem, DocumentProblem::TooLarge { .. });
            assert!(is_placeless || error.place.is_some(), "{error:?}");
            if let Some(place) = error.place {
                check_place(text, place);
            }
            assert!(!error.to_string().contains(char::is_control), "{error}");
            return;
        }
    };
    check_node(text, &root, 0);
    if format == Format::Json {
        check_json(text, &root);
    }
    check_manifest(text, &root);
}

/// A position is in the text or at its end.
fn check_place(text: &[u8], place: Place) {
    // YAML also ends a line at a single carriage return.
    let lines = text
        .iter()
        .filter(|byte| matches!(byte, b'\n' | b'\r'))
        .count()
        + 1;
    assert!(
        0 < place.line && place.line as usize <= lines + 1,
        "{place}"
    );
    assert!(
        0 < place.column && place.column as usize <= text.len() + 2,
        "{place}"
    );
}

fn check_node(text: &[u8], node: &Node, depth: usize) {
    assert!(depth <= document::DEPTH_MAX);
    check_place(text, node.place);
    match &node.value {
        Value::List(items) => items
            .iter()
            .for_each(|item| check_node(text, item, depth + 1)),
        Value::Map(entries) => {
            for (at, (key, item)) in entries.iter().enumerate() {
                check_place(text, key.place);
                let is_new = entries[..at]
                    .iter()
                    .all(|(other, _)| other.name != key.name);
                assert!(is_new, "a name twice");
                check_node(text, item, depth + 1);
            }
        }
        Value::Number(written) => {
            // A number may be larger than a double: it is refused where a number is required.
            let number: Result<f64, _> = written.parse();
            assert!(number.is_ok_and(|number| !number.is_nan()), "{written}");
            let is_plain = |byte: u8| byte.is_ascii_digit() || b"+-.eE".contains(&byte);
            assert!(written.bytes().all(is_plain), "{written}");
        }
        Value::Null | Value::Bool(_) | Value::Text(_) => (),
    }
}

/// The other parser reads the same value.
fn check_json(text: &[u8], root: &Node) {
    let Ok(ours) = root.to_json() else {
        return;
    };
    let text = text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(text);
    let theirs: serde_json::Value = serde_json::from_slice(text).expect("JSON");
    assert_eq!(ours, theirs);
}

fn check_manifest(text: &[u8], root: &Node) {
    let blocks = BlockDocuments::default();
    let parsed = parse_with(root, "manifest.yaml", &blocks);
    assert_eq!(parsed.manifest.is_none(), !parsed.errors.is_empty());
    for error in &parsed.errors {
        if let Some(place) = error.place {
            check_place(text, place);
        }
        assert!(!error.to_string().contains(char::is_control), "{error}");
    }
    let Some(manifest) = parsed.manifest else {
        return;
    };
    let written = resolved(root, &manifest, &blocks);
    let again = document::parse(&PERMIT, written.to_string().as_bytes(), Format::Json);
    let again = again.expect("the resolved form is a document");
    let second = parse_with(&again, "manifest.json", &blocks);
    assert_eq!(second.errors, [], "{written}");
    let other = second.manifest.expect("a manifest");
    assert_eq!(resolved(&again, &other, &blocks), written);
    assert_eq!(
        (other.kind, &other.id, &other.name),
        (manifest.kind, &manifest.id, &manifest.name)
    );
    assert_eq!(other.run, manifest.run);
    assert_eq!(other.env_passthrough, manifest.env_passthrough);
}
