//! Unknown keywords of a JSON Schema. JSON Schema ignores them, but they are usually mistakes.

use crate::did_you_mean::nearest;
use crate::document::{Key, Node, Value, excerpt};
use crate::manifest::did_you_mean;

const FOUND_MAX: usize = 20;

/// The values of `type`.
const TYPES: [&str; 7] = [
    "array", "boolean", "integer", "null", "number", "object", "string",
];
/// Keywords whose values are schemas or lists of schemas, with `additionalItems` of older drafts.
const SCHEMAS: [&str; 16] = [
    "allOf",
    "anyOf",
    "oneOf",
    "not",
    "if",
    "then",
    "else",
    "prefixItems",
    "items",
    "contains",
    "additionalProperties",
    "propertyNames",
    "unevaluatedItems",
    "unevaluatedProperties",
    "contentSchema",
    "additionalItems",
];
/// Keywords whose values are maps of names to schemas. `definitions` and `dependencies` are of older
/// drafts; `dependencies` also maps names to lists of names.
const MAPS: [&str; 6] = [
    "properties",
    "patternProperties",
    "$defs",
    "definitions",
    "dependentSchemas",
    "dependencies",
];

/// The other keywords of JSON Schema 2020-12, and `example` of OpenAPI.
const OTHER_KEYWORDS: [&str; 39] = [
    "$schema",
    "$id",
    "$ref",
    "$anchor",
    "$dynamicRef",
    "$dynamicAnchor",
    "$vocabulary",
    "$comment",
    "type",
    "const",
    "enum",
    "multipleOf",
    "maximum",
    "exclusiveMaximum",
    "minimum",
    "exclusiveMinimum",
    "maxLength",
    "minLength",
    "pattern",
    "maxItems",
    "minItems",
    "uniqueItems",
    "maxContains",
    "minContains",
    "maxProperties",
    "minProperties",
    "required",
    "dependentRequired",
    "title",
    "description",
    "default",
    "deprecated",
    "readOnly",
    "writeOnly",
    "examples",
    "example",
    "format",
    "contentEncoding",
    "contentMediaType",
];

/// A keyword that JSON Schema does not have.
#[derive(Debug)]
pub struct UnknownKeyword<'schema> {
    pub key: &'schema Key,
    /// A similar keyword; at the top level, the correct declaration of a field.
    pub advice: Option<String>,
}

/// Finds the unknown keywords of the schema `root`. Keys that start with `x-` are extensions.
#[must_use]
pub fn unknown_keywords(root: &Node) -> Vec<UnknownKeyword<'_>> {
    let mut found = Vec::new();
    let mut open = vec![(root, true)];
    while let Some((node, is_top)) = open.pop() {
        let entries = match &node.value {
            Value::List(items) => {
                open.extend(items.iter().map(|item| (item, false)));
                continue;
            }
            Value::Map(entries) => entries,
            _ => continue,
        };
        for (key, value) in entries {
            let name = key.name.as_str();
            if MAPS.contains(&name) {
                if let Value::Map(schemas) = &value.value {
                    open.extend(schemas.iter().map(|(_, schema)| (schema, false)));
                }
            } else if SCHEMAS.contains(&name) {
                open.push((value, false));
            } else if !OTHER_KEYWORDS.contains(&name) && !name.starts_with("x-") {
                let is_field = is_top && is_declaration(value);
                let known = SCHEMAS.into_iter().chain(MAPS).chain(OTHER_KEYWORDS);
                let advice = match nearest(name, known) {
                    Some(near) => Some(did_you_mean(near)),
                    None if is_field => Some(
                        "declare a field as `{type: object, properties: {NAME: {type: string}}}`"
                            .to_owned(),
                    ),
                    None => None,
                };
                found.push(UnknownKeyword { key, advice });
            }
        }
    }
    found.sort_by_key(|one| one.key.place);
    found.truncate(FOUND_MAX);
    found
}

