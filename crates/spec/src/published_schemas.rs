//! Generates the schemas of `schemas/` from their types.

use std::path::Path;

use schemars::{JsonSchema, schema_for};

use crate::check::CheckReport;
use crate::diagnosis::Diagnosis;
use crate::golden::assert_golden;
use crate::plan_report::PlanReport;
use crate::report::Report;
use crate::source_built::SourceBuilt;

fn check<T: JsonSchema>(name: &str) {
    let mut generated = serde_json::to_string_pretty(&schema_for!(T)).expect("a schema");
    generated.push('\n');
    let schemas = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../schemas");
    assert_golden(&schemas.join(format!("{name}.schema.json")), &generated);
}

#[test]
fn the_published_schema_of_the_report_is_the_one_of_its_types() {
    check::<Report>("report");
}

#[test]
fn the_published_schema_of_what_check_found_is_the_one_of_its_types() {
    check::<CheckReport>("check");
}

#[test]
fn the_published_schema_of_the_diagnosis_is_the_one_of_its_types() {
    check::<Diagnosis>("doctor");
}

#[test]
fn the_published_schema_of_the_plan_is_the_one_of_its_types() {
    check::<PlanReport>("plan");
}

#[test]
fn the_published_schema_of_what_was_built_is_the_one_of_its_types() {
    check::<SourceBuilt>("source-build");
}
