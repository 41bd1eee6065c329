//! `runner source pull`, `inspect`, `list` and `gc` on the command line.

use std::process::Command;

use serde_json::{Value, json};

use crate::ground::{Artifact, Ground, config, snapshot, source, source_manifest};
use support::runner;

struct Said {
    code: i32,
    stdout: String,
    stderr: String,
}

fn said(ground: &Ground, words: &[&str]) -> Said {
    let output = Command::new(runner())
        .arg("source")
        .args(words)
        .env("RUNNER_OPT_OCI_DIRECTORY", ground.path("oci"))
        .output()
        .expect("the runner starts");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Said {
        code: output.status.code().expect("an exit code"),
        stdout: text(&output.stdout),
        stderr: text(&output.stderr),
    }
}

fn found(ground: &Ground, words: &[&str]) -> Value {
    let said = said(ground, &[words, &["--json"]].concat());
    assert_eq!((said.code, &*said.stderr), (0, ""), "{}", said.stdout);
    serde_json::from_str(&said.stdout).expect("a document")
}

/// A ground with a layout, and its `oci:` reference.
fn with_layout(artifact: &Artifact) -> (Ground, String) {
    let ground = Ground::new();
    artifact.write(&ground.path("layout"), Some("latest"));
    let place = format!("oci:{}", ground.path("layout").display());
    (ground, place)
}

#[test]
fn a_source_is_pulled_listed_inspected_and_collected() {
    let artifact = source(1, 40_000);
    let (ground, place) = with_layout(&artifact);
    let digest = artifact.digest().to_string();
    let pulled = found(&ground, &["pull", &place]);
    let facts = json!([
        pulled["digest"],
        pulled["found"],
        pulled["files"],
        pulled["bytes"]
    ]);
    assert_eq!(facts, json!([digest, "pulled", 2, 40_005]));
    assert_eq!(pulled["config"]["name"], "backend");
    assert_eq!(pulled["warnings"], json!([]));
    let pinned = format!("{place}@{digest}");
    assert_eq!(found(&ground, &["pull", &pinned])["found"], "store");

    let listing = found(&ground, &["list"]);
    let layer = artifact.layer();
    assert_eq!(listing["sources"][0]["digest"], digest);
    assert_eq!(listing["sources"][0]["layer_bytes"], layer.bytes);
    assert_eq!(listing["sources"][0]["layer_in_store"], true);
    let used = listing["used_bytes"].as_u64().expect("a number");
    assert!(layer.bytes + 40_000 < used && used < 200_000, "{used}");
    let name = listing["sources"][0]["name"].as_str().expect("a name");

    std::fs::rename(ground.path("layout"), ground.path("moved")).expect("renamed");
    let moved = ground.path("moved");
    for what in [name, moved.to_str().expect("plain")] {
        let inspected = found(&ground, &["inspect", what]);
        assert_eq!(inspected["digest"], digest, "{inspected}");
        assert_eq!(inspected["layer"]["digest"], layer.digest.to_string());
        assert_eq!(
            inspected["annotations"]["org.opencontainers.image.title"],
            "backend"
        );
    }
    let removed = found(&ground, &["gc"]);
    assert_eq!(removed, json!({ "blobs": 0, "trees": 0, "bytes": 0 }));
    let removed = found(&ground, &["gc", "--all"]);
    assert_eq!(
        (&removed["blobs"], &removed["trees"]),
        (&json!(3), &json!(1))
    );
    assert_eq!(found(&ground, &["list"])["sources"], json!([]));
}

