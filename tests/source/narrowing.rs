//! Parts of a source: --sparse, sparse checkouts, submodules, and size limits.

use serde_json::json;

use super::artifacts::Source;
use support::git::git;

const FILES: [(&str, &str); 5] = [
    ("services/api/a", "a"),
    ("services/web/b", "b"),
    ("shared/c", "c"),
    ("shared-not/d", "d"),
    ("top", "t"),
];

#[test]
fn sparse_takes_paths_and_what_is_below_them() {
    let source = Source::with(&FILES);
    let artifact = source.build(&["--sparse", "shared/", "--sparse", "./services/api"]);
    assert_eq!(
        artifact.files.names(),
        [
            "services/",
            "services/api/",
            "services/api/a",
            "shared/",
            "shared/c"
        ]
    );
    assert_eq!(
        artifact.config()["snapshot"]["sparse"],
        json!(["services/api", "shared"])
    );
    let other_order = source.build(&["--sparse", "services/api", "--sparse", "shared"]);
    assert_eq!(artifact.digest(), other_order.digest());
    let one = source.build(&["--sparse", "top"]);
    assert_eq!(one.files.names(), ["top"]);
    source
        .try_build(&["--sparse", "service"])
        .assert_refused("source_missing", &["--sparse names `service`"]);
    source
        .try_build(&["--sparse", "../x"])
        .assert_refused("usage", &["--sparse"]);
    source.file(".staxignore", "shared/\n");
    source
        .try_build(&["--sparse", "shared"])
        .assert_refused("source_sparse_empty", &["`shared`"]);
}

#[test]
fn a_sparse_checkout_is_recorded_with_its_patterns() {
    let source = Source::checkout(&FILES);
    source.git(&["sparse-checkout", "set", "--no-cone", "/shared/", "/top"]);
    let artifact = source.build(&["no-version"]);
    assert_eq!(artifact.files.names(), ["shared/", "shared/c", "top"]);
    assert_eq!(
        artifact.config()["snapshot"]["sparse"],
        json!(["/shared/", "/top"])
    );
    assert_eq!(artifact.report["warnings"], json!([]));
    source.git(&[
        "sparse-checkout",
        "set",
        "--cone",
        "--sparse-index",
        "services/api",
    ]);
    let artifact = source.build(&["no-version"]);
    assert_eq!(
        artifact.files.names(),
        ["services/", "services/api/", "services/api/a", "top"]
    );
    assert_eq!(artifact.report["warnings"], json!([]));
}

/// A checkout with the submodule `libs/sub`.
fn with_submodule() -> (Source, Source) {
    let sub = Source::checkout(&[("s", "s"), ("deep/er", "e")]);
    let source = Source::checkout(&[("a", "a"), ("libs/l", "l")]);
    let from = sub.directory();
    let url = from.to_str().expect("plain");
    source.git(&[
        "-c",
        "protocol.file.allow=always",
        "submodule",
        "--quiet",
        "add",
        url,
        "libs/sub",
    ]);
    source.commit();
    (source, sub)
}

#[test]
fn submodules_are_left_out_unless_they_are_asked_for() {
    let (source, _sub) = with_submodule();
    let artifact = source.build(&["no-version", "--strict"]);
    assert_eq!(
        artifact.files.names(),
        [".gitmodules", "a", "libs/", "libs/l"]
    );
    assert_eq!(artifact.config()["snapshot"]["submodules"], "excluded");
    assert_eq!(artifact.report["warnings"], json!([]));
    let artifact = source.build(&["no-version", "--submodules"]);
    assert_eq!(
        artifact.files.names(),
        [
            ".gitmodules",
            "a",
            "libs/",
            "libs/l",
            "libs/sub/",
            "libs/sub/deep/",
            "libs/sub/deep/er",
            "libs/sub/s"
        ]
    );
    assert_eq!(artifact.config()["snapshot"]["submodules"], "included");
    assert_eq!(artifact.report["warnings"], json!([]));
}

