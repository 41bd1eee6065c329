//! Inputs: the structured input and the staged files.

use std::os::unix::fs::symlink;

use serde_json::{Value, json};

use super::sha256;
use support::Ground;
use support::text;

/// Prints its input, then the file at `$RUNNER_INPUT`.
const SHOW: &str = "cat; echo; cat \"$RUNNER_INPUT\"; echo\n";
const SCHEMA: &str = "run: body.sh\ninputs:\n  type: object\n  required: [n]\n  \
    additionalProperties: false\n  properties:\n    n: {type: integer, minimum: 1}\n    \
    list: {type: array, items: {type: string}}\n";

#[test]
fn the_structured_input_is_on_standard_input_and_in_its_file() {
    let ground = Ground::new();
    let bundle = ground.script(SCHEMA, SHOW);
    let file = ground.write("inputs.json", "{\"n\": 2}\n");
    let from_file = format!("@{}", text(&file));
    for (inputs, expected) in [("{\"n\": 1}", "{\"n\":1}"), (&from_file, "{\"n\":2}")] {
        let done = ground.exec(&["--inputs", inputs], &bundle);
        done.assert_exited(0);
        assert_eq!(done.text(), format!("{expected}\n{expected}\n"));
    }
}

#[test]
fn declared_inputs_default_to_an_empty_object() {
    let ground = Ground::new();
    let manifest = "run: body.sh\ninputs: {type: object}\n";
    let done = ground.exec(&[], &ground.script(manifest, SHOW));
    done.assert_exited(0);
    assert_eq!(done.text(), "{}\n{}\n");
    let done = ground.exec(&[], &ground.script(SCHEMA, SHOW));
    done.assert_error("refused", "invalid-input")
        .assert_nothing_ran();
}

#[test]
fn a_body_without_inputs_reads_nothing_and_has_no_input_file() {
    let ground = Ground::new();
    let body = "cat; test -e \"$RUNNER_INPUT\" || echo none\n";
    let case = ground.command(&["exec", text(&ground.script("run: body.sh\n", body))]);
    let done = case.stdin("not for the body").done();
    done.assert_exited(0);
    assert_eq!(done.text(), "none\n");
}

#[test]
fn inputs_are_judged_before_anything_runs_and_every_place_is_named() {
    let ground = Ground::new();
    let bundle = ground.script(SCHEMA, "echo ran\n");
    for (inputs, pointer) in [
        ("{\"n\": 0}", "/n"),
        ("{\"n\": \"1\"}", "/n"),
        ("{\"n\": 1, \"list\": [\"a\", 2]}", "/list/1"),
        ("{\"n\": 1, \"other\": true}", "other"),
        ("[]", "/"),
    ] {
        let done = ground.exec(&["--inputs", inputs], &bundle);
        done.assert_error("refused", "invalid-input")
            .assert_message(pointer)
            .assert_nothing_ran();
    }
}

#[test]
fn inputs_that_are_no_document_are_refused() {
    let ground = Ground::new();
    let bundle = ground.script(SCHEMA, "echo ran\n");
    let fifo = ground.path("fifo");
    make_fifo(&fifo);
    let fifo = format!("@{}", text(&fifo));
    let deep = "[".repeat(10_000);
    for inputs in [
        "{\"n\": 1",
        "{\"n\": 1} {}",
        "",
        "NaN",
        "@/nonexistent",
        &fifo,
        &deep,
    ] {
        let done = ground.exec(&["--inputs", inputs], &bundle);
        done.assert_error("refused", "inputs_unreadable")
            .assert_nothing_ran();
    }
}

/// A document from standard input, a pipe and a file of 3 MiB; a body that does not read it has not failed.
#[test]
fn inputs_come_from_standard_input_and_from_any_file() {
    let ground = Ground::new();
    let schema = "run: body.sh\ninputs: {type: object}\n";
    let bundle = ground.script(schema, "cat \"$RUNNER_INPUT\" | tail -c 9\n");
    let words = ["exec", "--inputs", "@-", text(&bundle)];
    let done = ground.command(&words).stdin("{\"n\": 4321}").done();
    done.assert_exited(0);
    assert_eq!(done.text(), "\"n\":4321}");
    let large = format!("{{\"a\": \"{}\", \"n\": 1234}}", "x".repeat(3 << 20));
    let file = format!("@{}", text(&ground.write("large.json", &large)));
    let done = ground.exec(&["--inputs", &file], &bundle);
    done.assert_exited(0);
    assert_eq!(done.text(), "\"n\":1234}");
    let reads_nothing = ground.script(schema, "exec true\n");
    let done = ground.exec(&["--inputs", &file], &reads_nothing);
    done.assert_exited(0);
    assert_eq!(done.own_warnings(), [serde_json::json!(null); 0]);
    // As the shell's <(…) passes it.
    let words = ["exec", "--inputs", "@/dev/stdin", text(&bundle)];
    let done = ground.command(&words).stdin("{\"n\": 5678}").done();
    done.assert_exited(0);
    assert_eq!(done.text(), "\"n\":5678}");
}