#[test]
fn a_source_is_removed_with_its_unshared_blobs() {
    let (config, layer) = (config(1), snapshot(&[("a", b"a")]));
    let manifest = source_manifest(&config, &layer);
    let mut noted = manifest.clone();
    noted["annotations"] = json!({ "note": "another manifest of the same layer" });
    let ground = Ground::new();
    let place = |name: &str, manifest: &Value| {
        let artifact = Artifact::default()
            .with_blob(&config)
            .with_blob(&layer)
            .with_manifest(manifest);
        artifact.write(&ground.path(name), Some("latest"));
        let place = format!("oci:{}", ground.path(name).display());
        found(&ground, &["pull", &place]);
    };
    place("one", &manifest);
    place("two", &noted);
    let listing = found(&ground, &["list"]);
    let names: Vec<&str> = listing["sources"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|source| source["name"].as_str().expect("a name"))
        .collect();
    assert_eq!(names.len(), 2, "{listing}");
    let removed = found(&ground, &["rm", names[0]]);
    assert_eq!(
        (&removed["blobs"], &removed["trees"]),
        (&json!(1), &json!(0))
    );
    let left = found(&ground, &["list"]);
    assert_eq!(left["sources"].as_array().map(Vec::len), Some(1));
    assert_eq!(left["sources"][0]["layer_in_store"], true);
    let again = said(&ground, &["rm", names[0]]);
    assert_eq!((again.code, &*again.stdout), (125, ""));
    assert!(
        again.stderr.contains("(source_not_stored)"),
        "{}",
        again.stderr
    );
    let removed = found(&ground, &["rm", names[1]]);
    assert_eq!(
        (&removed["blobs"], &removed["trees"]),
        (&json!(3), &json!(1))
    );
    assert_eq!(found(&ground, &["list"])["used_bytes"], 0);
}

#[test]
fn what_is_printed_for_people_names_the_digest_first() {
    let artifact = source(1, 40_000);
    let (ground, place) = with_layout(&artifact);
    let digest = artifact.digest().to_string();
    let pulled = said(&ground, &["pull", &place]);
    assert_eq!(pulled.stdout.lines().next(), Some(&*digest));
    assert!(
        pulled.stdout.contains("source: backend:1.2.3"),
        "{}",
        pulled.stdout
    );
    assert!(
        pulled.stdout.contains("unpacked: 2 files, 40 KiB, pulled"),
        "{}",
        pulled.stdout
    );
    let inspected = said(&ground, &["inspect", &place]);
    assert_eq!(inspected.stdout.lines().next(), Some(&*digest));
    assert!(
        inspected.stdout.contains("made of: directory"),
        "{}",
        inspected.stdout
    );
    let listed = said(&ground, &["list"]);
    assert!(listed.stdout.starts_with(&digest), "{}", listed.stdout);
    assert!(listed.stdout.contains("1 source; "), "{}", listed.stdout);
    let removed = said(&ground, &["gc", "--all"]);
    assert!(
        removed.stdout.starts_with("removed 3 blobs and 1 tree"),
        "{}",
        removed.stdout
    );
}

#[test]
fn refusals_have_a_code_a_hint_and_exit_code_125() {
    let (config, layer) = (config(1), snapshot(&[("a", b"a")]));
    let mut manifest = source_manifest(&config, &layer);
    manifest["layers"] = json!([]);
    let artifact = Artifact::default()
        .with_blob(&config)
        .with_blob(&layer)
        .with_manifest(&manifest);
    let (ground, place) = with_layout(&artifact);
    for (words, code) in [
        (&["pull", &*place][..], "artifact_layers"),
        (&["inspect", &place], "artifact_layers"),
        (
            &["pull", "registry.test/team/backend:v1"],
            "tag_not_allowed",
        ),
        (&["pull", "registry.test/team/backend"], "tag_not_allowed"),
        (&["pull", "backend:1.2.3"], "reference_invalid"),
        (&["inspect", "backend:1.2.3"], "reference_invalid"),
        (&["pull", "oci:/nowhere/at/all"], "layout_unusable"),
    ] {
        let said = said(&ground, words);
        assert_eq!(
            (said.code, &*said.stdout),
            (125, ""),
            "{words:?}: {}",
            said.stderr
        );
        assert!(
            said.stderr.contains(&format!("({code})")),
            "{words:?}: {}",
            said.stderr
        );
    }
    let tag = said(&ground, &["pull", "registry.test/team/backend:v1"]);
    assert!(tag.stderr.contains("--allow-tags"), "{}", tag.stderr);
}

#[test]
fn a_wrong_file_count_is_reported() {
    let layer = snapshot(&[("a", b"a")]);
    let (ground, place) = with_layout(&crate::ground::source_of(&layer, 9));
    let told = said(&ground, &["pull", &place]);
    assert_eq!(told.code, 0);
    assert!(
        told.stderr.contains("(source_file_count)"),
        "{}",
        told.stderr
    );
}
