//! Unknown keywords of a JSON Schema. JSON Schema ignores them, but they are usually mistakes.

use crate::did_you_mean::nearest;
use crate::document::{Key, Node, Value, excerpt};
use crate::manifest::did_you_mean;

const FOUND_MAX: usize = 20;

/// The keywords of JSON Schema 2020-12, and those that remain from older drafts.
const KEYWORDS: [&str; 60] = [
    "$schema",
    "$id",
    "$ref",
    "$anchor",
    "$dynamicRef",
    "$dynamicAnchor",
    "$vocabulary",
    "$comment",
    "$defs",
    "definitions",
    "dependencies",
    "allOf",
    "anyOf",
    "oneOf",
    "not",
    "if",
    "then",
    "else",
    "dependentSchemas",
    "prefixItems",
    "items",
    "contains",
    "properties",
    "patternProperties",
    "additionalProperties",
    "propertyNames",
    "unevaluatedItems",
    "unevaluatedProperties",
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
    "contentSchema",
];
/// The values of `type`.
const TYPES: [&str; 7] = [
    "array", "boolean", "integer", "null", "number", "object", "string",
];
/// Keywords whose values are schemas or lists of schemas.
const SCHEMAS: [&str; 17] = [
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
    "dependencies",
];
/// Keywords whose values are maps of names to schemas.
const MAPS: [&str; 5] = [
    "properties",
    "patternProperties",
    "$defs",
    "definitions",
    "dependentSchemas",
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
        let items = match &node.value {
            Value::List(items) => {
                open.extend(items.iter().map(|item| (item, false)));
                continue;
            }
            Value::Map(entries) => entries,
            _ => continue,
        };
        for (key, value) in items {
            let name = key.name.as_str();
            if MAPS.contains(&name) {
                if let Value::Map(schemas) = &value.value {
                    open.extend(schemas.iter().map(|(_, schema)| (schema, false)));
                }
            } else if SCHEMAS.contains(&name) {
                open.push((value, false));
            } else if !KEYWORDS.contains(&name) && !name.starts_with("x-") {
                let is_field = is_top && is_declaration(value);
                let advice = match nearest(name, KEYWORDS) {
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

/// Whether a value looks like the declaration of a field: `string`, or `{type: string}`.
fn is_declaration(value: &Node) -> bool {
    match &value.value {
        Value::Text(text) => TYPES.contains(&text.as_str()),
        Value::Map(_) => value.get("type").is_some(),
        _ => false,
    }
}

/// Explains a text at `node`, at the pointer `steps`, if a schema or a list is expected there, and
/// suggests the correct form.
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
    let expected = match *last {
        _ if is_field => "a schema",
        "required" => "a list",
        last if SCHEMAS.contains(&last) => "a schema",
        _ => return None,
    };
    let named = TYPES.into_iter().find(|known| known == text);
    let hint = match expected {
        "a list" => Some(format!("write a list: `[{found}]`")),
        _ => named
            .or_else(|| nearest(text, TYPES))
            .map(|name| format!("write `{{type: {name}}}`")),
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
