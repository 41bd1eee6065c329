//! `run` and `create` with the `sandbox` block of a manifest.

use std::path::Path;

use crate::host::{Host, Said};
use support::Ground;

/// A ground with a file in its workspace, in a directory.
fn ground() -> Ground {
    let ground = Ground::new();
    ground.write("work/sub/file", "kept\n");
    ground
}

/// `run --manifest m.yaml`, in the workspace.
fn run(ground: &Ground, manifest: &str, flags: &[&str], command: &[&str]) -> support::Done {
    ground.write("work/m.yaml", manifest);
    let words = [&["run", "--manifest", "m.yaml"], flags, &["--"], command].concat();
    let mut case = ground.command(&words);
    case.command.current_dir(ground.workspace());
    case.command.env("OF_CALLER", "passed");
    case.done()
}

#[test]
fn a_command_gets_the_mounts_directory_shell_variables_and_limits_of_the_block() {
    let ground = ground();
    let manifest = "sandbox:\n  provider: local\n  config: {cwd: sub, shell: /bin/bash}\n  \
                    mounts: [{source: workspace, at: /w, mode: read-only}]\n  \
                    env: {passthrough: [OF_CALLER]}\n  limits: {memory_mb: 99, timeout_ms: 60000}\n";
    let text = "pwd; cat file; echo ${BASH_VERSION:+bash} $OF_CALLER; ! touch file";
    let done = run(&ground, manifest, &["-q"], &[text]);
    done.assert_exited(0);
    assert_eq!(done.text(), "/w/sub\nkept\nbash passed\n");
    let limit = |name: &str| done.report["limits"][name].clone();
    for (name, effective, source) in [
        ("memory_bytes", 99 << 20, "sandbox.limits.memory_mb"),
        ("wall_time_ms", 60_000, "sandbox.limits.timeout_ms"),
    ] {
        assert_eq!(limit(name)["effective"], effective);
        assert_eq!(limit(name)["source"], source);
        assert_eq!(limit(name)["sources"][0]["source"], source);
    }
    // A flag decides before the block, and the strictest limit wins.
    let done = run(
        &ground,
        manifest,
        &["-w", "/tmp", "-m", "64m", "-e", "OF_CALLER=flag"],
        &["sh", "-c", "pwd; echo $OF_CALLER"],
    );
    assert_eq!(done.text(), "/tmp\nflag\n");
    assert_eq!(done.report["limits"]["memory_bytes"]["source"], "flag");
    assert_eq!(done.report["limits"]["memory_bytes"]["effective"], 64 << 20);
    // A block without limits has the specification's time.
    let done = run(&ground, "sandbox: {provider: local}\n", &[], &["true"]);
    let time = done.report["limits"]["wall_time_ms"]["effective"].clone();
    assert_eq!((time, done.code), (30_000.into(), 0));
}

#[test]
fn only_one_word_that_is_text_for_a_shell_is_run_by_one() {
    let ground = ground();
    let block = "sandbox: {provider: local, mounts: [{source: workspace, at: /w}]}\n";
    for (command, code, text) in [
        (&["echo a && echo b"][..], 0, "a\nb\n"),
        (&["pwd"], 0, "/w\n"),
        (&["echo", "a && echo b"], 0, "a && echo b\n"),
        (&["./no such file"], 127, ""),
    ] {
        let done = run(&ground, block, &[], command);
        assert_eq!(
            (done.code, done.text()),
            (code, text.to_owned()),
            "{done:?}"
        );
    }
    // Without a block there is no shell.
    let done = run(&ground, "name: x\n", &[], &["echo a && echo b"]);
    done.assert_error("failed", "program_not_found");
}

