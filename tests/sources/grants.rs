//! The grants of a source, and the sources in a plan.

use serde_json::Value;

use crate::artifact::Artifact;
use crate::host::{Host, one, said};
use support::bundles::bundled;

const SHOW: &str = "cat /workspace/backend/a";

fn kept() -> (Artifact, Host) {
    let artifact = Artifact::of(&[("a", "a\n")]);
    let host = Host::with(&artifact);
    (artifact, host)
}

#[test]
fn a_bundle_gets_no_source_without_a_grant() {
    let (artifact, host) = kept();
    let bundle = host.bundle(&one(artifact.nowhere(), ""), SHOW);
    let done = host.command(&["exec", &bundle]).done();
    done.assert_error("refused", "grant_required");
    let error = &done.report["error"];
    assert!(
        error["message"]
            .to_string()
            .contains("workspace source source-0"),
        "{error}"
    );
    assert!(
        error["hint"].to_string().contains("--grant sources"),
        "{error}"
    );
    assert!(host.trees().is_empty());
    let policy = host.policy("grants: [sources]\n");
    let done = host.command(&["exec", "--policy", &policy, &bundle]).done();
    assert_eq!(said(done.assert_exited(0)), "a\n");
    let manifest = format!("{bundle}/manifest.yaml");
    let done = host
        .command(&["exec", "--manifest", &manifest, &bundle])
        .done();
    assert_eq!(said(done.assert_exited(0)), "a\n");
}

#[test]
fn a_denial_by_the_host_overrides_every_grant() {
    let (artifact, host) = kept();
    let bundle = host.bundle(&one(artifact.nowhere(), ""), SHOW);
    let policy = host.policy("deny_grants: [sources]\n");
    let manifest = format!("{bundle}/manifest.yaml");
    for flags in [
        &["--manifest", &manifest][..],
        &["--grant=sources"],
        &["--grant=all"],
        &["--allow-tags"],
        &["--insecure"],
    ] {
        let words = [&["exec", "--policy", &policy], flags, &[&*bundle]].concat();
        let done = host.command(&words).done();
        done.assert_error("refused", "grant_forbidden");
    }
    assert!(host.trees().is_empty());
}

#[test]
fn a_built_bundle_keeps_its_source_requests() {
    let (artifact, host) = kept();
    let folder = host.bundle(&one(artifact.nowhere(), "writable: true"), SHOW);
    let archive = bundled(folder.as_ref());
    let done = host.exec(&[], archive.to_str().expect("plain"));
    assert_eq!(said(done.assert_exited(0)), "a\n");
}

#[test]
fn a_lock_file_is_written_only_of_sources_with_a_digest() {
    let (artifact, host) = kept();
    for (reference, code) in [
        (artifact.nowhere(), 0),
        ("registry.test/sources/backend:1".to_owned(), 125),
    ] {
        let folder = host.bundle(&one(reference, ""), SHOW);
        for flag in ["--lock=bundle.lock", "--require-pin"] {
            let mut command = std::process::Command::new(support::runner());
            command.args(["bundle", ".", "-o", "../made.tar.gz", flag]);
            let output = command.current_dir(&folder).output().expect("started");
            let said = String::from_utf8_lossy(&output.stderr);
            assert_eq!(output.status.code(), Some(code), "{flag}: {said}");
            assert!(code == 0 || said.contains("source_tag_refused"), "{said}");
        }
    }
}

fn plan(host: &Host, flags: &[&str], bundle: &str) -> (i32, Value) {
    let mut command = std::process::Command::new(support::runner());
    command.args(["plan", "--json"]).args(flags).arg(bundle);
    let output = command
        .env("RUNNER_OPT_OCI_DIRECTORY", host.store())
        .output()
        .expect("the runner starts");
    let text = String::from_utf8_lossy(&output.stdout);
    let plan = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"));
    (output.status.code().expect("a code"), plan)
}

#[test]
fn a_plan_shows_mount_point_and_cache_state_of_a_source_without_a_request() {
    let (artifact, host) = kept();
    let bundle = host.bundle(&one(artifact.nowhere(), "writable: true"), SHOW);
    let (code, told) = plan(&host, &["--grant=sources"], &bundle);
    assert_eq!(code, 0, "{told}");
    let source = &told["workspace_sources"][0];
    assert_eq!(source["reference"], artifact.nowhere());
    assert_eq!(source["is_kept"], false, "it is not unpacked");
    assert_eq!(source["granted_by"], "--grant sources");
    assert_eq!(source["asked_by"], "/workspaceSources/0");
    assert!(host.trees().is_empty());
    host.exec(&[], &bundle).assert_exited(0);
    let (code, told) = plan(&host, &[], &bundle);
    assert_eq!(
        (code, &told["workspace_sources"][0]["is_kept"]),
        (125, &true.into())
    );
    assert_eq!(told["missing_grants"][0]["flag"], "--grant sources");
    let view = told["view"].as_array().expect("a list");
    let row = view.iter().find(|row| row["path"] == "/workspace/backend");
    let row = row.unwrap_or_else(|| panic!("{told}"));
    assert_eq!(
        (&row["what"], &row["writable"]),
        (&"source".into(), &true.into())
    );
    let tag = host.bundle(&one("registry.test/sources/backend:1", ""), SHOW);
    let (code, told) = plan(&host, &["--grant=sources"], &tag);
    assert_eq!(
        (code, &told["error"]["code"]),
        (125, &"source_tag_refused".into())
    );
    let (code, told) = plan(&host, &["--grant=sources", "--allow-tags"], &tag);
    assert_eq!(
        (code, &told["workspace_sources"][0]["is_kept"]),
        (0, &Value::Null)
    );
}

#[test]
fn a_plan_makes_no_store() {
    let (artifact, host) = kept();
    std::fs::remove_dir_all(host.store()).expect("removed");
    let bundle = host.bundle(&one(artifact.nowhere(), ""), SHOW);
    let (code, told) = plan(&host, &["--grant=sources"], &bundle);
    assert_eq!(
        (code, &told["workspace_sources"][0]["is_kept"]),
        (0, &false.into())
    );
    assert!(!host.store().exists());
}
