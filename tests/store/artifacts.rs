//! What a manifest must contain, and what is refused before a request or unpacking.

use serde_json::{Value, json};
use sources::oci::error::OciError;
use sources::oci::observer::NoObserver;
use sources::oci::pull::{self, Tags};
use sources::oci::push::StoredArtifact;
use spec::digest::Digest;
use spec::oci::media;
use spec::oci::reference::Which;

use crate::ground::{
    Artifact, Fake, Ground, Sends, config, descriptor, limits, snapshot, source, source_manifest,
};

fn pulled(ground: &Ground, fake: &Fake, which: &Which) -> Result<pull::Snapshot, OciError> {
    let store = ground.store();
    pull::snapshot(&store, fake, which, Tags::Refused, &limits(), &NoObserver)
}

/// The manifest of a source after `change`, its blobs, and the result of pulling it.
fn refused(change: impl FnOnce(&mut Value)) -> (String, String) {
    let error = refusal(change);
    (error.code().to_owned(), error.to_string())
}

fn refusal(change: impl FnOnce(&mut Value)) -> OciError {
    let layer = snapshot(&[("a", b"a")]);
    let config = config(1);
    let mut manifest = source_manifest(&config, &layer);
    change(&mut manifest);
    let artifact = Artifact::default()
        .with_blob(&config)
        .with_blob(&layer)
        .with_blob(b"{}")
        .with_blob(b"[]")
        .with_manifest(&manifest);
    let ground = Ground::new();
    let fake = Fake::new(&artifact, Sends::Whole);
    let error = pulled(&ground, &fake, &artifact.which()).expect_err("refused");
    assert!(
        !ground.path("oci/1/snapshots/1/trees").exists(),
        "nothing is unpacked"
    );
    error
}

#[test]
fn a_document_that_is_a_manifest_and_an_index_is_not_sent_on() {
    let ground = Ground::new();
    let store = ground.store();
    let (config, layer) = (config(1), snapshot(&[("a", b"a")]));
    let mut manifest = source_manifest(&config, &layer);
    for bytes in [&config, &layer] {
        store.put(bytes).expect("put");
    }
    let put = |manifest: &Value| {
        let bytes = serde_json::to_vec(manifest).expect("JSON");
        store.put(&bytes).expect("put")
    };
    let found = StoredArtifact::find(&store, &put(&manifest)).expect("a source");
    assert!(found.is_some());
    manifest["manifests"] = json!([]);
    let error = StoredArtifact::find(&store, &put(&manifest)).expect_err("refused");
    assert_eq!(error.code(), "artifact_invalid", "{error}");
}

#[test]
fn a_manifest_of_another_artifact_type_is_refused() {
    let image = media::LAYER_GZIP;
    let empty = |text: &[u8]| descriptor(media::EMPTY, text);
    type Case<'text> = (&'text str, &'text str, &'text dyn Fn(&mut Value));
    let cases: [Case<'_>; 15] = [
        ("artifact_wrong_type", "image.v1", &|m| {
            m["artifactType"] = json!("application/image.v1")
        }),
        ("artifact_wrong_type", media::SOURCE_CONFIG, &|m| {
            m.as_object_mut().expect("an object").remove("artifactType");
        }),
        ("artifact_layers", "found 0 layers", &|m| {
            m["layers"] = json!([])
        }),
        ("artifact_layers", "found 2 layers", &|m| {
            m["layers"] = json!([m["layers"][0], m["layers"][0]]);
        }),
        ("artifact_layer_type", image, &|m| {
            m["layers"][0]["mediaType"] = json!(image)
        }),
        ("artifact_config_type", media::IMAGE_CONFIG, &|m| {
            m["config"]["mediaType"] = json!(media::IMAGE_CONFIG);
        }),
        ("artifact_config_type", media::EMPTY, &|m| {
            m["config"] = empty(b"[]")
        }),
        ("artifact_config_invalid", "kind", &|m| {
            m["config"] = descriptor(media::SOURCE_CONFIG, b"{}");
        }),
        ("artifact_config_invalid", "list", &|m| {
            m["config"] = descriptor(media::SOURCE_CONFIG, b"[]");
        }),
        ("artifact_too_large", "its layer", &|m| {
            m["layers"][0]["size"] = json!(1_u64 << 50)
        }),
        ("artifact_too_large", "its config", &|m| {
            m["config"]["size"] = json!(1_u64 << 40)
        }),
        ("artifact_digest", "sha512", &|m| {
            m["layers"][0]["digest"] = json!(format!("sha512:{}", "a".repeat(128)));
        }),
        ("artifact_invalid", "of an index", &|m| {
            m["manifests"] = json!([])
        }),
        ("artifact_invalid", "schemaVersion is 1", &|m| {
            m["schemaVersion"] = json!(1)
        }),
        ("artifact_invalid", media::INDEX, &|m| {
            m["mediaType"] = json!(media::INDEX)
        }),
    ];
    for (code, part, change) in cases {
        let (found, message) = refused(change);
        assert_eq!(found, code, "{message}");
        assert!(message.contains(part), "{part}: {message}");
    }
}

#[test]
fn only_the_limit_of_layers_is_one_of_the_configuration() {
    let layer = refusal(|m| m["layers"][0]["size"] = json!(1_u64 << 50));
    assert!(layer.hint().is_some_and(|hint| hint.contains("oci.layer")));
    let config = refusal(|m| m["config"]["size"] = json!(1_u64 << 40));
    assert_eq!(config.hint(), None);
}