/// Whether `value` looks like the declaration of a field: `string`, or `{type: string}`.
fn is_declaration(value: &Node) -> bool {
    match &value.value {
        Value::Text(text) => TYPES.contains(&text.as_str()),
        Value::Map(_) => value.get("type").is_some(),
        _ => false,
    }
}

/// Explains a text at `node` if a schema or a list is expected there, and suggests the correct form.
/// `steps` is the pointer to `node`.
#[must_use]
pub fn explain_text(node: &Node, steps: &[&str]) -> Option<(String, Option<String>)> {
    let Value::Text(text) = &node.value else {
        return None;
    };
    let found = excerpt(text);
    let (last, above) = steps.split_last()?;
    // In a map of schemas every key is a field name, even a keyword.
    let is_field = above
        .iter()
        .fold(false, |is_map, step| !is_map && MAPS.contains(step));
    // The index in a list of schemas.
    let is_item = last.parse::<usize>().is_ok()
        && above
            .last()
            .is_some_and(|keyword| SCHEMAS.contains(keyword));
    let (expected, hint) = if !is_field && *last == "required" {
        ("a list", Some(format!("write a list: `[{found}]`")))
    } else if is_field || is_item || SCHEMAS.contains(last) {
        let named = TYPES.into_iter().find(|known| known == text);
        let name = named.or_else(|| nearest(text, TYPES));
        let hint = name.map(|name| format!("write `{{type: {name}}}`"));
        ("a schema", hint)
    } else {
        return None;
    };
    Some((
        format!("found the text `{found}`, expected {expected}"),
        hint,
    ))
}

/// Explains an invalid value of `type` at `node`, and suggests a valid one.
#[must_use]
pub fn explain_type(node: &Node) -> Option<(String, Option<String>)> {
    let Value::Text(text) = &node.value else {
        return None;
    };
    if TYPES.contains(&text.as_str()) {
        return None;
    }
    let found = excerpt(text);
    let near = nearest(text, TYPES).map(did_you_mean);
    Some((
        format!(
            "found the type `{found}`, expected one of {}",
            TYPES.join(", ")
        ),
        near,
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::{Format, parse};
    use crate::parse_permit::PERMIT;

    #[test]
    fn a_text_instead_of_a_schema_is_explained_at_each_place() {
        for (schema, steps, expected) in [
            (r#"{"items": "string"}"#, &["items"][..], Some("a schema")),
            (
                r#"{"allOf": ["string"]}"#,
                &["allOf", "0"],
                Some("a schema"),
            ),
            (
                r#"{"properties": {"required": "string"}}"#,
                &["properties", "required"],
                Some("a schema"),
            ),
            (r#"{"required": "a"}"#, &["required"], Some("a list")),
            (r#"{"enum": ["a"]}"#, &["enum", "0"], None),
        ] {
            let root = parse(&PERMIT, schema.as_bytes(), Format::Json).expect(schema);
            let node = steps.iter().copied().try_fold(&root, Node::child);
            let explained = explain_text(node.expect("a value"), steps);
            let found = explained.map(|(message, _)| message);
            let is_expected = match (&found, expected) {
                (Some(message), Some(expected)) => message.ends_with(expected),
                (found, expected) => found.is_none() && expected.is_none(),
            };
            assert!(is_expected, "{schema}: {found:?}");
        }
    }

    #[test]
    fn names_in_maps_of_schemas_are_not_keywords() {
        for (schema, unknown) in [
            (
                r#"{"properties": {"a": {}}, "dependencies": {"a": ["b"], "c": {}}}"#,
                "",
            ),
            (r#"{"dependencies": {"a": {"requird": ["b"]}}}"#, "requird"),
            (r#"{"not": {"a": {}}}"#, "a"),
            (r#"{"additionalItems": {"enumm": []}}"#, "enumm"),
        ] {
            let root = parse(&PERMIT, schema.as_bytes(), Format::Json).expect(schema);
            let found = unknown_keywords(&root);
            let names: Vec<&str> = found.iter().map(|one| one.key.name.as_str()).collect();
            assert_eq!(names.join(" "), unknown, "{schema}");
        }
    }
}
