//! Outputs: synced files and the structured output.

use serde_json::json;

use super::sha256;
use support::text;
use support::{Ground, is_root, skip};

#[test]
fn declared_files_are_synced_after_success_and_after_failure() {
    let ground = Ground::new();
    let manifest = "run: body.sh\noutputsFiles: {out: {path: a/deep/er/out.txt}}\n";
    for code in [0, 1] {
        let contents = format!("code {code}\n");
        let body = format!("printf 'code {code}\\n' > /scratch/out; exit {code}\n");
        let done = ground.exec_script(&[], manifest, &body);
        done.assert_exited(code);
        let output = done.output("out");
        assert_eq!(output["state"], "synced", "{done:#?}");
        assert_eq!(output["path"], "a/deep/er/out.txt");
        assert_eq!(output["sha256"], sha256(contents.as_bytes()));
        assert_eq!(output["bytes"], contents.len());
        let written = std::fs::read_to_string(ground.path("work/a/deep/er/out.txt"));
        assert_eq!(written.expect("read"), contents);
    }
    // Only the file: no temporary name remains.
    let left = std::fs::read_dir(ground.path("work/a/deep/er")).expect("listed");
    assert_eq!(left.count(), 1);
}

#[test]
fn a_large_file_is_synced_with_its_digest() {
    let ground = Ground::new();
    let manifest = "run: body.sh\noutputsFiles: {out: {path: out.bin}}\n";
    let body = "head -c 20000000 /dev/zero > /scratch/out; echo end >> /scratch/out\n";
    let done = ground.exec_script(&[], manifest, body);
    done.assert_exited(0);
    let written = std::fs::read(ground.path("work/out.bin")).expect("read");
    assert_eq!(written.len(), 20_000_004);
    assert_eq!(done.output("out")["sha256"], sha256(&written));
    assert_eq!(done.output("out")["bytes"], 20_000_004);
}

/// D-14: holes, which take no space inside.
#[test]
fn outputs_together_are_no_larger_than_the_space_that_they_come_from() {
    let ground = Ground::new();
    let manifest = "run: body.sh\noutputsFiles: {a: {path: a}, b: {path: b}}\n";
    let body = "truncate -s 20M /scratch/a /scratch/b\n";
    let done = ground.exec_script(&["--disk=24m"], manifest, body);
    assert_eq!(done.output("a")["state"], "synced", "{done:#?}");
    assert_eq!(done.output("b")["state"], "failed", "{done:#?}");
    assert_eq!(done.output("b")["error"]["code"], "output_too_large");
    assert!(!ground.path("work/b").exists());
}

#[test]
fn tokens_are_substituted_once_with_values_of_the_run() {
    let ground = Ground::new();
    let manifest = "id: my-tool\nrun: body.sh\n\
        outputsFiles: {out: {path: 'r/<runId>/<toolId>-<workflowId>/<isoDate>.txt'}}\n";
    let done = ground.exec_script(
        &[],
        manifest,
        "echo x > /scratch/out; echo $RUNNER_RUN_ID\n",
    );
    done.assert_exited(0);
    let run_id = done.report["run_id"].as_str().expect("text");
    assert_eq!(done.text().trim(), run_id);
    let path = done.output("out")["path"].as_str().expect("text");
    let start = format!("r/{run_id}/my-tool-my-tool/");
    let day = path
        .strip_prefix(&start)
        .expect("the tokens")
        .trim_end_matches(".txt");
    let form: String = day
        .chars()
        .map(|sign| if sign.is_ascii_digit() { '9' } else { sign })
        .collect();
    assert_eq!(form, "9999-99-99");
    assert!(ground.path("work").join(path).exists());
}

#[test]
fn a_file_that_the_body_did_not_make_is_a_warning() {
    let ground = Ground::new();
    let old = ground.write("work/out.txt", "old");
    let manifest = "run: body.sh\noutputsFiles: {out: {path: out.txt}, more: {path: more.txt}}\n";
    let done = ground.exec_script(&[], manifest, "echo more > /scratch/more\n");
    done.assert_exited(0);
    assert_eq!(done.output("out")["state"], "missing");
    assert_eq!(done.output("more")["state"], "synced");
    assert!(done.warns("output_missing"));
    assert!(done.stderr.contains("/scratch/out"), "{}", done.stderr);
    assert_eq!(std::fs::read_to_string(old).expect("read"), "old");
}