#[test]
fn a_config_of_another_kind_is_refused() {
    let other = br#"{"kind":"agent","name":"a","version":"1","sourceType":"git"}"#;
    let layer = snapshot(&[("a", b"a")]);
    let artifact = Artifact::default()
        .with_blob(other)
        .with_blob(&layer)
        .with_manifest(&source_manifest(other, &layer));
    let fake = Fake::new(&artifact, Sends::Whole);
    let error = pulled(&Ground::new(), &fake, &artifact.which()).expect_err("refused");
    assert_eq!(error.code(), "artifact_config_invalid", "{error}");
    assert!(error.to_string().contains("agent"), "{error}");
}

#[test]
fn a_document_that_is_not_json_is_refused_by_name() {
    let mut artifact = Artifact::default();
    let digest = Digest::of(b"<html>");
    artifact.manifests.insert(digest, b"<html>".to_vec());
    artifact.top = Some(digest);
    let fake = Fake::new(&artifact, Sends::Whole);
    let error = pulled(&Ground::new(), &fake, &artifact.which()).expect_err("refused");
    assert_eq!(error.code(), "artifact_invalid");
    assert!(error.to_string().contains(&digest.to_string()), "{error}");
}

#[test]
fn the_empty_descriptor_is_not_fetched() {
    let layer = snapshot(&[("a", b"a")]);
    let mut manifest = source_manifest(b"{}", &layer);
    manifest["config"]["mediaType"] = json!(media::EMPTY);
    let artifact = Artifact::default()
        .with_blob(&layer)
        .with_manifest(&manifest);
    let fake = Fake::new(&artifact, Sends::Whole);
    let snapshot = pulled(&Ground::new(), &fake, &artifact.which()).expect("pulled");
    assert_eq!((snapshot.config, fake.asked()), (None, (1, 1)));
}

#[test]
fn an_artifact_without_a_type_has_that_of_its_config() {
    let (config, layer) = (config(1), snapshot(&[("a", b"a")]));
    let mut manifest = source_manifest(&config, &layer);
    manifest["config"]["mediaType"] = json!(media::SOURCE);
    manifest
        .as_object_mut()
        .expect("an object")
        .remove("artifactType");
    let artifact = Artifact::default()
        .with_blob(&config)
        .with_blob(&layer)
        .with_manifest(&manifest);
    let fake = Fake::new(&artifact, Sends::Whole);
    let snapshot = pulled(&Ground::new(), &fake, &artifact.which()).expect("pulled");
    assert_eq!(snapshot.config.expect("a config").name, "backend");
}

#[test]
fn a_tag_is_refused_before_anything_is_asked_and_followed_where_that_is_allowed() {
    let artifact = source(1, 5_000);
    let ground = Ground::new();
    let fake = Fake::new(&artifact, Sends::Whole);
    for tag in [Which::Tag("v1".to_owned()), Which::Unnamed] {
        let error = pulled(&ground, &fake, &tag).expect_err("refused");
        assert_eq!(error.code(), "tag_not_allowed");
        assert!(error.hint().expect("a hint").contains("--allow-tags"));
        assert_eq!(fake.asked(), (0, 0));
    }
    let store = ground.store();
    let tag = Which::Tag("v1".to_owned());
    for asked in [1, 2] {
        let snapshot = pull::snapshot(&store, &fake, &tag, Tags::Allowed, &limits(), &NoObserver);
        assert_eq!(snapshot.expect("pulled").digest, artifact.digest());
        assert_eq!(fake.asked().0, asked, "a tag is asked for each time");
    }
    let named = store.named("registry.test/team/backend:v1").expect("read");
    assert_eq!(named, Some(artifact.digest()));
}

#[test]
fn an_index_is_followed_to_the_manifest_for_this_machine() {
    let source = source(1, 5_000);
    let bytes = source.manifests[&source.digest()].clone();
    let here = match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    };
    let platform = |architecture: &str| {
        let mut entry = descriptor(media::MANIFEST, &bytes);
        entry["platform"] = json!({ "os": "linux", "architecture": architecture });
        entry
    };
    let mut other = descriptor(media::MANIFEST, b"another");
    other["platform"] = json!({ "os": "linux", "architecture": "s390x" });
    let index = |manifests: Value| json!({ "schemaVersion": 2, "mediaType": media::INDEX, "manifests": manifests });
    let both = source
        .clone()
        .with_manifest(&index(json!([other, platform(here)])));
    let fake = Fake::new(&both, Sends::Whole);
    let ground = Ground::new();
    let first = pulled(&ground, &fake, &both.which()).expect("pulled");
    assert_eq!(first.digest, source.digest());
    let again = pulled(&ground, &fake, &both.which()).expect("pulled");
    assert!(again.from_store && !first.from_store);
    assert_eq!(fake.asked(), (2, 2));

    let none = source.clone().with_manifest(&index(json!([other])));
    let fake = Fake::new(&none, Sends::Whole);
    let error = pulled(&Ground::new(), &fake, &none.which()).expect_err("refused");
    assert_eq!(error.code(), "artifact_no_platform");
    assert!(error.to_string().contains("linux/s390x"), "{error}");
    assert!(
        error.to_string().contains(&format!("linux/{here}")),
        "{error}"
    );

    let inner = both.manifests[&both.digest()].clone();
    let nested = both
        .clone()
        .with_manifest(&index(json!([descriptor(media::INDEX, &inner)])));
    let fake = Fake::new(&nested, Sends::Whole);
    let error = pulled(&Ground::new(), &fake, &nested.which()).expect_err("refused");
    assert_eq!(error.code(), "artifact_invalid", "{error}");
}