#[test]
fn a_relative_program_and_directory_are_those_of_the_workspace() {
    let ground = ground();
    ground.program("work/sub/tool", "#!/bin/sh\necho tool in $PWD\n");
    let mounted = "sandbox: {provider: local, config: {cwd: sub}, \
                   mounts: [{source: workspace, at: /w}]}\n";
    let in_place = "sandbox: {provider: local, config: {cwd: sub}}\n";
    let sub = ground.path("work/sub");
    for (manifest, flags, directory) in [
        (mounted, &[][..], "/w/sub"),
        (in_place, &["--ro", "."], sub.to_str().expect("text")),
    ] {
        let done = run(&ground, manifest, flags, &["./tool"]);
        assert_eq!(done.text(), format!("tool in {directory}\n"), "{done:?}");
    }
    let done = run(&ground, in_place, &[], &["true"]);
    done.assert_error("refused", "cwd_missing");
    assert!(done.stderr.contains("does not see"), "{done:?}");
    for (cwd, part) in [
        ("absent", "is not in the workspace"),
        ("m.yaml", "is a file"),
    ] {
        let done = run(
            &ground,
            &mounted.replace("cwd: sub", &format!("cwd: {cwd}")),
            &[],
            &["true"],
        );
        done.assert_error("refused", "cwd_missing");
        assert!(done.stderr.contains(part), "{done:?}");
    }
}

/// The lines of a refusal: what and where, the line, the hint.
#[track_caller]
fn assert_refused(said: &Said, parts: &[&str]) {
    assert_eq!((said.code, &*said.stdout), (125, ""), "{said:?}");
    for part in parts {
        assert!(said.stderr.contains(part), "{part}: {said:?}");
    }
}

#[test]
fn a_mistake_in_the_manifest_is_refused_with_its_line_and_nothing_is_left() {
    let host = Host::new();
    for (text, parts) in [
        (
            "sandbox:\n  provider: local\n  limts: {}\n",
            &[
                "m.yaml:3:3",
                "found the key `limts`",
                "did you mean `limits`?",
            ][..],
        ),
        (
            "sandbox: {provider: local}\nsandbx: 1\n",
            &["m.yaml:2:1", "(unknown_key)"],
        ),
        (
            "sandbox:\n  provider: local\n  limits: {memory_mb: 64m}\n",
            &["m.yaml:3:23", "expected a whole number", "(wrong_type)"],
        ),
        (
            "sandbox: {provider: local, config: {cwd: ../x}}\n",
            &["m.yaml:1:42", "(path_refused)"],
        ),
        (
            "sandbox: {provider: local, config: {shell: /bin/zsh}}\n",
            &["m.yaml:1:44", "(unknown_value)"],
        ),
        (
            "sandbox: {provider: mastra-e2b, config: {template: x}}\n",
            &["m.yaml:1:21", "(provider_unavailable)"],
        ),
        (
            "sandbox: {provider: node-permission, config: {}}\n",
            &[
                "m.yaml:1:21",
                "(provider_unavailable)",
                "use `provider: local`",
            ],
        ),
        (
            "sandbox: {provider: local, read_only: true}\n",
            &["m.yaml:1:39", "(sandbox_read_only)"],
        ),
        (
            "sandbox: {provider: local}\nrun: a.sh\n",
            &[
                "m.yaml:2:1",
                "found `run`",
                "(not_of_command)",
                "2 | run: a.sh",
                "remove it",
            ],
        ),
        ("sandbox: [\n", &["m.yaml:1:10", "(manifest_syntax)"]),
    ] {
        let manifest = host.ground.write("m.yaml", text);
        for words in [&["sandbox", "create"][..], &["run"]] {
            let flag = format!("--manifest={}", manifest.display());
            let command: &[&str] = if words == ["run"] {
                &["--", "true"]
            } else {
                &[]
            };
            let said = host.say(&[words, &[&flag], command].concat());
            assert_refused(&said, parts);
        }
    }
    host.assert_empty();
}