#[test]
fn a_failed_optional_output_is_reported_and_does_not_fail_the_run() {
    let ground = Ground::new();
    std::fs::create_dir(ground.path("work/taken")).expect("made");
    let manifest = "run: body.sh\noutputsFiles: {out: {path: taken}, more: {path: more.txt}}\n";
    let done = ground.exec_script(&[], manifest, "cd /scratch; echo 1 > out; echo 2 > more\n");
    done.assert_exited(0);
    assert_eq!(done.output("out")["state"], "failed");
    assert_eq!(
        done.output("out")["error"]["code"],
        "destination_is_directory"
    );
    assert_eq!(done.output("more")["state"], "synced");
    assert!(done.warns("sync_failed"));
    assert!(done.stderr.contains("taken"), "{}", done.stderr);
}

/// D-21
#[test]
fn a_required_output_that_cannot_be_delivered_fails_the_run_and_says_why() {
    let ground = Ground::new();
    std::fs::create_dir(ground.path("work/taken")).expect("made");
    ground.write("work/file", "old");
    let body = "cd /scratch; head -c 200000 /dev/zero > out; echo 2 > more; echo 3 > also\n";
    let manifest = |path: &str, also: &str| {
        format!(
            "run: body.sh\noutputsFiles: {{out: {{path: {path}, required: true}}, \
             also: {{path: {also}, required: true}}, more: {{path: more.txt}}}}\n"
        )
    };
    for (path, part) in [
        ("taken", "is a directory"),
        ("file/out", "leads through a link or out of that directory"),
    ] {
        let done = ground.exec_script(&[], &manifest(path, "also.txt"), body);
        done.assert_error("failed", "output_undelivered");
        done.assert_message("output `out`").assert_message(part);
        assert!(done.report["error"]["hint"].is_string(), "{done:#?}");
        assert_eq!(done.code, 125);
        assert_eq!(done.report["exit"]["code"], 0);
        assert_eq!(done.output("out")["state"], "failed");
        assert_eq!(done.output("more")["state"], "synced");
        // The warnings do not repeat the error.
        assert_eq!(done.stderr.matches(part).count(), 1, "{}", done.stderr);
    }
    let done = ground.exec_script(&[], &manifest("taken", "file/also"), body);
    done.assert_message("2 required outputs were not delivered");
    done.assert_message("output `also`");
    // A body that failed keeps its exit code, and the missing output is a warning.
    let failing = format!("{body}exit 3\n");
    let done = ground.exec_script(&[], &manifest("taken", "also.txt"), &failing);
    done.assert_exited(3);
    assert!(done.warns("sync_failed"), "{done:#?}");
    assert!(done.stderr.contains("is a directory"), "{}", done.stderr);
}

/// D-21
#[test]
fn a_read_only_workspace_fails_a_run_with_a_required_output() {
    let ground = Ground::new();
    let unshare = if is_root() { "-m" } else { "-Urm" };
    let mount = ["mount", "-t", "tmpfs", "none", "/mnt"];
    let probe = std::process::Command::new("unshare")
        .arg(unshare)
        .args(mount)
        .output();
    if !probe.is_ok_and(|done| done.status.success()) {
        return skip("this user cannot mount a tmpfs in a namespace of its own");
    }
    // Root of a user namespace only has no /run/runner.
    let runtime = ground.path("runtime");
    let body = "head -c 200000 /dev/zero > /scratch/out\n";
    for (required, make, code, part) in [
        ("true", "mount -o remount,bind,ro .", 125, "Read-only"),
        ("true", "true", 125, "No space left"),
        ("false", "mount -o remount,bind,ro .", 0, "Read-only"),
        ("false", "true", 0, "No space left"),
    ] {
        let manifest =
            format!("run: body.sh\noutputsFiles: {{out: {{path: o, required: {required}}}}}\n");
        let bundle = ground.script(&manifest, body);
        let workspace = ground.workspace();
        let script = format!(
            "mount -t tmpfs -o size=64k none {0} && cd {0} && {make} && exec \"$@\"",
            text(&workspace)
        );
        let words = ["exec", "--workspace", text(&workspace), text(&bundle)];
        let done = ground
            .command(&words)
            .through("unshare", &[unshare, "sh", "-c", &script, "sh"])
            .env("RUNNER_OPT_RUNTIME_DIRECTORY", text(&runtime))
            .done();
        assert_eq!(done.code, code, "{required} {part}: {done:#?}");
        assert!(done.stderr.contains(part), "{required}: {}", done.stderr);
        assert_eq!(done.output("out")["state"], "failed", "{done:#?}");
        if code == 125 {
            done.assert_error("failed", "output_undelivered");
        } else {
            assert!(done.warns("sync_failed"), "{done:#?}");
        }
    }
}

