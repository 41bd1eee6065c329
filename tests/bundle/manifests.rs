//! Where the manifest is found, and which parts of it the bundle contains.

use bundler::locate::locate;
use bundler::{ResolveRequest, resolve};

use support::Ground;
use support::bundling::manifest;

#[test]
fn a_name_is_looked_for_in_the_convention_folders() {
    let ground = Ground::new();
    for (file, text) in [
        (
            ".code-workspaces/render/manifest.yaml",
            "kind: code-workspace\nname: render\n",
        ),
        (
            ".code/terse/manifest.yaml",
            "kind: code-workspace\nname: terse\n",
        ),
        (".code/lean/CODE.md", "---\nschema: code/v2\n---\n"),
        (
            ".code/render/manifest.yaml",
            "kind: code-workspace\nname: second\n",
        ),
    ] {
        ground.file(file, text);
    }
    let workspace = ground.workspace();
    let workspace = workspace.to_str().expect("a plain path");
    for (name, file) in [
        ("render", "manifest.yaml"),
        ("terse", "manifest.yaml"),
        ("lean", "CODE.md"),
    ] {
        let ended = ground.make(&["--workspace", workspace, name, "--list"]);
        ended.assert_done();
        assert!(ended.text().contains(file), "{ended:#?}");
        ground.make(&[name, "--list"]).assert_done();
    }
    let list = ground.make(&["render", "--list"]).text();
    assert!(
        list.contains(".code-workspaces/render/manifest.yaml"),
        "{list}"
    );
    let ended = ground.make(&["--workspace", workspace, "rendr", "--list"]);
    ended.assert_refused(
        "workspace_not_found",
        &["available: lean, render, terse", "did you mean `render`?"],
    );
}

#[test]
fn a_manifest_that_is_not_there_or_elsewhere_is_refused() {
    let ground = Ground::new();
    ground.write("elsewhere/manifest.yaml", "run: [echo]\n");
    ground.file("sub/x", "");
    let elsewhere = ground.path("elsewhere");
    let elsewhere = elsewhere.to_str().expect("a plain path");
    for (words, code, parts) in [
        (
            &["nothing/there"][..],
            "manifest_missing",
            &["cannot be opened"][..],
        ),
        (&["nothing"], "workspace_not_found", &["none exists below"]),
        (
            &["sub"],
            "manifest_missing",
            &["holds no manifest", "CODE.md"],
        ),
        (
            &["--workspace", "sub", elsewhere],
            "manifest_outside_workspace",
            &["--workspace"],
        ),
        (
            &["--workspace", "nothing", "sub"],
            "workspace_unreadable",
            &[],
        ),
    ] {
        let ended = ground.make(&[words, &["--list"]].concat());
        ended.assert_refused(code, parts);
    }
    // Its own folder is the workspace if the working directory is not above it.
    ground.make(&[elsewhere, "--list"]).assert_done();
}

#[test]
fn nothing_is_printed_or_written_that_was_not_asked_for() {
    let ground = Ground::new();
    ground.file("manifest.yaml", "run: [echo]\n");
    let ended = ground.make(&["."]);
    ended.assert_refused("usage", &["add -o bundle.tar.gz"]);
    let ended = ground.make(&[".", "-o", "-", "--list"]);
    ended.assert_refused("usage", &["-o - cannot be combined with --list"]);
    let ended = ground.make(&[".", "-o", "out", "--json"]);
    ended.assert_refused("usage", &["--json has nothing to print"]);
    let ended = ground.make(&[".", "-o", "out"]);
    assert_eq!(
        (ended.code, ended.stdout.len(), ended.stderr.as_str()),
        (0, 0, "")
    );
    let ended = ground.make(&[".", "--print-digest"]);
    let digest = ended.text();
    assert!(
        digest.starts_with("sha256:") && digest.len() == 72,
        "{digest}"
    );
    let ended = ground.make(&[".", "--print-digest", "--json"]);
    assert_eq!(ended.json()["content_digest"], digest.trim_end());
}

