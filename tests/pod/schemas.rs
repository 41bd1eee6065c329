//! The manifests and the published JSON schemas of Kubernetes (`reduce_schemas.py`).

use serde_json::{Value, json};

use crate::manifest::documents;

fn schema(kind: &str) -> Value {
    let group = match kind {
        "Job" => "batch.v1",
        "DaemonSet" => "apps.v1",
        "Secret" => "core.v1",
        other => panic!("no schema of {other}"),
    };
    let mut schema: Value = serde_json::from_str(include_str!("schemas.json")).expect("JSON");
    schema["$ref"] = json!(format!("#/$defs/io.k8s.api.{group}.{kind}"));
    schema
}

fn is_valid(document: &Value) -> bool {
    let kind = document["kind"].as_str().expect("a kind");
    let validator = jsonschema::validator_for(&schema(kind)).expect("a schema");
    validator.is_valid(document)
}

#[test]
fn the_manifests_are_valid_by_the_published_schemas_and_not_with_a_misspelt_field() {
    for (file, kinds) in [
        ("job.yaml", &["Job"][..]),
        ("worker.yaml", &["Secret", "DaemonSet"]),
    ] {
        let documents = documents(file);
        let found: Vec<&Value> = documents.iter().map(|document| &document["kind"]).collect();
        assert_eq!(found, kinds, "{file}");
        for document in documents {
            assert!(is_valid(&document), "{file}: {document:#}");
            let pod = document.pointer("/spec/template/spec");
            for field in pod.and_then(Value::as_object).into_iter().flatten() {
                let mut misspelt = document.clone();
                let pod = misspelt.pointer_mut("/spec/template/spec");
                let pod = pod.and_then(Value::as_object_mut).expect("a pod");
                let value = pod.remove(field.0).expect("the field");
                pod.insert(format!("{}s", field.0), value);
                assert!(!is_valid(&misspelt), "{file}: {}s", field.0);
            }
        }
    }
}

#[test]
fn a_value_of_another_type_is_refused() {
    let mut documents = documents("job.yaml");
    let host_users = documents[0].pointer_mut("/spec/template/spec/hostUsers");
    *host_users.expect("the field") = json!("false");
    assert!(!is_valid(&documents[0]));
}
