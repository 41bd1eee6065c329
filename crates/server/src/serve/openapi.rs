//! The OpenAPI document, made from the routes and the types of their documents.

use schemars::SchemaGenerator;
use schemars::generate::SchemaSettings;
use serde_json::{Map, Value, json};

use super::parameters::ParameterKind;
use super::routes::{Content, Route};
use super::runs::RUN_ID;
use super::types::{ErrorDocument, NAME};

/// OpenAPI 3.1, whose schemas are those of JSON Schema 2020-12.
pub(super) fn document(routes: &[Route]) -> Value {
    let mut settings = SchemaSettings::draft2020_12();
    settings.definitions_path = "/components/schemas".into();
    let mut generator = SchemaGenerator::new(settings);
    let mut paths = Map::new();
    for route in routes {
        let operation = operation(route, &mut generator);
        // OpenAPI has no name for the rest of a path.
        let path = route.path.replace("{*", "{");
        let methods = paths.entry(path).or_insert_with(|| json!({}));
        methods[route.method.as_str().to_ascii_lowercase()] = operation;
    }
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "runner serve",
            "version": env!("CARGO_PKG_VERSION"),
            "description": "Sandboxes that stay, commands and files in them; runs of bundles.",
        },
        "paths": paths,
        "components": {
            "schemas": generator.take_definitions(true),
            "securitySchemes": { "token": { "type": "http", "scheme": "bearer" } },
        },
        "security": [{}, { "token": [] }],
    })
}

fn operation(route: &Route, generator: &mut SchemaGenerator) -> Value {
    let in_path = route.path.split('{').skip(1);
    let in_path = in_path.filter_map(|part| part.trim_start_matches('*').split('}').next());
    let in_path = in_path.map(|name| {
        let schema = match name {
            "id" => json!({ "type": "integer", "minimum": 0 }),
            "run" => json!({ "type": "string", "pattern": RUN_ID }),
            "key" | "path" => json!({ "type": "string" }),
            "port" => json!({ "type": "integer", "minimum": 1, "maximum": 65535 }),
            _ => json!({ "type": "string", "pattern": NAME }),
        };
        json!({ "name": name, "in": "path", "required": true, "schema": schema })
    });
    let in_query = route.query.iter().map(|parameter| {
        json!({
            "name": parameter.name,
            "in": "query",
            "required": parameter.kind == ParameterKind::Path,
            "description": parameter.description,
            "schema": match parameter.kind {
                ParameterKind::Path => json!({ "type": "string", "pattern": "^/", "maxLength": 4095 }),
                ParameterKind::Text => json!({ "type": "string" }),
                ParameterKind::Switch => json!({ "type": "boolean" }),
                ParameterKind::Mode => json!({ "type": "string", "pattern": "^0?[0-7]{1,3}$" }),
            },
        })
    });
    let mut answers = Map::new();
    for (status, content) in &route.answers {
        let answer = answers
            .entry(status.as_str())
            .or_insert_with(|| json!({ "description": status.canonical_reason() }));
        merge(answer, content_of(*content, generator));
    }
    let error = generator.subschema_for::<ErrorDocument>();
    answers.insert(
        "default".to_owned(),
        json!({ "description": "It failed.", "content": { "application/json": { "schema": error } } }),
    );
    let mut operation = json!({
        "operationId": route.id,
        "summary": route.summary,
        "parameters": in_path.chain(in_query).collect::<Vec<_>>(),
        "responses": answers,
    });
    if let Some(content) = content_of(route.request, generator) {
        operation["requestBody"] = json!({ "required": true, "content": content });
    }
    operation
}

fn merge(answer: &mut Value, content: Option<Value>) {
    let Some(Value::Object(content)) = content else {
        return;
    };
    for (name, schema) in content {
        answer["content"][name] = schema;
    }
}

fn content_of(content: Content, generator: &mut SchemaGenerator) -> Option<Value> {
    match content {
        Content::Nothing => None,
        Content::Any => Some(json!({ "*/*": {} })),
        Content::Json(schema) => {
            Some(json!({ "application/json": { "schema": schema(generator) } }))
        }
        Content::Bytes => Some(json!({ "application/octet-stream": {} })),
        Content::Tar => Some(json!({ "application/x-tar": {} })),
        Content::Text => Some(json!({ "text/plain": { "schema": { "type": "string" } } })),
        Content::JsonOrForm(schema) => {
            let document = schema(generator);
            let form = json!({
                "type": "object",
                "properties": { "run": document, "bundle": {} },
                "patternProperties": { "^file\\.": {} },
                "additionalProperties": false,
            });
            Some(json!({
                "application/json": { "schema": document },
                "multipart/form-data": { "schema": form },
            }))
        }
        Content::Events(event) => {
            let event = event(generator);
            // OpenAPI 3.2 calls it `itemSchema`.
            let events = json!({ "schema": { "type": "string" }, "x-itemSchema": event });
            Some(json!({ "application/x-ndjson": events, "text/event-stream": events }))
        }
    }
}