#[test]
fn the_bundle_carries_its_manifest_with_what_it_inherits() {
    let ground = Ground::new();
    ground.file(
        "libs/base/manifest.yaml",
        "kind: code-workspace\nname: base\nrunner: {needs: {language: python}, limits: {timeout_ms: 60000, memory_mb: 512}}\n\
         secrets: {KEY: {vault: base-key}}\nnetwork: {egress: [deep.example]}\n",
    );
    ground.file(
        "libs/top/manifest.yaml",
        "kind: code-workspace\nname: top\ncode: libs/base\nnetwork: {egress: [top.example]}\n",
    );
    ground.file(
        "tools/t/RUNNER.md",
        "---\nlimits: {timeout_ms: 1000}\n---\n",
    );
    ground.file(
        "tools/t/manifest.yaml",
        "name: t\nrun: [echo, hi]\nrunner: {ref: ./RUNNER.md}\nsecrets: {KEY: {vault: own-key}}\n\
         network: {egress: [own.example]}\ncode: {sources: [{ref: libs/top}]}\n",
    );
    let resolved = ground.archive(&["tools/t"]).resolved();
    assert!(resolved.get("code").is_none(), "{resolved:#}");
    assert_eq!(resolved["runner"]["needs"]["language"], "python");
    assert_eq!(resolved["runner"]["limits"]["timeout_ms"], 1000);
    assert_eq!(resolved["runner"]["limits"]["memory_mb"], 512);
    let egress = resolved["network"]["egress"].as_array().expect("a list");
    for host in ["deep.example", "top.example", "own.example"] {
        assert!(egress.iter().any(|entry| entry == host), "{resolved:#}");
    }
    let provenance = &resolved["metadata"]["runner"]["provenance"];
    // The file that decides, also through another one.
    assert_eq!(
        provenance["/runner/limits/memory_mb"],
        "libs/base/manifest.yaml"
    );
    assert_eq!(provenance["/runner/limits/timeout_ms"], "manifest.yaml");
    assert_eq!(provenance["/secrets/KEY"], "manifest.yaml");
    let text = resolved.to_string();
    let ground_path = ground.path("");
    assert!(
        !text.contains(ground_path.to_str().expect("a plain path")),
        "{text}"
    );
    let done = ground.exec(
        &["--grant", "egress,secrets", "--secret", "KEY=env:PATH"],
        &ground.path("archive.tar.gz"),
    );
    // It is read with or without a grant; other tests cover what the body may reach.
    assert!(done.report["warnings"].as_array().is_none_or(|list| {
        list.iter()
            .all(|warning| warning["code"] != "manifest_ignored")
    }));
}

#[test]
fn a_missing_block_is_refused_with_the_paths_tried() {
    let ground = Ground::new();
    for (block, code, part) in [
        (
            "runner: {ref: ./RUNER.md}",
            "runner_ref_unresolvable",
            "RUNER.md",
        ),
        (
            "sandbox: {file: box.yaml}",
            "sandbox_ref_unresolvable",
            "box.yaml",
        ),
        (
            "runner: {ref: '@owner/name'}",
            "runner_ref_unresolvable",
            "refs",
        ),
        (
            "runner: {ref: ../../../etc/x.md}",
            "runner_ref_unresolvable",
            "leaves the workspace",
        ),
    ] {
        ground.file("t/manifest.yaml", format!("run: [echo]\n{block}\n"));
        ground
            .make(&["t", "--list"])
            .assert_refused(code, &["t/manifest.yaml:2", part]);
    }
}

#[test]
fn a_registry_of_the_host_knows_slugs() {
    let ground = Ground::new();
    let block = ground.write("registry/RUNNER.md", "---\nlimits: {memory_mb: 77}\n---\n");
    ground.file(
        "manifest.yaml",
        "run: [echo]\nrunner: {ref: '@owner/name'}\n",
    );
    let registry = [("@owner/name".to_owned(), block)].into();
    let located = locate(&ground.workspace(), None, None).expect("found");
    let request = ResolveRequest {
        manifest: &located.manifest,
        registry: &registry,
        require_pin: false,
    };
    let resolution = resolve(request, &located.files).expect("resolved");
    assert_eq!(resolution.manifest["runner"]["limits"]["memory_mb"], 77);
}

#[test]
fn floating_references_are_refused_where_pins_are_required() {
    let ground = Ground::new();
    ground.file("m.yaml", manifest("github: {repo: o/r, ref: main}"));
    let ended = ground.make(&["m.yaml", "--list", "--require-pin"]);
    ended.assert_refused(
        "pin_required",
        &["`main`", "m.yaml:5:7 at /code/sources/0 (github)"],
    );
    for name in [
        "WORKSPACE_TOOLS_REQUIRE_PIN",
        "AIP26_REQUIRE_PIN",
        "RUNNER_OPT_REQUIRE_PIN",
    ] {
        let mut command = ground.bundle_command(&["m.yaml", "--list"]);
        support::bundling::output_of(command.env(name, "true")).assert_refused("pin_required", &[]);
    }
    ground.file("m.yaml", manifest("github: {repo: o/r, ref: 4f3a2b1c}"));
    let ended = ground.make(&["m.yaml", "--list", "--require-pin"]);
    ended.assert_refused(
        "pin_required",
        &["abbreviated", "fewer digits name no commit"],
    );
}

#[test]
fn an_unavailable_token_is_reported_with_its_cause() {
    let ground = Ground::new();
    ground.file("m.yaml", manifest("github: {repo: a/b, ref: main}"));
    for (token, parts) in [
        (
            "env:NOWHERE",
            &["the variable NOWHERE is not set", "hint: "][..],
        ),
        (
            "file:/nowhere/token",
            &["`/nowhere/token` cannot be read", "No such file", "hint: "],
        ),
    ] {
        let policy = ground.write("token.yaml", format!("github: {{token: \"{token}\"}}\n"));
        let policy = policy.to_str().expect("a plain path");
        let ended = ground.make(&["m.yaml", "--print-digest", "--policy", policy]);
        ended.assert_refused("github_setting", parts);
    }
}