#[test]
fn a_directory_for_outputs_takes_all_of_them_whatever_their_paths() {
    let ground = Ground::new();
    let directory = ground.path("results");
    std::fs::create_dir(&directory).expect("made");
    ground.write("work/in.txt", "in");
    let manifest = "run: body.sh\noutputsFiles: {out: {path: a/deep/out.txt}, \
        top: {path: top.txt, required: true}}\n";
    let body = "cd /scratch; echo out > out; echo top > top; echo flag > flag\n";
    let flags = ["--out-dir", text(&directory), "--out", "flag=b/flag.txt"];
    let names = ["a/deep/out.txt", "top.txt", "b/flag.txt"];
    let bundle = ground.script(manifest, body);
    // It replaces the destinations: neither a workspace nor a grant is needed.
    let done = ground.exec(&flags, &bundle);
    done.assert_exited(0);
    for (name, contents) in names.iter().zip(["out\n", "top\n", "flag\n"]) {
        let written = std::fs::read_to_string(directory.join(name));
        assert_eq!(written.expect("synced"), contents);
    }
    // Inputs still come from the workspace, to which nothing is written.
    std::fs::remove_dir_all(directory.join("a")).expect("removed");
    let flags = [&flags[..], &["--in", "in=in.txt"]].concat();
    let done = ground.exec_script(&flags, manifest, &format!("{body}cat in\n"));
    done.assert_exited(0);
    assert_eq!(done.text(), "in");
    assert!(directory.join(names[0]).exists());
    let left = std::fs::read_dir(ground.workspace()).expect("listed");
    assert_eq!(left.count(), 1);
    ground
        .exec(&flags, &bundle)
        .assert_error("refused", "workspace_missing");
    // The message names an output that cannot be written there.
    std::fs::remove_file(directory.join("top.txt")).expect("removed");
    std::fs::create_dir(directory.join("top.txt")).expect("made");
    let done = ground.exec(&flags[..2], &bundle);
    done.assert_error("failed", "output_undelivered")
        .assert_message(text(&directory));
    // The hint for a missing directory creates it.
    let missing = ground.path("not/yet");
    let done = ground.exec(&["--out-dir", text(&missing)], &bundle);
    done.assert_error("refused", "output_directory_unusable")
        .assert_message(text(&missing))
        .assert_nothing_ran();
    let hint = done.report["error"]["hint"].as_str().expect("a hint");
    let command = hint.split(['(', ')']).nth(1).expect("a command");
    let made = std::process::Command::new("sh")
        .args(["-c", command])
        .status();
    assert!(made.expect("started").success(), "{hint}");
    let flags = ["--out-dir", text(&missing)];
    ground.exec(&flags, &bundle).assert_exited(0);
    assert!(missing.join("top.txt").exists());
}

#[test]
fn nothing_is_synced_after_the_run_was_cancelled() {
    let ground = Ground::new();
    let old = ground.write("work/out.txt", "old");
    let manifest = "run: body.sh\noutputsFiles: {out: {path: out.txt}}\n";
    let shared = ground.path("shared");
    std::fs::create_dir(&shared).expect("made");
    let body = format!(
        "echo new > /scratch/out; touch {}/ready; sleep 100\n",
        text(&shared)
    );
    let bundle = ground.script(manifest, &body);
    let workspace = ground.workspace();
    let words = [
        "exec",
        "--workspace",
        text(&workspace),
        "--rw",
        text(&shared),
        "--grace",
        "0s",
        text(&bundle),
    ];
    let mut running = ground.command(&words).start();
    running.until("the body is ready", || shared.join("ready").exists());
    running.signal(rustix::process::Signal::TERM);
    let done = running.done();
    done.assert_outcome("cancelled", 143);
    assert_eq!(done.output("out")["state"], "skipped", "{done:#?}");
    assert_eq!(std::fs::read_to_string(old).expect("read"), "old");
}

#[test]
fn files_are_synced_after_a_limit_ended_the_run() {
    let ground = Ground::new();
    let manifest = "run: body.sh\noutputsFiles: {out: {path: out.txt}}\n";
    let flags = ["--timeout", "1s", "--grace", "0s"];
    let done = ground.exec_script(&flags, manifest, "echo part > /scratch/out; sleep 100\n");
    done.assert_outcome("timed_out", 124);
    assert_eq!(done.output("out")["state"], "synced", "{done:#?}");
    let written = std::fs::read_to_string(ground.path("work/out.txt"));
    assert_eq!(written.expect("read"), "part\n");
}

