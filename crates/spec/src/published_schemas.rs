//! Compares the files of `schemas/` with the types that they are generated from.

use std::path::Path;

use schemars::transform::{RecursiveTransform, Transform as _};
use schemars::{JsonSchema, Schema, schema_for};
use serde_json::{Value, json};

use crate::check::CheckReport;
use crate::diagnosis::Diagnosis;
use crate::events::Event;
use crate::history::{HistoryLine, RunListing};
use crate::host_config::Statement;
use crate::manifest;
use crate::plan_report::PlanReport;
use crate::report::Report;
use crate::sandboxes::{CommandResult, SandboxListing};
use crate::source_built::SourceBuilt;
use crate::why_report::WhyReport;
use support::golden::assert_golden;

fn check<T: JsonSchema>(name: &str) {
    check_schema(&schema_for!(T), name);
}

fn check_schema(schema: &Schema, name: &str) {
    let mut generated = serde_json::to_string_pretty(schema).expect("a schema");
    generated.push('\n');
    check_text(&generated, name);
}

fn check_text(generated: &str, name: &str) {
    let schemas = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../schemas");
    assert_golden(&schemas.join(format!("{name}.schema.json")), generated);
}

#[test]
fn the_schema_of_the_report_is_current() {
    check::<Report>("report");
}

#[test]
fn the_schema_of_check_is_current() {
    check::<CheckReport>("check");
}

#[test]
fn the_schema_of_doctor_is_current() {
    check::<Diagnosis>("doctor");
}

#[test]
fn the_schema_of_the_plan_is_current() {
    check::<PlanReport>("plan");
}

#[test]
fn the_schema_of_why_is_current() {
    check::<WhyReport>("why");
}

#[test]
fn the_schema_of_source_build_is_current() {
    check::<SourceBuilt>("source-build");
}

#[test]
fn the_schemas_of_the_history_are_current() {
    let mut schema = schema_for!(HistoryLine<'_>);
    // With an id of its own, its pointers to other definitions would lead nowhere.
    let report = schema.pointer_mut("/$defs/Report");
    let report = report.and_then(Value::as_object_mut).expect("a schema");
    assert!(report.remove("$id").is_some());
    check_schema(&schema, "history");
    check::<RunListing>("ps");
}

#[test]
fn the_schema_of_the_list_of_sandboxes_is_current() {
    check::<SandboxListing>("sandboxes");
    check::<CommandResult>("command");
}

#[test]
fn the_schema_of_the_events_is_current() {
    check::<Event<'_>>("events");
}

#[test]
fn the_schemas_of_manifest_and_sandbox_are_current() {
    check_text(&manifest::schema::of_manifest(), "manifest");
    check_text(&manifest::schema::of_sandbox(), "sandbox");
}

/// Removes `null` from the types of optional keys: a key without a value is refused.
fn remove_null(schema: &mut Schema) {
    if let Some(Value::Array(types)) = schema.get_mut("type") {
        types.retain(|name| name != "null");
        if let [only] = types.as_slice() {
            let only = only.clone();
            schema.insert("type".to_owned(), only);
        }
    }
    if let Some(Value::Array(schemas)) = schema.get_mut("anyOf") {
        schemas.retain(|schema| schema["type"] != "null");
        if let [Value::Object(only)] = schemas.as_slice() {
            let only = only.clone();
            schema.remove("anyOf");
            for (key, value) in only {
                schema.insert(key, value);
            }
        }
    }
}

#[test]
fn the_schemas_of_configuration_and_policy_are_current() {
    for (name, title, description) in [
        (
            "config",
            "Configuration of the host",
            "/etc/runner/config.yaml, and `runner/config.yaml` in $XDG_CONFIG_HOME or ~/.config. \
             Every key is optional. A later file can only tighten what an earlier file denies.",
        ),
        (
            "policy",
            "The file of --policy",
            "It has the keys of the configuration and is merged last: it can only tighten what the \
             configuration denies.",
        ),
    ] {
        let mut schema = schema_for!(Statement);
        RecursiveTransform(remove_null).transform(&mut schema);
        schema.insert("$id".to_owned(), json!(format!("urn:runner:schema:{name}")));
        schema.insert("title".to_owned(), json!(title));
        schema.insert("description".to_owned(), json!(description));
        // A file with only comments is `null` in YAML.
        schema.insert("type".to_owned(), json!(["object", "null"]));
        check_schema(&schema, name);
    }
}