/// G-19.
#[test]
fn a_manifest_that_is_no_small_file_is_refused_without_reading_it() {
    let host = Host::new();
    let fifo = host.ground.path("fifo");
    let mode = rustix::fs::Mode::RUSR;
    rustix::fs::mknodat(rustix::fs::CWD, &fifo, rustix::fs::FileType::Fifo, mode, 0).expect("made");
    let large = host.ground.write("large", "");
    let file = std::fs::File::options().write(true).open(&large);
    file.expect("opened").set_len(1 << 30).expect("grown");
    let absent = host.ground.path("absent");
    for (path, part) in [
        (fifo, "is not a regular file"),
        (large, "is larger than 1 MiB"),
        (absent, "No such file"),
        (host.ground.workspace(), "is not a regular file"),
    ] {
        let path = path.to_str().expect("text");
        for words in [
            &["sandbox", "create", "--manifest", path][..],
            &["run", "--manifest", path, "--", "true"],
        ] {
            assert_refused(&host.say(words), &[part, "(manifest_unreadable)"]);
        }
    }
    host.assert_empty();
}

/// G-25: what the host denies to flags it denies to the caller's own manifest, too.
#[test]
fn a_wish_beyond_the_policy_is_refused() {
    let ground = ground();
    let secret = "sandbox: {provider: local, env: {auth: {state: {env: [KEY]}}}}\n";
    let bundle = ground.script("run: body.sh\n", "true\n");
    for (policy, manifest, error) in [
        (
            "deny_grants: [mounts]\n",
            "sandbox: {provider: local, mounts: [{source: workspace, at: /w}]}\n",
            "grant_forbidden",
        ),
        (
            "deny_grants: [env]\n",
            "sandbox: {provider: local, env: {passthrough: [OF_CALLER]}}\n",
            "grant_forbidden",
        ),
        (
            "deny_grants: [egress]\n",
            "sandbox: {provider: local, network: {egress: [a.example]}}\n",
            "grant_forbidden",
        ),
        ("deny_grants: [secrets]\n", secret, "grant_forbidden"),
        (
            "deny_grants: [policy]\n",
            "approval: always\n",
            "grant_forbidden",
        ),
        (
            "maxima: {memory: 128m}\n",
            "sandbox: {provider: local, limits: {memory_mb: 129}}\n",
            "limit_above_maximum",
        ),
    ] {
        let policy = ground.write("policy.yaml", policy);
        let flags = ["--policy", policy.to_str().expect("text")];
        let done = run(&ground, manifest, &flags, &["true"]);
        done.assert_error("refused", error);
        // As for a bundle.
        let own = ground.write("own.yaml", format!("run: body.sh\n{manifest}"));
        let of_bundle = ["--manifest", own.to_str().expect("text")];
        let workspace = ground.workspace();
        let workspace = ["--workspace", workspace.to_str().expect("text")];
        let flags = [&flags[..], &of_bundle, &workspace].concat();
        ground.exec(&flags, &bundle).assert_error("refused", error);
    }
}

fn create(host: &Host, directory: &Path, flags: &[&str]) -> Said {
    let words = [
        &["sandbox", "create", "--name", "one", "--manifest", "m.yaml"],
        flags,
    ]
    .concat();
    host.say_in(directory, &words)
}