#[test]
fn readers_of_the_destination_see_the_old_or_the_new_file() {
    let ground = Ground::new();
    let path = ground.write("work/out.bin", vec![b'o'; 8_000_000]);
    let manifest = "run: body.sh\noutputsFiles: {out: {path: out.bin}}\n";
    let body = "head -c 8000000 /dev/zero | tr '\\0' n > /scratch/out\n";
    let over = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let mut rounds = 0;
            while !over.load(std::sync::atomic::Ordering::Relaxed) {
                let seen = std::fs::read(&path).expect("always there");
                assert_eq!(seen.len(), 8_000_000);
                assert!(seen.iter().all(|byte| *byte == seen[0]), "a mix");
                rounds += 1;
            }
            rounds
        });
        let done = ground.exec_script(&[], manifest, body);
        over.store(true, std::sync::atomic::Ordering::Relaxed);
        done.assert_exited(0);
        assert!(0 < reader.join().expect("read"));
    });
    assert_eq!(std::fs::read(&path).expect("read")[0], b'n');
}

#[test]
fn nothing_is_synced_after_a_refusal() {
    let ground = Ground::new();
    let manifest = "run: gone.sh\noutputsFiles: {out: {path: out.txt}}\n";
    let done = ground.exec_script(&[], manifest, "echo x > /scratch/out\n");
    done.assert_error("refused", "run_target_missing");
    assert_eq!(done.report["outputs"], json!([]));
    assert_eq!(
        std::fs::read_dir(ground.workspace())
            .expect("listed")
            .count(),
        0
    );
}

const OUTPUTS: &str = "run: body.sh\noutputs: {type: object, required: [n], \
    properties: {n: {type: integer}}}\n";

#[test]
fn the_document_that_the_body_writes_is_its_output() {
    let ground = Ground::new();
    for body in [
        "echo '{\"n\": 1}' > \"$RUNNER_OUTPUT\"; echo words\n",
        "echo '{\"n\": 1}' > /runner/out/x && mv /runner/out/x \"$RUNNER_OUTPUT\"\n",
    ] {
        let done = ground.exec(&[], &ground.script(OUTPUTS, body));
        done.assert_exited(0);
        assert_eq!(done.report["output"], json!({"n": 1}));
    }
    // Also without a declared schema.
    let body = "echo '[1]' > \"$RUNNER_OUTPUT\"\n";
    let done = ground.exec(&[], &ground.script("run: body.sh\n", body));
    done.assert_exited(0);
    assert_eq!(done.report["output"], json!([1]));
}

#[test]
fn a_whole_standard_output_of_one_json_value_is_the_output_too() {
    let ground = Ground::new();
    let bundle = ground.script(OUTPUTS, "printf '{\"n\":'; sleep 0.01; echo ' 2}'\n");
    let done = ground.exec(&[], &bundle);
    done.assert_exited(0);
    assert_eq!(done.report["output"], json!({"n": 2}));
    assert_eq!(done.text(), "{\"n\": 2}\n", "it is passed through as well");
    // The document takes precedence.
    let body = "echo '{\"n\": 1}'; echo '{\"n\": 2}' > \"$RUNNER_OUTPUT\"\n";
    let done = ground.exec(&[], &ground.script(OUTPUTS, body));
    assert_eq!(done.report["output"], json!({"n": 2}));
}

#[test]
fn a_truncated_standard_output_is_not_synced() {
    let ground = Ground::new();
    let manifest = "run: body.sh\noutputs: {type: integer}\n";
    let cut = ground.script(manifest, "printf 1234\n");
    let done = ground.exec(&["--max-output", "2"], &cut);
    assert_eq!(done.text(), "12");
    done.assert_error("failed", "missing-output");
    // 17 MiB of spaces and one number: the copy is limited, what is passed through is not.
    let long = ground.script(
        manifest,
        "head -c 17825792 /dev/zero | tr '\\0' ' '; echo 1\n",
    );
    let done = ground.exec(&[], &long);
    assert_eq!(done.stdout.len(), 17_825_794);
    done.assert_error("failed", "missing-output");
}

