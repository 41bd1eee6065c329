//! Invalid and hostile source artifacts are refused before the body starts.

use serde_json::json;
use spec::oci::media;

use crate::artifact::Artifact;
use crate::host::{Host, one, said};
use support::tar::Tar;

fn good() -> Artifact {
    Artifact::of(&[("a", "a\n")])
}

/// Each artifact with the code of its refusal.
fn wrong() -> Vec<(Artifact, &'static str)> {
    let tar = || Tar::new().file("a", b"a");
    vec![
        (
            good().with(|manifest| manifest["artifactType"] = json!("application/vnd.other.v1")),
            "artifact_wrong_type",
        ),
        (
            good().with(|manifest| {
                manifest["layers"] = json!([manifest["layers"][0], manifest["layers"][0]]);
            }),
            "artifact_layers",
        ),
        (
            good().with(|manifest| manifest["layers"] = json!([])),
            "artifact_layers",
        ),
        (
            good().with(|manifest| manifest["layers"][0]["mediaType"] = json!(media::LAYER_GZIP)),
            "artifact_layer_type",
        ),
        (
            Artifact::of_tar(tar().symlink("b", "a")),
            "artifact_layer_refused",
        ),
        (
            Artifact::of_tar(tar().symlink("b", "/etc/passwd")),
            "artifact_layer_refused",
        ),
        (
            Artifact::of_tar(tar().hard_link("b", "a")),
            "artifact_layer_refused",
        ),
        (
            Artifact::of_tar(tar().with(b'3', b"null", 0, |_| ())),
            "artifact_layer_refused",
        ),
        (
            Artifact::of_tar(tar().with(b'6', b"fifo", 0, |_| ())),
            "artifact_layer_refused",
        ),
        (
            Artifact::of_tar(tar().file("../b", b"b")),
            "artifact_layer_refused",
        ),
    ]
}

#[test]
fn an_invalid_source_is_refused_before_the_body_starts() {
    for (artifact, code) in wrong() {
        let host = Host::with(&artifact);
        let bundle = host.bundle(&one(artifact.nowhere(), ""), "");
        let done = host.exec(&[], &bundle);
        done.assert_error("refused", code);
        assert_eq!(done.text(), "", "the body ran");
        let message = done.report["error"]["message"].as_str().expect("text");
        assert!(message.contains("workspace source source-0"), "{message}");
        assert!(host.trees().is_empty(), "nothing of it is kept");
        assert!(done.report["workspace_sources"] == json!([]));
    }
}

#[test]
fn an_invalid_optional_source_is_not_mounted() {
    for (artifact, _) in wrong() {
        let host = Host::with(&artifact);
        let bundle = host.bundle(
            &one(artifact.nowhere(), "required: false"),
            "ls /workspace 2>/dev/null || echo nothing",
        );
        let done = host.exec(&[], &bundle);
        assert_eq!(said(done.assert_exited(0)), "nothing\n");
        let source = &done.report["workspace_sources"][0];
        assert_eq!(
            (&source["found"], &source["view"]),
            (&"absent".into(), &json!(null))
        );
        let warnings = done.report["warnings"].to_string();
        assert!(warnings.contains("source_absent"), "{warnings}");
        let done = host.exec(&["--strict"], &bundle);
        assert_eq!((done.outcome(), done.text().as_str()), ("refused", ""));
    }
}

#[test]
fn manifest_errors_are_refused_for_optional_sources_too() {
    let host = Host::new();
    for (reference, code) in [
        ("registry.test/sources/backend:1", "source_tag_refused"),
        ("registry.test/sources/backend", "source_tag_refused"),
        ("backend:1", "source_reference_invalid"),
        (
            "registry.test/sources/backend@sha256:abc",
            "source_reference_invalid",
        ),
        ("docker://registry.test/a/b", "source_reference_invalid"),
    ] {
        let bundle = host.bundle(&one(reference, "required: false"), "");
        let done = host.exec(&[], &bundle);
        done.assert_error("refused", code);
        assert_eq!(done.text(), "");
    }
}

#[test]
fn a_source_that_is_larger_than_the_host_allows_is_refused() {
    let artifact = Artifact::of(&[("a", &"a".repeat(100_000)), ("b", "b")]);
    let host = Host::with(&artifact);
    let bundle = host.bundle(&one(artifact.nowhere(), ""), "");
    for (policy, code) in [
        ("oci: {layer: 100}\n", "artifact_too_large"),
        ("oci: {unpacked: 99999}\n", "artifact_layer_refused"),
        ("oci: {entries: 1}\n", "artifact_layer_refused"),
    ] {
        let policy = host.policy(policy);
        let done = host.exec(&["--policy", &policy], &bundle);
        done.assert_error("refused", code);
        assert!(host.trees().is_empty());
    }
}
