//! Parsing of references in the JSON of the service.

use serde_json::Value;

use crate::github::reference::is_commit;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct GitObject {
    pub(super) sha: String,
    /// An annotated tag must be resolved further.
    pub(super) kind: ObjectKind,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ObjectKind {
    Commit,
    Tag,
    Other(String),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum RefLookup {
    Found(GitObject),
    /// No exact match. The names start with the requested one.
    NotFound(Vec<String>),
}

/// Parses the response to `git/refs/{wanted}`: one reference, or all with this prefix. Only an
/// exact match counts. `wanted` is `tags/NAME` or `heads/NAME`.
pub(super) fn parse_refs(document: &Value, wanted: &str) -> Result<RefLookup, String> {
    let full = format!("refs/{wanted}");
    let items = match document {
        Value::Array(items) => items.as_slice(),
        one => std::slice::from_ref(one),
    };
    let mut others = Vec::new();
    for item in items {
        let name = item.get("ref").and_then(Value::as_str);
        let name = name.ok_or("a reference has no `ref`")?;
        if name == full {
            return parse_object(item).map(RefLookup::Found);
        }
        others.extend(short(name));
    }
    Ok(RefLookup::NotFound(others))
}

/// Parses the `object` of a reference or of an annotated tag.
pub(super) fn parse_object(item: &Value) -> Result<GitObject, String> {
    let field = |name: &str| {
        let value = item.get("object").and_then(|object| object.get(name));
        value.and_then(Value::as_str).map(str::to_owned)
    };
    let sha = field("sha")
        .filter(|sha| is_commit(sha))
        .ok_or("an object has no `sha` of 40 hexadecimal digits")?;
    let kind = match field("type").ok_or("an object has no `type`")?.as_str() {
        "commit" => ObjectKind::Commit,
        "tag" => ObjectKind::Tag,
        other => ObjectKind::Other(other.chars().take(20).collect()),
    };
    Ok(GitObject { sha, kind })
}

fn short(full: &str) -> Option<String> {
    let name = full.strip_prefix("refs/")?;
    let (_, name) = name.split_once('/')?;
    Some(name.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const SHA: &str = "4f3a2b1c4f3a2b1c4f3a2b1c4f3a2b1c4f3a2b1c";

    fn reference(name: &str, kind: &str) -> Value {
        json!({"ref": name, "object": {"type": kind, "sha": SHA}})
    }

    #[test]
    fn only_an_exact_match_counts() {
        let pointed = GitObject {
            sha: SHA.to_owned(),
            kind: ObjectKind::Commit,
        };
        let exact = reference("refs/tags/v1", "commit");
        let longer = reference("refs/tags/v1.2", "commit");
        let head = reference("refs/heads/v1", "commit");
        for (document, expected) in [
            (exact.clone(), RefLookup::Found(pointed.clone())),
            (json!([longer, exact]), RefLookup::Found(pointed)),
            (
                json!([longer]),
                RefLookup::NotFound(vec!["v1.2".to_owned()]),
            ),
            (longer, RefLookup::NotFound(vec!["v1.2".to_owned()])),
            (head, RefLookup::NotFound(vec!["v1".to_owned()])),
            (json!([]), RefLookup::NotFound(Vec::new())),
        ] {
            assert_eq!(parse_refs(&document, "tags/v1"), Ok(expected), "{document}");
        }
    }

    #[test]
    fn the_type_of_an_object_is_parsed() {
        for (kind, expected) in [
            ("commit", ObjectKind::Commit),
            ("tag", ObjectKind::Tag),
            ("tree", ObjectKind::Other("tree".to_owned())),
        ] {
            let found = parse_object(&reference("x", kind)).expect("well formed");
            assert_eq!(found.kind, expected);
        }
    }

    #[test]
    fn a_document_of_another_shape_is_refused() {
        for document in [
            json!(null),
            json!({}),
            json!([1]),
            json!({"ref": "refs/tags/v1"}),
            json!({"ref": "refs/tags/v1", "object": {"type": "commit"}}),
            json!({"ref": "refs/tags/v1", "object": {"type": "commit", "sha": "../../x"}}),
            json!({"ref": "refs/tags/v1", "object": {"sha": SHA}}),
        ] {
            assert!(parse_refs(&document, "tags/v1").is_err(), "{document}");
        }
    }
}