#[test]
fn with_the_caller_s_standard_input_passed_on_the_document_is_in_its_file_only() {
    let ground = Ground::new();
    let bundle = ground.script(SCHEMA, SHOW);
    let words = ["exec", "-i", "--inputs", "{\"n\": 1}", text(&bundle)];
    let done = ground.command(&words).stdin("typed").done();
    done.assert_exited(0);
    assert_eq!(done.text(), "typed\n{\"n\":1}\n");
}

#[test]
fn a_body_that_does_not_read_its_input_ends_as_it_wants() {
    let ground = Ground::new();
    let bundle = ground.script("run: body.sh\n", "wc -c < \"$RUNNER_INPUT\"; exit 5\n");
    let file = ground.write("large.json", format!("\"{}\"", "x".repeat(900_000)));
    let done = ground.exec(&["--inputs", &format!("@{}", text(&file))], &bundle);
    done.assert_exited(5);
    assert_eq!(done.text(), "900002\n");
}

#[test]
fn files_without_a_workspace_are_refused() {
    let ground = Ground::new();
    let bundle = ground.script("run: body.sh\n", "echo ran\n");
    for flags in [["--in", "a=a.txt"], ["--out", "a=a.txt"]] {
        let done = ground.exec(&flags, &bundle);
        done.assert_error("refused", "workspace_missing")
            .assert_hint("--workspace")
            .assert_nothing_ran();
    }
    let missing = ground.path("nowhere");
    let done = ground.exec(&["--workspace", text(&missing), "--in", "a=b"], &bundle);
    done.assert_error("refused", "workspace_unusable")
        .assert_nothing_ran();
}

#[test]
fn the_input_document_cannot_be_changed() {
    let ground = Ground::new();
    let body = "echo x > \"$RUNNER_INPUT\" || rm -f \"$RUNNER_INPUT\" || chmod 777 \"$RUNNER_INPUT\" \
        || mv /runner /tmp/x || echo kept; cat \"$RUNNER_INPUT\"\n";
    let done = ground.exec(
        &["--inputs", "{\"a\":1}"],
        &ground.script("run: body.sh\n", body),
    );
    done.assert_exited(0);
    assert_eq!(done.text(), "kept\n{\"a\":1}");
}

#[test]
fn the_input_directory_is_set_by_the_runner_only() {
    let ground = Ground::new();
    ground.write("work/a.txt", "A");
    let manifest = "run: body.sh\ninputs: {type: object, additionalProperties: false, \
        properties: {n: {type: integer}}}\ninputsFiles: {a: {path: a.txt}}\n";
    let inputs = "{\"n\": 1, \"_workflowFsRoot\": \"/etc\"}";
    let done = ground.exec_script(&["--inputs", inputs], manifest, "cat\n");
    done.assert_exited(0);
    let seen: Value = serde_json::from_slice(&done.stdout).expect("JSON");
    assert_eq!(seen, json!({"n": 1, "_workflowFsRoot": "/scratch"}));
}

#[test]
fn declared_files_are_staged_with_their_digests() {
    let ground = Ground::new();
    ground.write("work/data/a.txt", "contents of a");
    ground.write("work/b.bin", [0_u8, 255, 10]);
    let manifest = "run: body.sh\ninputsFiles:\n  a: {path: data/a.txt}\n  b.bin: {path: b.bin}\n";
    let body = "cat /scratch/a; wc -c < /scratch/b.bin; ls /scratch\n";
    let done = ground.exec_script(&[], manifest, body);
    done.assert_exited(0);
    assert_eq!(done.text(), "contents of a3\na\nb.bin\n");
    let staged = &done.report["inputs"];
    assert_eq!(staged[0]["sha256"], sha256(b"contents of a"));
    assert_eq!(staged[0]["bytes"], 13);
    assert_eq!(staged[0]["path"], "data/a.txt");
    assert_eq!(staged[1]["sha256"], sha256(&[0, 255, 10]));
}

#[test]
fn a_declared_file_that_is_missing_stops_the_run_before_it_starts() {
    let ground = Ground::new();
    let manifest = "run: body.sh\ninputsFiles: {a: {path: nowhere.txt}}\n\
        outputsFiles: {out: {path: out.txt}}\n";
    let done = ground.exec_script(&[], manifest, "echo ran; echo ran > /scratch/out\n");
    done.assert_error("refused", "input_missing")
        .assert_message("nowhere.txt")
        .assert_nothing_ran();
    assert!(!ground.path("work/out.txt").exists());
}