#[test]
fn a_sandbox_has_the_block_of_its_manifest_and_commands_cannot_widen_it() {
    let host = Host::new();
    let work = host.ground.workspace();
    host.ground.write("work/sub/file", "kept\n");
    let manifest = "sandbox:\n  provider: local\n  config: {cwd: sub, shell: /bin/bash}\n  \
                    mounts: [{source: workspace, at: /w, mode: read-only}]\n  \
                    limits: {memory_mb: 99}\n";
    host.ground.write("work/m.yaml", manifest);
    let created = create(&host, &work, &["--json=report.json"]);
    assert_eq!(
        (created.code, &*created.stdout),
        (0, "one\n"),
        "{created:?}"
    );
    let text = "pwd; cat file; echo ${BASH_VERSION:+bash}; ! touch /w/new";
    for (words, code, stdout) in [
        (&["one", "--", text][..], 0, "/w/sub\nkept\nbash\n"),
        (&["one", "--", "pwd"], 0, "/w/sub\n"),
        (&["-w", "/tmp", "one", "--", "pwd"], 0, "/tmp\n"),
        (&["one", "--", "echo", "a && b"], 0, "a && b\n"),
    ] {
        let done = host.say(&[&["sandbox", "exec"], words].concat());
        assert_eq!((done.code, &*done.stdout), (code, stdout), "{done:?}");
    }
    assert_eq!(host.say(&["sandbox", "rm", "one"]).code, 0);
    let report = std::fs::read(work.join("report.json")).expect("a report");
    let report: serde_json::Value = serde_json::from_slice(&report).expect("a document");
    assert_eq!(
        report["limits"]["memory_bytes"]["source"],
        "sandbox.limits.memory_mb"
    );
    assert_eq!(report["limits"]["memory_bytes"]["effective"], 99 << 20);
    // Its lifetime is not that of a command.
    assert_eq!(
        report["limits"]["wall_time_ms"]["effective"],
        serde_json::Value::Null
    );
    host.assert_empty();
}

#[test]
fn the_times_of_a_manifest_are_limits_of_each_command_and_the_lower_one_counts() {
    let host = Host::new();
    let manifest = "timeout_ms: 90000\nsandbox: {provider: local, limits: {timeout_ms: 400}}\n";
    host.ground.write("work/m.yaml", manifest);
    let work = host.ground.path("work");
    let created = create(&host, &work, &["--grace", "0s"]);
    assert_eq!(created.code, 0, "{created:?}");
    for (flags, limit, source) in [
        (&[][..], 400, "`timeout_ms` of the sandbox's manifest"),
        (
            &["--timeout", "90s"],
            400,
            "`timeout_ms` of the sandbox's manifest",
        ),
        (&["--timeout", "100ms"], 100, "--timeout sets it"),
    ] {
        let words = [&["sandbox", "exec"], flags, &["one", "--", "sleep", "1000"]].concat();
        let done = host.say(&words);
        assert_eq!(done.code, 124, "{done:?}");
        assert!(done.stderr.contains(source), "{done:?}");
        assert!(done.stderr.contains(&format!("{limit} ms")), "{done:?}");
        let states = host.list();
        let latest = states[0]["ended"]["latest"].as_array().expect("a list");
        assert_eq!(latest.last().expect("a command")["timeout_ms"], limit);
    }
    // Copies are no commands of the caller.
    let copied = host.say(&["sandbox", "cp", "one:/etc/passwd", "-"]);
    assert_eq!(copied.code, 0, "{copied:?}");
    let states = host.list();
    let latest = states[0]["ended"]["latest"].as_array().expect("a list");
    assert_eq!(
        latest.last().expect("a copy")["timeout_ms"],
        serde_json::Value::Null
    );
    assert_eq!(host.say(&["sandbox", "rm", "one"]).code, 0);
    host.assert_empty();
}

#[test]
fn the_cpu_time_of_a_manifest_is_a_limit_of_each_command() {
    if !support::has_cgroup() {
        return support::skip("the CPU time of one command is counted by a cgroup");
    }
    let host = Host::new();
    let manifest = "sandbox: {provider: local, limits: {cpu_ms: 300}}\n";
    host.ground.write("work/m.yaml", manifest);
    let created = create(&host, &host.ground.path("work"), &["--grace", "0s"]);
    assert_eq!(created.code, 0, "{created:?}");
    for _ in 0..2 {
        let done = host.shell("one", "while :; do :; done");
        assert_eq!(done.code, 124, "{done:?}");
        assert!(
            done.stderr.contains("`cpu_ms` of the sandbox's manifest"),
            "{done:?}"
        );
    }
    assert_eq!(host.shell("one", "echo on").stdout, "on\n");
}