#[test]
fn what_differs_in_a_submodule_is_reported() {
    let (source, _sub) = with_submodule();
    let within = source.directory().join("libs/sub");
    std::fs::write(within.join("s"), "changed").expect("written");
    std::fs::write(within.join("new"), "n").expect("written");
    let artifact = source.build(&["no-version", "--submodules"]);
    assert!(artifact.warning("source_dirty").ends_with(": `libs/sub/s`"));
    assert!(
        artifact
            .warning("source_untracked")
            .ends_with(": `libs/sub/new`")
    );
    // Another commit than the one that the outer commit names.
    git(&within, &["add", "."]);
    git(&within, &["commit", "-qm", "later"]);
    let artifact = source.build(&["no-version", "--submodules"]);
    assert!(artifact.warning("source_dirty").ends_with(": `libs/sub`"));
    let libs = source.directory().join("libs");
    let artifact = source.artifact(source.command(&libs, &["--submodules"]));
    assert!(artifact.warning("source_dirty").ends_with(": `libs/sub`"));
    // Excluded files cannot differ.
    let artifact = source.build(&["no-version"]);
    assert_eq!(artifact.report["warnings"], json!([]));
}

#[test]
fn a_submodule_is_a_checkout_of_its_own() {
    let (source, sub) = with_submodule();
    let folder = source.directory().join("libs/sub");
    let artifact = source.artifact(source.command(&folder, &[]));
    let config = artifact.config();
    assert_eq!(config["origin"]["commit"], sub.git(&["rev-parse", "HEAD"]));
    assert_eq!(artifact.files.names(), ["deep/", "deep/er", "s"]);
    assert_eq!(artifact.report["warnings"], json!([]));
}

#[test]
fn a_submodule_that_is_not_checked_out_is_reported() {
    let (source, _sub) = with_submodule();
    let copy = source.ground.path("copy");
    std::fs::create_dir(&copy).expect("made");
    let from = source.directory();
    git(&copy, &["clone", "-q", from.to_str().expect("plain"), "."]);
    let artifact = source.artifact(source.command(&copy, &["--submodules"]));
    assert!(
        artifact
            .warning("source_submodule_empty")
            .ends_with(": `libs/sub`")
    );
}

#[test]
fn the_caps_of_the_host_name_their_key() {
    let source = Source::with(&FILES);
    let noise: Vec<u8> = (0..5_000_u32)
        .flat_map(|n| n.wrapping_mul(2_654_435_761).to_le_bytes())
        .collect();
    source.file("noise", noise);
    for (oci, said) in [
        ("entries: 5", "(oci.entries)"),
        ("unpacked: 10k", "(oci.unpacked)"),
        ("layer: 1k", "(oci.layer)"),
    ] {
        let policy = source
            .ground
            .write("policy.yaml", format!("oci: {{{oci}}}\n"));
        let ended = source.try_build(&["--policy", policy.to_str().expect("plain")]);
        ended.assert_refused("source_size", &["makes the snapshot too large", said]);
        assert_eq!(source.stored(), 0, "{oci}");
    }
}

#[test]
fn a_tree_that_is_too_deep_is_refused() {
    let source = Source::new();
    let mut at = source.directory();
    for _ in 0..300 {
        at.push("d");
    }
    std::fs::create_dir_all(&at).expect("made");
    source
        .try_build(&[])
        .assert_refused("path_too_deep", &["segments"]);
}

#[test]
fn output_files_are_excluded_from_the_source() {
    let source = Source::with(&[("a", "a")]);
    let inside = source.directory().join("out.oci");
    let store = source.directory().join("cache/oci");
    let build = || {
        let mut command = source.command(
            &source.directory(),
            &["--name", "it", "--version", "1", "--json"],
        );
        command
            .arg("-o")
            .arg(&inside)
            .env("RUNNER_OPT_OCI_DIRECTORY", &store);
        let ended = support::bundling::output_of(&mut command);
        ended.assert_done();
        ended.json()
    };
    let first = build();
    let second = build();
    assert_eq!(first["layer"]["digest"], second["layer"]["digest"]);
}
