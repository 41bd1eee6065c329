//! `runner schema NAME`: the JSON Schemas that this program carries.

use crate::cli::args::SchemaName;

/// The schema of a document, as `schemas/` has it.
#[must_use]
pub fn text(name: SchemaName) -> &'static str {
    match name {
        SchemaName::Manifest => include_str!("../../schemas/manifest.schema.json"),
        SchemaName::Sandbox => include_str!("../../schemas/sandbox.schema.json"),
        SchemaName::Config => include_str!("../../schemas/config.schema.json"),
        SchemaName::Policy => include_str!("../../schemas/policy.schema.json"),
        SchemaName::Report => include_str!("../../schemas/report.schema.json"),
        SchemaName::Doctor => include_str!("../../schemas/doctor.schema.json"),
        SchemaName::Plan => include_str!("../../schemas/plan.schema.json"),
        SchemaName::Lock => include_str!("../../schemas/lock.schema.json"),
        SchemaName::Check => include_str!("../../schemas/check.schema.json"),
        SchemaName::SourceBuild => include_str!("../../schemas/source-build.schema.json"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::check::CheckReport;
    use crate::spec::diagnosis::Diagnosis;
    use crate::spec::plan_report::PlanReport;
    use crate::spec::report::Report;
    use crate::spec::source_built::SourceBuilt;

    fn check(name: SchemaName, file: &str, schema: &schemars::Schema) {
        let mut generated = serde_json::to_string_pretty(schema).expect("a schema");
        generated.push('\n');
        let path = format!("{}/schemas/{file}", env!("CARGO_MANIFEST_DIR"));
        crate::golden::assert_golden(path.as_ref(), &generated);
        // That of another name is printed by no mistake.
        assert!(
            crate::golden::is_updating() || text(name) == generated,
            "{file}"
        );
    }

    #[test]
    fn the_published_schema_of_the_report_is_the_one_of_its_types() {
        let schema = schemars::schema_for!(Report);
        check(SchemaName::Report, "report.schema.json", &schema);
    }

    #[test]
    fn the_published_schema_of_what_check_found_is_the_one_of_its_types() {
        let schema = schemars::schema_for!(CheckReport);
        check(SchemaName::Check, "check.schema.json", &schema);
    }

    #[test]
    fn the_published_schema_of_the_diagnosis_is_the_one_of_its_types() {
        let schema = schemars::schema_for!(Diagnosis);
        check(SchemaName::Doctor, "doctor.schema.json", &schema);
    }

    #[test]
    fn the_published_schema_of_the_plan_is_the_one_of_its_types() {
        let schema = schemars::schema_for!(PlanReport);
        check(SchemaName::Plan, "plan.schema.json", &schema);
    }
    #[test]
    fn the_published_schema_of_what_was_built_is_the_one_of_its_types() {
        let schema = schemars::schema_for!(SourceBuilt);
        check(SchemaName::SourceBuild, "source-build.schema.json", &schema);
    }
}