#[test]
fn an_output_that_is_missing_or_does_not_satisfy_its_schema_fails_the_run() {
    let ground = Ground::new();
    for (body, code, part) in [
        ("echo words\n", "missing-output", "RUNNER_OUTPUT"),
        ("true\n", "missing-output", "RUNNER_OUTPUT"),
        ("echo '{\"n\": 1} {}'\n", "missing-output", "RUNNER_OUTPUT"),
        ("echo '{\"n\": \"1\"}'\n", "invalid-output", "/n"),
        ("echo '{}' > $RUNNER_OUTPUT\n", "invalid-output", "n"),
        (
            "echo '{\"n\": ' > $RUNNER_OUTPUT\n",
            "invalid-output",
            "JSON",
        ),
        (
            "ln -s /etc/passwd $RUNNER_OUTPUT\n",
            "invalid-output",
            "cannot be opened",
        ),
        (
            "mkfifo $RUNNER_OUTPUT\n",
            "invalid-output",
            "not a regular file",
        ),
        (
            "mkdir $RUNNER_OUTPUT\n",
            "invalid-output",
            "not a regular file",
        ),
        (
            "echo '{\"n\": 1}' > $RUNNER_OUTPUT; chmod 0 $RUNNER_OUTPUT\n",
            "invalid-output",
            "cannot be opened",
        ),
        (
            "truncate -s 17M $RUNNER_OUTPUT\n",
            "invalid-output",
            "16 MiB",
        ),
        (
            "head -c 1000000 /dev/zero | tr '\\0' '[' > $RUNNER_OUTPUT\n",
            "invalid-output",
            "nested deeper",
        ),
        (
            "rm -r /runner/out; mv /runner/out /tmp; rmdir /runner/out; true\n",
            "missing-output",
            "RUNNER_OUTPUT",
        ),
    ] {
        let done = ground.exec(&[], &ground.script(OUTPUTS, body));
        assert_eq!(done.error(), code, "{body}{done:#?}");
        done.assert_outcome("failed", 125).assert_message(part);
        assert_eq!(done.report["exit"]["code"], 0);
    }
}

/// I10: a document is limited by its size in memory, not only by that of its text. The ground
/// checks the peak memory of the supervisor.
#[test]
fn documents_of_many_small_parts_do_not_make_the_supervisor_grow() {
    let ground = Ground::new();
    let repeat = |part: &str, times: u32| {
        format!(
            "python3 -c 'print(\"[0\" + \",{}\" * {times} + \"]\")' > $RUNNER_OUTPUT",
            part.replace('"', "\\\"")
        )
    };
    for (part, accepted) in [("[0]", 100_000), ("{\"a\":0}", 45_000), ("0", 450_000)] {
        let body = repeat(part, accepted);
        let done = ground.exec(&[], &ground.script("run: body.sh\n", &body));
        done.assert_exited(0);
        let output = done.report["output"].as_array().expect("a list");
        assert_eq!(output.len(), accepted as usize + 1);
        let body = repeat(part, accepted * 3);
        let done = ground.exec(&[], &ground.script("run: body.sh\n", &body));
        done.assert_outcome("failed", 125)
            .assert_message("bytes of memory");
        assert_eq!(done.error(), "invalid-output");
    }
    // With both streams captured completely, less memory remains. The report is on standard output,
    // not in the file that the invariants check.
    let flood = "head -c 17000000 /dev/zero; head -c 17000000 /dev/zero >&2";
    let body = format!("{}\n{flood}", repeat("[0]", 100_000));
    let bundle = ground.script("run: body.sh\n", &body);
    let words = ["exec", "--json", bundle.to_str().expect("a plain path")];
    let done = ground.command(&words).without("I8").done();
    let report: serde_json::Value = serde_json::from_slice(&done.stdout).expect("a report");
    assert_eq!(report["error"]["code"], "invalid-output");
    let message = report["error"]["message"].as_str().expect("text");
    assert!(message.contains("bytes of memory"), "{message}");
    assert_eq!(report["stdout"]["dropped_bytes"], 17_000_000 - (16 << 20));
}

#[test]
fn an_output_is_not_judged_after_a_failure() {
    let ground = Ground::new();
    for body in [
        "exit 1\n",
        "echo '{\"n\": \"x\"}'; exit 1\n",
        "echo '{' > $RUNNER_OUTPUT; exit 1\n",
    ] {
        ground
            .exec(&[], &ground.script(OUTPUTS, body))
            .assert_exited(1);
    }
    let body = "echo '{\"n\": \"x\"}' > $RUNNER_OUTPUT; kill -9 $$\n";
    let done = ground.exec(&[], &ground.script(OUTPUTS, body));
    done.assert_outcome("signaled", 137);
}

#[test]
fn files_are_synced_although_the_structured_output_is_missing() {
    let ground = Ground::new();
    let manifest = format!("{OUTPUTS}outputsFiles: {{out: {{path: out.txt}}}}\n");
    let done = ground.exec_script(&[], &manifest, "echo x > /scratch/out\n");
    done.assert_error("failed", "missing-output");
    assert_eq!(done.output("out")["state"], "synced");
    assert!(ground.path("work/out.txt").exists());
}