/// D-06.
#[test]
fn changes_of_the_staged_copy_do_not_reach_the_original() {
    let ground = Ground::new();
    let original = ground.write("work/a.txt", "original");
    let manifest = "run: body.sh\ninputsFiles: {a: {path: a.txt}}\n";
    let body = "echo changed > /scratch/a; chmod 777 /scratch/a; touch -d 2001-01-01 /scratch/a; \
        rm /scratch/a; ln -s /etc /scratch/a; echo done\n";
    ground.exec_script(&[], manifest, body).assert_exited(0);
    assert_eq!(
        std::fs::read_to_string(&original).expect("read"),
        "original"
    );
}

/// D-02, D-04.
#[test]
fn an_input_that_leads_out_of_the_workspace_is_refused_and_not_read() {
    let ground = Ground::new();
    let secret = ground.write("outside/secret", ground.canary());
    symlink(&secret, ground.path("work/link")).expect("linked");
    symlink(ground.path("outside"), ground.path("work/folder")).expect("linked");
    symlink("/proc/self", ground.path("work/self")).expect("linked");
    symlink("link", ground.path("work/again")).expect("linked");
    for path in [
        "link",
        "folder/secret",
        "self/environ",
        "self/fd/3",
        "again",
    ] {
        let manifest = format!("run: body.sh\ninputsFiles: {{a: {{path: {path}}}}}\n");
        let done = ground.exec_script(&[], &manifest, "cat /scratch/a\n");
        done.assert_error("refused", "input_escapes")
            .assert_nothing_ran();
        let done = ground.exec_script(
            &["--in", &format!("a={path}")],
            "run: body.sh\n",
            "cat /scratch/a\n",
        );
        done.assert_error("refused", "input_escapes")
            .assert_nothing_ran();
    }
}

/// D-03.
#[test]
fn a_special_file_as_input_is_refused_without_blocking() {
    let ground = Ground::new();
    make_fifo(&ground.path("work/fifo"));
    std::fs::create_dir(ground.path("work/folder")).expect("made");
    for path in ["fifo", "folder"] {
        let manifest = format!("run: body.sh\ninputsFiles: {{a: {{path: {path}}}}}\n");
        let done = ground.exec_script(&[], &manifest, "cat /scratch/a\n");
        done.assert_error("refused", "input_not_regular")
            .assert_nothing_ran();
    }
}

#[test]
fn files_of_flags_add_to_those_of_the_manifest_and_replace_the_same_key() {
    let ground = Ground::new();
    for name in ["a", "b", "c"] {
        ground.write(&format!("work/{name}.txt"), name);
    }
    let manifest = "run: body.sh\ninputsFiles: {one: {path: a.txt}, two: {path: b.txt}}\n\
        outputsFiles: {out: {path: theirs.txt}}\n";
    let flags = [
        "--in",
        "two=c.txt",
        "--in",
        "three=a.txt",
        "--out",
        "out=mine.txt",
        "--out",
        "more=more.txt",
    ];
    let body = "cd /scratch; cat one two three; echo out > out; echo more > more\n";
    let done = ground.exec_script(&flags, manifest, body);
    done.assert_exited(0);
    assert_eq!(done.text(), "aca");
    assert!(!ground.path("work/theirs.txt").exists());
    for name in ["mine.txt", "more.txt"] {
        assert!(ground.path("work").join(name).exists(), "{name}");
    }
    for flags in [
        ["--in", "a=../x"],
        ["--in", "a=/etc/passwd"],
        ["--in", "../a=x"],
        ["--out", "a=x/../../y"],
        ["--out", "a/b=x"],
        ["--out", "a=<runid>"],
    ] {
        let done = ground.exec_script(&flags, "run: body.sh\n", "echo ran\n");
        assert_eq!(done.outcome(), "refused", "{flags:?} {done:#?}");
        done.assert_nothing_ran();
    }
}

#[test]
fn files_of_a_bundle_s_own_manifest_need_a_workspace_that_the_caller_states() {
    let ground = Ground::new();
    ground.write("work/a.txt", "A");
    let manifest = "run: body.sh\ninputsFiles: {a: {path: a.txt}}\n";
    let bundle = ground.script(manifest, "cat /scratch/a\n");
    let mut case = ground.command(&["exec", text(&bundle)]);
    case.command.current_dir(ground.workspace());
    case.done()
        .assert_error("refused", "grant_required")
        .assert_hint("--workspace DIR")
        .assert_nothing_ran();
    // The caller's own manifest refers to the caller's working directory.
    let own = ground.write("own.yaml", manifest);
    let mut case = ground.command(&["exec", "--manifest", text(&own), text(&bundle)]);
    case.command.current_dir(ground.workspace());
    let done = case.done();
    done.assert_exited(0);
    assert_eq!(done.text(), "A");
}

pub(crate) fn make_fifo(path: &std::path::Path) {
    let kind = rustix::fs::FileType::Fifo;
    let mode = rustix::fs::Mode::from_raw_mode(0o600);
    rustix::fs::mknodat(rustix::fs::CWD, path, kind, mode, 0).expect("made");
}
