//! Artifacts in a real registry: pushed, pulled by digest, and refused where they do not belong.

use std::path::PathBuf;
use std::process::Command;

use serde_json::{Value, json};

use super::artifacts::Source;
use support::bundling::{Archive, Ended, output_of};
use support::registry::{Options, Registry};

const FILES: [(&str, &str); 3] = [("a", "a"), ("d/b", "b"), ("d/run", "#!/bin/sh\n")];

fn plain() -> Option<Registry> {
    Registry::start(Options::default())
}

fn run(source: &Source, words: &[&str]) -> Ended {
    output_of(&mut source.runner(words))
}

/// The artifact, read by an empty store.
fn pulled(source: &Source, reference: &str) -> Value {
    let mut command = source.runner(&["source", "pull", reference, "--insecure", "--json"]);
    command.env(
        "RUNNER_OPT_OCI_DIRECTORY",
        source.ground.path("other-store"),
    );
    let ended = output_of(&mut command);
    ended.assert_done();
    ended.json()
}

#[test]
fn what_is_built_and_pushed_is_pulled_by_its_pinned_reference() {
    let Some(registry) = plain() else { return };
    let source = Source::with(&FILES);
    let target = registry.reference("sources/it");
    let artifact = source.build(&["--push", &target, "--insecure"]);
    let pinned = format!("{target}@{}", artifact.digest());
    assert_eq!(artifact.report["reference"], pinned);
    let pulled = pulled(&source, &pinned);
    assert_eq!(pulled["digest"], artifact.report["digest"]);
    assert_eq!(pulled["config"], artifact.report["config"]);
    assert_eq!(pulled["files"], 3);
    // The version is the tag, and skopeo finds the same manifest there.
    let raw = Command::new("skopeo")
        .args([
            "inspect",
            "--tls-verify=false",
            "--raw",
            &format!("docker://{target}:1"),
        ])
        .output();
    assert_eq!(raw.expect("skopeo runs").stdout, artifact.manifest);
}

#[test]
fn a_second_push_sends_only_what_is_new() {
    let Some(registry) = plain() else { return };
    let source = Source::with(&FILES);
    let target = registry.reference("it:x");
    source.build(&["--push", &target, "--insecure"]);
    let sent = registry.count("PUT", "/blobs/uploads/");
    assert_eq!(sent, 2);
    let same = source.build(&["--push", &target, "--insecure"]);
    assert_eq!(registry.count("PUT", "/blobs/uploads/"), sent);
    let other = source.build(&["--push", &target, "--insecure", "--version", "2"]);
    assert_eq!(same.report["layer"], other.report["layer"]);
    assert_eq!(registry.count("PUT", "/blobs/uploads/"), sent + 1);
}

#[test]
fn an_artifact_of_the_store_and_of_a_layout_is_sent_later() {
    let Some(registry) = plain() else { return };
    let source = Source::with(&FILES);
    let artifact = source.build(&[]);
    let target = registry.reference("late");
    let pushed = run(
        &source,
        &["source", "push", "it:1", &target, "--insecure", "--json"],
    );
    pushed.assert_done();
    let pinned = format!("{target}@{}", artifact.digest());
    let expected = json!({"digest": artifact.digest(), "reference": pinned, "tag": "1"});
    assert_eq!(pushed.json(), expected);
    // Copied into a layout by skopeo, and read from there by an empty store.
    let layout = source.ground.path("copy.oci");
    let copied = Command::new("skopeo")
        .args(["copy", "--quiet", "--src-tls-verify=false"])
        .arg(format!("docker://{target}:1"))
        .arg(format!("oci:{}:mine", layout.display()))
        .status();
    assert!(copied.expect("skopeo runs").success());
    for written in [
        layout.display().to_string(),
        format!("oci:{}:mine", layout.display()),
        format!("{}@{}", layout.display(), artifact.digest()),
    ] {
        let target = registry.reference("from-layout");
        let mut command = source.runner(&["source", "push", &written, &target, "--insecure"]);
        command.env(
            "RUNNER_OPT_OCI_DIRECTORY",
            source.ground.path("third-store"),
        );
        let ended = output_of(&mut command);
        ended.assert_done();
        assert_eq!(ended.text(), format!("{target}@{}\n", artifact.digest()));
    }
    pulled(
        &source,
        &format!(
            "{}@{}",
            registry.reference("from-layout"),
            artifact.digest()
        ),
    );
}

#[test]
fn missing_paths_are_refused_by_name() {
    let source = Source::with(&FILES);
    source.build(&[]);
    for (what, target, code) in [
        ("it:2", "registry.test/it", "source_not_stored"),
        ("work", "registry.test/it", "source_not_stored"),
        ("it:1", "it", "reference_invalid"),
        ("it:1", "Registry.test/IT", "reference_invalid"),
        (
            "it:1",
            "registry.test/it@sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
            "reference_invalid",
        ),
    ] {
        run(&source, &["source", "push", what, target]).assert_refused(code, &[]);
    }
    // An invalid reference is refused before anything is built.
    let built = source.try_build(&["--push", "it", "--version", "3"]);
    built.assert_refused("reference_invalid", &[]);
    run(&source, &["source", "push", "it:3", "registry.test/it"])
        .assert_refused("source_not_stored", &["`runner source list`"]);
}

#[test]
fn plain_http_registries_need_an_explicit_flag() {
    let Some(registry) = plain() else { return };
    let source = Source::with(&FILES);
    let target = registry.reference("it");
    let refused = source.try_build(&["--push", &target]);
    assert_eq!(refused.code, 125, "{refused:#?}");
    assert_eq!(registry.count("PUT", "/"), 0);
    let policy = source.ground.write(
        "policy.yaml",
        format!("oci: {{insecure: ['{}']}}\n", registry.address()),
    );
    let policy = policy.to_str().expect("plain");
    source
        .try_build(&["--push", &target, "--policy", policy])
        .assert_done();
}

#[test]
fn a_registry_with_a_login_takes_it_from_those_who_have_one() {
    let options = Options {
        tls: true,
        login: true,
    };
    let Some(registry) = Registry::start(options) else {
        return;
    };
    let source = Source::with(&FILES);
    let target = registry.reference("it");
    let text = format!("oci: {{ca_file: {}}}\n", registry.authority());
    let policy = source.ground.write("policy.yaml", text);
    let docker: PathBuf = source.ground.path("docker");
    let push = |version: &str| {
        let words = [
            "--name",
            "it",
            "--version",
            version,
            "--push",
            &target,
            "--policy",
        ];
        let mut command = source.command(&source.directory(), &words);
        command.arg(&policy).env("DOCKER_CONFIG", &docker);
        output_of(&mut command)
    };
    let refused = push("1");
    assert_eq!(refused.code, 125, "{refused:#?}");
    registry.log_in(&docker);
    push("2").assert_done();
    let text = format!("{refused:?}{:?}", push("3"));
    assert!(!text.contains(registry.password()), "{text}");
}

#[test]
fn what_is_pulled_has_the_files_that_were_built() {
    let Some(registry) = plain() else { return };
    let source = Source::with(&FILES);
    let run = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(source.directory().join("d/run"), run).expect("set");
    let target = registry.reference("it");
    let artifact = source.build(&["--push", &target, "--insecure"]);
    let layer = artifact.report["layer"]["digest"].as_str().expect("text");
    let kept = std::fs::read(registry.blob_file(layer)).expect("read");
    assert_eq!(kept, artifact.layer);
    let at = source.ground.write("layer.tar.gz", kept);
    assert_eq!(Archive::read(&at), artifact.files);
}
