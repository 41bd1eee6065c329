//! The `runner` and `sandbox` blocks end to end: needs, image, provider, shell, directory, mounts.

#![expect(clippy::expect_used, reason = "a failure of a test is a panic")]

use std::path::PathBuf;

use serde_json::{Value, json};

use support::{Ground, skip, text};

/// Kind and need of each unmet need in the report.
fn unmet(report: &Value) -> Vec<(String, String)> {
    let list = report["runner"]["needs_unsatisfied"].as_array();
    let text = |value: &Value| value.as_str().expect("text").to_owned();
    list.expect("a list")
        .iter()
        .map(|one| (text(&one["kind"]), text(&one["need"])))
        .collect()
}

fn pairs(list: &[(&str, &str)]) -> Vec<(String, String)> {
    list.iter()
        .map(|(kind, need)| ((*kind).to_owned(), (*need).to_owned()))
        .collect()
}

#[test]
fn needs_that_are_not_met_are_one_warning_and_the_body_runs() {
    let ground = Ground::new();
    let manifest = "run: body.sh\nrunner:\n  needs:\n    native: [bash, none-such-7f3a, dpkg]\n    \
        npm: [met@^1.2.0, '@scope/met@~2.0.0', old@>=3, absent, linked@1.x, odd@next, broken]\n    \
        pip: [met-name==2.31.0, 'old>=3', absent]\n";
    let bundle = ground.bundle(&[
        ("manifest.yaml", manifest),
        ("body.sh", "echo ran\n"),
        ("node_modules/met/package.json", r#"{"version": "1.9.0"}"#),
        (
            "node_modules/@scope/met/package.json",
            r#"{"version": "2.0.9"}"#,
        ),
        ("node_modules/old/package.json", r#"{"version": "2.9.9"}"#),
        (
            "node_modules/.store/linked/package.json",
            r#"{"version": "1.0.0"}"#,
        ),
        ("node_modules/odd/package.json", r#"{"version": "1.0.0"}"#),
        ("node_modules/broken/package.json", "{"),
        ("lib/Met_Name-2.31.0.dist-info/METADATA", "x"),
        ("lib/old-2.0.dist-info/METADATA", "x"),
    ]);
    let folder = bundle.with_extension("").with_extension("");
    std::os::unix::fs::symlink(".store/linked", folder.join("node_modules/linked"))
        .expect("linked");
    let bundle = support::bundles::pack(&folder);
    let done = ground.exec(&[], &bundle);
    done.assert_exited(0);
    let expected = pairs(&[
        ("native", "none-such-7f3a"),
        ("npm", "old@>=3"),
        ("npm", "absent"),
        ("npm", "odd@next"),
        ("npm", "broken"),
        ("pip", "old>=3"),
        ("pip", "absent"),
    ]);
    let mut found = unmet(&done.report);
    // A host without Debian packages has no such program.
    found.retain(|(_, need)| need != "dpkg");
    assert_eq!(found, expected, "{done:#?}");
    assert_eq!(done.report["runner"]["engine"], "subprocess");
    assert_eq!(done.report["runner"]["image"], Value::Null);
    let warnings: Vec<&str> = done.report["warnings"]
        .as_array()
        .expect("a list")
        .iter()
        .filter(|warning| warning["code"] == "needs_unsatisfied")
        .map(|warning| warning["message"].as_str().expect("text"))
        .collect();
    let [warning] = warnings[..] else {
        panic!("{warnings:?}");
    };
    for (_, need) in &expected {
        assert!(warning.contains(need.as_str()), "{warning}");
    }
    assert!(warning.contains("2.9.9"), "{warning}");
}

#[test]
fn needs_that_are_met_are_no_warning() {
    let ground = Ground::new();
    let manifest = "run: body.sh\nrunner: {needs: {native: [sh], npm: [met]}}\n";
    let done = ground.exec(
        &[],
        &ground.bundle(&[
            ("manifest.yaml", manifest),
            ("body.sh", "true\n"),
            ("node_modules/met/package.json", r#"{"version": "1.9.0"}"#),
        ]),
    );
    done.assert_exited(0);
    assert!(unmet(&done.report).is_empty() && !done.warns("needs_unsatisfied"));
}

#[test]
fn a_package_list_of_the_host_is_believed() {
    let Ok(status) = std::fs::read_to_string("/var/lib/dpkg/status") else {
        return skip("no list of packages here");
    };
    // Has files but no program of its name.
    if !status.contains("Package: libc6\nStatus: install ok installed\n") {
        return skip("libc6 is not in the list of packages");
    }
    let ground = Ground::new();
    let manifest = "run: body.sh\nrunner: {needs: {native: [libc6]}}\n";
    let done = ground.exec(&[], &ground.script(manifest, "true\n"));
    done.assert_exited(0);
    assert!(unmet(&done.report).is_empty(), "{done:#?}");
}

#[test]
fn an_image_without_a_root_file_system_is_refused_by_the_name_that_was_picked() {
    let ground = Ground::new();
    for (runner, run, image) in [
        ("{engine: sandbox}", "tool.py", "minimal-python"),
        ("{engine: sandbox}", "tool.js", "minimal-node"),
        ("{engine: sandbox}", "make all", "multi"),
        (
            "{engine: sandbox, image: mcp-node-server}",
            "tool.js",
            "mcp-node-server",
        ),
        (
            "{engine: sandbox, needs: {native: [chromium]}}",
            "tool.js",
            "mcp-browser-server",
        ),
        (
            "{engine: sandbox, needs: {native: [git], npm: [met@1]}}",
            "tool.js",
            "mcp-node-server",
        ),
    ] {
        let manifest = format!("run: {run}\nrunner: {runner}\n");
        let bundle = ground.bundle(&[
            ("manifest.yaml", &manifest),
            ("tool.js", "1"),
            ("tool.py", "1"),
            ("node_modules/met/package.json", r#"{"version": "1.9.0"}"#),
        ]);
        let done = ground.exec(&[], &bundle);
        done.assert_error("refused", "image_source_missing")
            .assert_nothing_ran();
        done.assert_message(&format!("image {image} has no root file system"));
    }
}

#[test]
fn an_image_that_is_unknown_is_refused_with_the_one_that_was_meant() {
    let ground = Ground::new();
    let manifest = "run: tool.js\nrunner: {engine: sandbox, image: mcp-node-sever}\n";
    let bundle = ground.bundle(&[("manifest.yaml", manifest), ("tool.js", "1")]);
    let done = ground.exec(&[], &bundle);
    done.assert_error("refused", "image_unknown")
        .assert_nothing_ran();
    done.assert_message("mcp-python-server")
        .assert_hint("did you mean `mcp-node-server`?");
}

#[test]
fn in_process_is_run_as_a_subprocess_and_reported() {
    let ground = Ground::new();
    let manifest = "run: body.sh\nrunner: {engine: in-process}\n";
    let done = ground.exec(&[], &ground.script(manifest, "echo $$\n"));
    done.assert_exited(0);
    assert_eq!(
        done.report["runner"],
        json!({
            "engine": "subprocess", "image": null, "downgraded": true, "needs_unsatisfied": [],
        })
    );
    assert!(done.warns("engine_downgraded"));
    let done = ground.run(&[], &["true"]);
    assert_eq!(done.report["runner"], Value::Null);
}

/// A Node with a permission model in a directory that the body sees.
fn has_node_with_permissions() -> bool {
    let told = std::process::Command::new("/usr/bin/node")
        .arg("--version")
        .output();
    let version = told
        .ok()
        .and_then(|told| String::from_utf8(told.stdout).ok());
    let major = version.as_deref().and_then(|text| {
        text.trim()
            .strip_prefix('v')?
            .split('.')
            .next()?
            .parse::<u32>()
            .ok()
    });
    if major.is_some_and(|major| 20 <= major) {
        return true;
    }
    skip("no Node 20 or later at /usr/bin/node");
    false
}

/// Tries every operation that the permissions cover, one line each.
const PROBE: &str = r"
const fs = require('fs');
const attempt = (name, act) => {
  try { act(); console.log(name, 'yes'); } catch (error) { console.log(name, error.code || 'no'); }
};
attempt('read bundle', () => fs.readFileSync('/bundle/probe.js'));
attempt('require', () => require('./lib/part'));
attempt('write bundle', () => fs.writeFileSync('/bundle/new', '1'));
attempt('write tmp', () => fs.writeFileSync('/tmp/new', '1'));
attempt('read tmp', () => fs.readFileSync('/tmp/new'));
attempt('write home', () => fs.writeFileSync('/home/runner/new', '1'));
attempt('write scratch', () => fs.writeFileSync('/scratch/new', '1'));
attempt('read input', () => fs.readFileSync(process.env.RUNNER_INPUT));
attempt('write output', () => fs.writeFileSync(process.env.RUNNER_OUTPUT, '{}'));
attempt('read stdin', () => fs.readFileSync(0));
attempt('read etc', () => fs.readFileSync('/etc/passwd'));
attempt('list usr', () => fs.readdirSync('/usr'));
attempt('read proc', () => fs.readFileSync('/proc/self/status'));
attempt('child', () => require('child_process').execFileSync('/bin/true'));
attempt('worker', () => new (require('worker_threads').Worker)('1', { eval: true }));
for (const path of process.argv.slice(2)) {
  attempt('read ' + path, () => fs.readdirSync(path));
  attempt('write ' + path, () => fs.writeFileSync(path + '/from-node', '1'));
}
";

fn probe(ground: &Ground, provider: &str, run: &str) -> PathBuf {
    let manifest =
        format!("run: {run}\ninputs: {{}}\nsandbox: {{provider: {provider}, config: {{}}}}\n");
    ground.bundle(&[
        ("manifest.yaml", &manifest),
        ("probe.js", PROBE),
        ("lib/part.js", ""),
    ])
}

const GIVEN: &str = "read bundle yes\nrequire yes\nwrite bundle yes\nwrite tmp yes\nread tmp yes\n\
    write home yes\nwrite scratch yes\nread input yes\nwrite output yes\nread stdin yes\n";

#[test]
fn under_node_permission_node_has_what_the_view_gives_and_no_process_of_its_own() {
    if !has_node_with_permissions() {
        return;
    }
    let ground = Ground::new();
    ground.write("ro/file", "1");
    ground.write("rw/file", "1");
    let ro = format!("{}:/data/ro:ro", text(&ground.path("ro")));
    let rw = format!("{}:/data/rw", text(&ground.path("rw")));
    let flags = ["--mount", &ro, "--mount", &rw];
    let denied = "ERR_ACCESS_DENIED";
    let expected = format!(
        "{GIVEN}read etc {denied}\nlist usr {denied}\nread proc {denied}\n\
        child {denied}\nworker {denied}\nread /data/ro yes\nwrite /data/ro {denied}\n\
        read /data/rw yes\nwrite /data/rw yes\nread /data {denied}\nwrite /data {denied}\n"
    );
    for run in ["probe.js", "[node, probe.js]", "{file: probe.js}"] {
        let bundle = probe(&ground, "node-permission", run);
        let words: Vec<&str> = ["exec"]
            .iter()
            .chain(&flags)
            .chain(&[text(&bundle), "--", "/data/ro", "/data/rw", "/data"])
            .copied()
            .collect();
        let done = ground.command(&words).done();
        done.assert_exited(0);
        assert_eq!(done.text(), expected, "{run} {done:#?}");
        assert!(ground.path("rw/from-node").exists());
        std::fs::remove_file(ground.path("rw/from-node")).expect("removed");
        assert!(!ground.path("ro/from-node").exists());
        let argv = done.report["argv"].as_array().expect("a list");
        assert!(
            argv[1].as_str().expect("text").ends_with("permission"),
            "{argv:?}"
        );
    }
}

#[test]
fn under_local_node_may_do_what_the_sandbox_lets_it() {
    if !has_node_with_permissions() {
        return;
    }
    let ground = Ground::new();
    let done = ground.exec(&[], &probe(&ground, "local", "probe.js"));
    done.assert_exited(0);
    let expected =
        format!("{GIVEN}read etc yes\nlist usr yes\nread proc yes\nchild yes\nworker yes\n");
    assert_eq!(done.text(), expected, "{done:#?}");
}

#[test]
fn node_permission_runs_node_only_and_the_host_s_own() {
    if !has_node_with_permissions() {
        return;
    }
    let ground = Ground::new();
    let files = |manifest: &str| {
        ground.bundle(&[
            ("manifest.yaml", manifest),
            ("x.py", "1"),
            ("x.sh", "true\n"),
            ("x.ts", "console.log('typed')"),
            ("x.js", "console.log(process.execPath)"),
            ("node_modules/.bin/node", "#!/bin/sh\necho of the bundle\n"),
            ("node_modules/.bin/tsx", "#!/bin/sh\necho tsx\n"),
        ])
    };
    let manifest =
        |run: &str| format!("run: {run}\nsandbox: {{provider: node-permission, config: {{}}}}\n");
    for (run, part) in [
        ("x.py", "runs Node only"),
        ("x.sh", "runs Node only"),
        ("node x.js && true", "starts a shell"),
        ("[node_modules/.bin/node, x.js]", "runs Node only"),
        ("[python3, x.py]", "runs Node only"),
        (
            "[node, --allow-child-process, x.js]",
            "--allow-child-process",
        ),
        ("[node, --no-warnings, --env-file=x, x.js]", "--env-file=x"),
    ] {
        let done = ground.exec(&[], &files(&manifest(run)));
        done.assert_error("refused", "provider_unavailable")
            .assert_nothing_ran();
        done.assert_message(part).assert_hint("provider: local");
    }
    for run in ["x.js", "[node, x.js]"] {
        let done = ground.exec(&[], &files(&manifest(run)));
        done.assert_exited(0);
        assert!(
            done.text().starts_with('/') && !done.text().contains("bundle"),
            "{done:#?}"
        );
    }
    // `tsx` would start a process; a Node that strips types does not.
    let done = ground.exec(&[], &files(&manifest("x.ts")));
    if done.outcome() == "exited" {
        assert_eq!(done.text(), "typed\n", "{done:#?}");
    } else {
        done.assert_error("refused", "provider_unavailable")
            .assert_message("child process");
    }
}

#[test]
fn the_shell_of_the_sandbox_block_reads_the_shell_form() {
    let ground = Ground::new();
    for (config, expected) in [
        ("{shell: /bin/sh}", "sh|a b|[]"),
        ("{shell: /bin/bash}", "bash|a b|[yes]"),
        ("{}", "sh|a b|[]"),
    ] {
        let manifest = format!(
            "run: {{shell: 'echo \"$0|$1|[${{BASH_VERSION:+yes}}]\"'}}\n\
            sandbox: {{provider: local, config: {config}}}\n"
        );
        let bundle = ground.bundle(&[("manifest.yaml", &manifest)]);
        let done = ground.command(&["exec", text(&bundle), "--", "a b"]).done();
        done.assert_exited(0);
        assert_eq!(done.text().trim(), expected, "{done:#?}");
    }
}

#[test]
fn the_directory_of_the_sandbox_block_is_where_the_body_starts() {
    let ground = Ground::new();
    let exec = |run: &str, cwd: &str| {
        let manifest =
            format!("run: {run}\nsandbox: {{provider: local, config: {{cwd: '{cwd}'}}}}\n");
        let bundle = ground.bundle(&[
            ("manifest.yaml", &manifest),
            ("body.sh", "pwd\n"),
            ("bin/tool", "#!/bin/sh\npwd\n"),
            ("data/deep/file", "x"),
        ]);
        ground.exec(&[], &bundle)
    };
    for (run, cwd, expected) in [
        ("body.sh", "data/deep", "/bundle/data/deep\n"),
        ("bin/tool", "./data", "/bundle/data\n"),
        ("[pwd]", "data", "/bundle/data\n"),
        (
            "{shell: 'ls; pwd'}",
            "data/deep",
            "file\n/bundle/data/deep\n",
        ),
        ("body.sh", ".", "/bundle\n"),
    ] {
        let done = exec(run, cwd);
        done.assert_exited(0);
        assert_eq!(done.text(), expected, "{run} {cwd}");
    }
    for (cwd, part) in [("absent", "is not in the bundle"), ("body.sh", "is a file")] {
        let done = exec("body.sh", cwd);
        done.assert_error("refused", "cwd_missing")
            .assert_nothing_ran();
        done.assert_message(part);
    }
    for cwd in ["../x", "/etc"] {
        exec("body.sh", cwd).assert_error("refused", "path_refused");
    }
}

#[test]
fn a_file_of_the_bundle_runs_from_a_directory_that_the_caller_names() {
    let ground = Ground::new();
    let done = ground.exec(&["-w", "/tmp"], &ground.script("run: body.sh\n", "pwd\n"));
    done.assert_exited(0);
    assert_eq!(done.text(), "/tmp\n");
}

#[test]
fn a_read_only_sandbox_touches_nothing() {
    let ground = Ground::new();
    ground.write("work/in", "secret");
    let manifest = "run: body.sh\nsandbox: {provider: local, config: {}, read_only: true}\n\
        inputsFiles: {in: {path: in}}\noutputsFiles: {out: {path: out}}\n";
    let done = ground.exec_script(&["--grant", "all"], manifest, "echo ran > /scratch/out\n");
    done.assert_error("refused", "sandbox_read_only")
        .assert_nothing_ran();
    done.assert_message("/sandbox/read_only");
    assert_eq!(done.report["inputs"], json!([]));
    assert!(!ground.path("work/out").exists());
}

#[test]
fn a_provider_elsewhere_is_refused_with_the_reason_and_an_unknown_one_with_the_list() {
    let ground = Ground::new();
    for provider in [
        "mastra-e2b",
        "mastra-modal",
        "mastra-daytona",
        "mastra-blaxel",
    ] {
        let manifest = format!("run: body.sh\nsandbox: {{provider: {provider}, config: {{}}}}\n");
        let done = ground.exec(&["--grant", "all"], &ground.script(&manifest, "echo ran\n"));
        done.assert_error("refused", "provider_unavailable")
            .assert_nothing_ran();
        done.assert_message(provider)
            .assert_message("external service");
    }
    let manifest = "run: body.sh\nsandbox: {provider: docker, config: {}}\n";
    let done = ground.exec(&[], &ground.script(manifest, "echo ran\n"));
    done.assert_error("refused", "unknown_value")
        .assert_nothing_ran();
    for name in ["local", "node-permission", "mastra-blaxel"] {
        done.assert_message(name);
    }
}

#[test]
fn mounts_show_the_workspace_as_their_modes_say_and_children_lie_over_parents() {
    let ground = Ground::new();
    ground.write("work/file", "F");
    std::fs::create_dir(ground.path("work/deep")).expect("made");
    // The child mount is first in the text and is mounted last.
    let manifest = "run: body.sh\nsandbox:\n  provider: local\n  config: {}\n  mounts:\n    \
        - {source: workspace, at: /workspace/deep, mode: read-only}\n    \
        - {source: workspace, at: /workspace}\n    \
        - {source: workspace, at: /bundle/data, mode: read-only}\n";
    let body = "cat file /workspace/deep/file /bundle/data/file; echo\n\
        for place in /workspace /workspace/deep /bundle/data; do\n\
        (echo x > $place/made-$(basename $place)) 2>/dev/null && echo $place; done; true\n";
    let done = ground.exec_script(&["--grant", "mounts"], manifest, body);
    done.assert_exited(0);
    assert_eq!(done.text(), "FFF\n/workspace\n", "{done:#?}");
    assert!(ground.path("work/made-workspace").exists());
    assert!(!ground.path("work/made-deep").exists());
    assert!(!ground.path("work/made-data").exists());
}

#[test]
fn a_body_starts_in_the_workspace_that_its_sandbox_mounts_or_below_it() {
    let ground = Ground::new();
    ground.write("work/sub/file", "F");
    let exec = |run: &str, config: &str, flags: &[&str]| {
        let manifest = format!(
            "run: {run}\nsandbox: {{provider: local, config: {config}, \
             mounts: [{{source: workspace, at: /deep/er}}, {{source: workspace, at: /ws}}]}}\n"
        );
        let bundle = ground.bundle(&[("manifest.yaml", &manifest), ("body.sh", "pwd\n")]);
        let workspace = ground.workspace();
        let flags = [
            &["--grant", "mounts", "--workspace", text(&workspace)],
            flags,
        ]
        .concat();
        ground.exec(&flags, &bundle)
    };
    for (run, config, flags, expected) in [
        ("[pwd]", "{}", &[][..], "/ws\n"),
        ("[pwd]", "{cwd: .}", &[], "/ws\n"),
        ("[pwd]", "{cwd: sub}", &[], "/ws/sub\n"),
        // A program of the bundle is found relative to that directory.
        ("body.sh", "{cwd: ./sub}", &[], "/ws/sub\n"),
        ("{shell: 'pwd; cat file'}", "{cwd: sub}", &[], "/ws/sub\nF"),
        ("[pwd]", "{cwd: sub}", &["-w", "/tmp"], "/tmp\n"),
    ] {
        let done = exec(run, config, flags);
        done.assert_exited(0);
        assert_eq!(done.text(), expected, "{run} {config}");
    }
    for (cwd, part) in [
        ("absent", "is not in the workspace"),
        ("sub/file", "is a file of the workspace"),
    ] {
        let done = exec("[pwd]", &format!("{{cwd: {cwd}}}"), &[]);
        done.assert_error("refused", "cwd_missing")
            .assert_nothing_ran();
        done.assert_message(part);
    }
}

/// The hint of `storage_unsupported` works.
#[test]
fn a_mounted_directory_replaces_an_unsupported_storage() {
    let ground = Ground::new();
    ground.write("data/file", "F");
    let data = text(&ground.path("data")).to_owned();
    for (source, mode, flag, expected) in [
        ("{ref: '@a/python-libs'}", "read-only", ":ro", "Fclosed\n"),
        // Read-only in the manifest stays read-only, whatever the flag states.
        ("{ref: './libs/STORAGE.md'}", "read-only", "", "Fclosed\n"),
        (
            "{inline: {provider: local, config: {}}}",
            "read-write",
            "",
            "Fopen\n",
        ),
    ] {
        let manifest = format!(
            "run: [/bin/sh, -c, 'cat /vendor/libs/file; \
             if touch /vendor/libs/new 2>/dev/null; then echo open; else echo closed; fi']\n\
             sandbox: {{provider: local, config: {{}}, \
             mounts: [{{source: {source}, at: /vendor/libs, mode: {mode}}}]}}\n"
        );
        let bundle = ground.bundle(&[("manifest.yaml", &manifest)]);
        let done = ground.exec(&["--grant", "mounts"], &bundle);
        done.assert_error("refused", "storage_unsupported")
            .assert_nothing_ran();
        let hinted = if mode == "read-only" { ":ro" } else { ":rw" };
        done.assert_hint(&format!("--mount DIR:/vendor/libs{hinted}"));
        let mount = format!("{data}:/vendor/libs{flag}");
        let done = ground.exec(&["--mount", &mount], &bundle);
        done.assert_exited(0);
        assert_eq!(done.text(), expected, "{source} {done:#?}");
    }
}

#[test]
fn mounts_are_refused_over_what_is_not_the_caller_s_and_at_one_place_twice() {
    let ground = Ground::new();
    for (mounts, code) in [
        ("[{source: workspace, at: /}]", "mount_refused"),
        ("[{source: workspace, at: /proc}]", "mount_refused"),
        ("[{source: workspace, at: /usr/local}]", "mount_refused"),
        ("[{source: workspace, at: /bundle}]", "mount_refused"),
        ("[{source: workspace, at: /scratch}]", "mount_refused"),
        ("[{source: workspace, at: /runner/out}]", "mount_refused"),
        ("[{source: workspace, at: /home}]", "mount_refused"),
        ("[{source: workspace, at: /home/runner}]", "mount_refused"),
        ("[{source: workspace, at: /a/../etc}]", "mount_refused"),
        ("[{source: workspace, at: a}]", "mount_refused"),
        (
            "[{source: workspace, at: /a}, {source: workspace, at: /a, mode: read-only}]",
            "duplicate_claim",
        ),
        ("[{source: {ref: '@a/b'}, at: /a}]", "storage_unsupported"),
        (
            "[{source: {inline: {provider: cloud-bucket, config: {}}}, at: /cache}]",
            "storage_unsupported",
        ),
    ] {
        let manifest =
            format!("run: body.sh\nsandbox: {{provider: local, config: {{}}, mounts: {mounts}}}\n");
        let done = ground.exec_script(&["--grant", "mounts"], &manifest, "echo ran\n");
        done.assert_error("refused", code).assert_nothing_ran();
    }
}

#[test]
fn a_manifest_of_the_caller_mounts_the_directory_that_the_caller_stands_in() {
    let ground = Ground::new();
    ground.write("work/file", "F");
    let manifest = "run: body.sh\nsandbox: {provider: local, config: {}, mounts: \
        [{source: workspace, at: /workspace, mode: read-only}]}\n";
    let bundle = ground.script("run: body.sh\n", "cat /workspace/file\n");
    let manifest = ground.write("manifest.yaml", manifest);
    let mut case = ground.command(&["exec", "--manifest", text(&manifest), text(&bundle)]);
    case.command.current_dir(ground.workspace());
    let done = case.done();
    done.assert_exited(0);
    assert_eq!(done.text(), "F");
    // The bundle's own manifest has no such default.
    let manifest = std::fs::read_to_string(&manifest).expect("read");
    let bundle = ground.script(&manifest, "cat /workspace/file\n");
    let mut case = ground.command(&["exec", "--grant", "mounts", text(&bundle)]);
    case.command.current_dir(ground.workspace());
    case.done().assert_error("refused", "workspace_missing");
}

#[test]
fn a_variable_passes_where_it_was_named_and_granted() {
    let ground = Ground::new();
    let manifest = "run: body.sh\nsandbox: {provider: local, config: {}, \
        env: {passthrough: [PASSED_7F3A, UNSET_7F3A, GIVEN_7F3A]}}\n";
    let body = "echo \"$PASSED_7F3A|${UNSET_7F3A-unset}|$GIVEN_7F3A|${OTHER_7F3A-unset}\"\n";
    let bundle = ground.script(manifest, body);
    let with_values = |words: &[&str]| {
        ground
            .command(words)
            .env("PASSED_7F3A", "passed")
            .env("OTHER_7F3A", "other")
            .done()
    };
    let done = with_values(&["exec", text(&bundle)]);
    done.assert_error("refused", "grant_required")
        .assert_nothing_ran();
    let marker = format!("RUNNER_TEST_MARKER={}", ground.marker());
    let words = [
        "exec",
        "--grant",
        "env",
        "-e",
        "GIVEN_7F3A=given",
        "-e",
        &marker,
        text(&bundle),
    ];
    let done = with_values(&words);
    done.assert_exited(0);
    assert_eq!(done.text(), "passed|unset|given|unset\n");
    assert!(done.warns("variable_unset"), "{done:#?}");
}

#[test]
fn a_policy_restricts_and_a_life_cycle_does_not() {
    let ground = Ground::new();
    let manifest = "run: body.sh\nsandbox: {provider: local, config: {}, policy: {ref: ./P.md}}\n";
    let bundle = ground.script(manifest, "echo ran\n");
    let done = ground.exec(&[], &bundle);
    done.assert_error("refused", "grant_required")
        .assert_nothing_ran();
    done.assert_message("sandbox.policy");
    let done = ground.exec(&["--grant", "policy"], &bundle);
    assert_eq!(done.text(), "ran\n", "{done:#?}");
    for lifecycle in [
        "{pause_after_idle: idle-1, destroy_on: workspace-close}",
        "{pause_after_idle_ms: 1, destroy_on_workspace_close: true}",
    ] {
        let manifest = format!(
            "run: body.sh\nsandbox: {{provider: local, config: {{}}, lifecycle: {lifecycle}}}\n"
        );
        let done = ground.exec(&[], &ground.script(&manifest, "echo ran\n"));
        done.assert_exited(0);
        assert_eq!(done.text(), "ran\n");
    }
}
