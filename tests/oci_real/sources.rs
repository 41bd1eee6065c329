//! Sources: built, pushed, read and copied by skopeo, pulled again, and run from a manifest.

use std::path::Path;

use serde_json::Value;

use crate::host::Host;
use support::images::skopeo;
use support::packages::succeed;

const SOURCE: &str = "application/vnd.stax.source.v1";
const CONFIG: &str = "application/vnd.stax.source.config.v1+json";
const SNAPSHOT: &str = "application/vnd.stax.source.snapshot.v1.tar+gzip";

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

/// Builds a source with two files, pushes it, and returns its digest according to skopeo.
pub(crate) fn pushed(host: &Host, name: &str) -> String {
    host.ground.write("backend/src/main.txt", "as it was\n");
    host.ground.write("backend/README", "read me\n");
    let directory = host.ground.path("backend");
    let reference = host.registry.reference(name);
    host.source_ok(&[
        "build",
        directory.to_str().expect("plain"),
        "--name=backend",
        "--version=1.2.3",
        "--push",
        &reference,
    ]);
    // The digest of a raw manifest is that of its bytes.
    let mut raw = skopeo("inspect", &host.registry, "");
    let raw = succeed(raw.args(["--raw", &host.docker(name)])).expect("skopeo reads it");
    spec::digest::Digest::of(raw.as_bytes()).to_string()
}

#[test]
fn skopeo_reads_a_pushed_source() {
    let Some(host) = Host::new() else { return };
    let digest = pushed(&host, "sources/backend:1.2.3");
    let mut raw = skopeo("inspect", &host.registry, "");
    let by_digest = host.docker(&format!("sources/backend@{digest}"));
    let manifest = json(&succeed(raw.args(["--raw", &by_digest])).expect("skopeo reads it"));
    assert_eq!(manifest["artifactType"], SOURCE);
    assert_eq!(manifest["config"]["mediaType"], CONFIG);
    assert_eq!(manifest["layers"].as_array().map(Vec::len), Some(1));
    assert_eq!(manifest["layers"][0]["mediaType"], SNAPSHOT);
    assert_eq!(
        manifest["annotations"]["org.opencontainers.image.version"],
        "1.2.3"
    );
    let mut inspect = skopeo("inspect", &host.registry, "");
    let config = json(&succeed(inspect.args(["--config", "--raw", &by_digest])).expect("a config"));
    assert_eq!(
        (&config["kind"], &config["name"]),
        (&"source".into(), &"backend".into())
    );
}

#[test]
fn a_source_survives_copying_by_skopeo() {
    let Some(mut host) = Host::new() else { return };
    let digest = pushed(&host, "sources/backend:1.2.3");
    let layout = host.ground.path("copied");
    let place = format!("oci:{}:backend", layout.display());
    let mut copy = skopeo("copy", &host.registry, "src-");
    succeed(copy.args([&host.docker("sources/backend:1.2.3"), &place])).expect("to a layout");
    let said = json(&host.source_ok(&["inspect", "--json", layout.to_str().expect("plain")]));
    assert_eq!(said["digest"], digest.as_str(), "{said}");
    assert_eq!(said["config"]["name"], "backend");
    let mut copy = skopeo("copy", &host.registry, "dest-");
    succeed(copy.args([&place, &host.docker("copies/backend:again")])).expect("and back");
    host.forget();
    let again = host.registry.reference(&format!("copies/backend@{digest}"));
    let said = json(&host.source_ok(&["pull", "--json", &again]));
    assert_eq!(said["digest"], digest.as_str(), "{said}");
    assert_eq!(said["found"], "pulled");
    let listed = host.source_ok(&["list"]);
    assert!(listed.contains("backend"), "{listed}");
}

fn manifest(reference: &str, writable: bool) -> String {
    format!(
        "run: [./main.sh]\nworkspaceSources:\n- id: backend\n  ref: {reference}\n  \
         mountPath: /workspace/backend\n  writable: {writable}\n"
    )
}

fn bundle(directory: &Path, manifest: &str, body: &str) {
    std::fs::create_dir_all(directory).expect("made");
    std::fs::write(directory.join("manifest.yaml"), manifest).expect("written");
    let program = directory.join("main.sh");
    std::fs::write(&program, format!("#!/bin/sh\n{body}\n")).expect("written");
    let executable = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(&program, executable).expect("set");
}

#[test]
fn a_manifest_gets_its_source_from_the_registry_once_and_from_the_store_then() {
    let Some(mut host) = Host::new() else { return };
    let digest = pushed(&host, "sources/backend:1.2.3");
    let reference = host
        .registry
        .reference(&format!("sources/backend@{digest}"));
    let directory = host.ground.path("bundle");
    bundle(
        &directory,
        &manifest(&reference, false),
        "cat /workspace/backend/src/main.txt; echo x >/workspace/backend/new || echo refused",
    );
    let words = [
        "exec",
        "--grant=sources",
        directory.to_str().expect("plain"),
    ];
    let done = host.command(&words).done();
    done.assert_exited(0);
    assert_eq!(done.text(), "as it was\nrefused\n");
    let source = &done.report["workspace_sources"][0];
    assert_eq!(source["digest"], digest.as_str(), "{source}");
    assert_eq!(source["found"], "pulled", "{source}");
    host.registry.stop();
    let done = host.command(&words).done();
    done.assert_exited(0);
    assert_eq!(done.text(), "as it was\nrefused\n");
    assert_eq!(done.report["workspace_sources"][0]["found"], "store");
}

#[test]
fn a_writable_source_is_changed_for_one_run_only() {
    let Some(host) = Host::new() else { return };
    let digest = pushed(&host, "sources/backend:1.2.3");
    let reference = host
        .registry
        .reference(&format!("sources/backend@{digest}"));
    let directory = host.ground.path("bundle");
    bundle(
        &directory,
        &manifest(&reference, true),
        "cd /workspace/backend; cat src/main.txt; echo changed >src/main.txt; rm README\n\
         echo new >new; cat src/main.txt; ls",
    );
    for _run in 0..2 {
        let words = [
            "exec",
            "--grant=sources",
            directory.to_str().expect("plain"),
        ];
        let done = host.command(&words).done();
        done.assert_exited(0);
        assert_eq!(done.text(), "as it was\nchanged\nnew\nsrc\n");
    }
}

#[test]
fn a_tag_is_refused_or_reported_with_its_digest_where_allowed() {
    let Some(mut host) = Host::new() else { return };
    let digest = pushed(&host, "sources/backend:1.2.3");
    host.forget();
    let reference = host.registry.reference("sources/backend:1.2.3");
    let directory = host.ground.path("bundle");
    bundle(
        &directory,
        &manifest(&reference, false),
        "cat /workspace/backend/README",
    );
    let directory = directory.to_str().expect("plain");
    let done = host.command(&["exec", "--grant=sources", directory]).done();
    assert_eq!(done.outcome(), "refused", "{done:#?}");
    assert_eq!(
        host.registry.count("GET", "/blobs/"),
        0,
        "nothing was fetched"
    );
    let done = host
        .command(&["exec", "--grant=sources", "--allow-tags", directory])
        .done();
    done.assert_exited(0);
    assert_eq!(done.text(), "read me\n");
    assert_eq!(
        done.report["workspace_sources"][0]["digest"],
        digest.as_str()
    );
}
