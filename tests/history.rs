//! The history of runs: every run is recorded for its user, without what its body wrote, and nothing that a
//! body does changes it.

#![expect(clippy::expect_used, reason = "test code: a failure is a panic")]

use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::process::Command;

use serde_json::Value;

use runner::cli::schema;
use runner::cli::schema::SchemaName;
use support::invariants::eventually;
use support::{Case, Done, Ground, runner};

struct Place {
    ground: Ground,
}

impl Place {
    fn new() -> Self {
        Self {
            ground: Ground::new(),
        }
    }

    fn state(&self) -> PathBuf {
        self.ground.path("state")
    }

    fn case(&self, words: &[&str]) -> Case<'_> {
        let state = self.state();
        let state = state.to_str().expect("text");
        self.ground
            .command(words)
            .env("RUNNER_OPT_STATE_DIRECTORY", state)
    }

    fn done(&self, words: &[&str]) -> Done {
        self.case(words).done()
    }

    /// What a verb prints, and its exit code.
    fn verb(&self, words: &[&str]) -> (i32, String, String) {
        let output = Command::new(runner())
            .args(words)
            .env("RUNNER_OPT_STATE_DIRECTORY", self.state())
            .output()
            .expect("the runner starts");
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let code = output.status.code().expect("an exit code");
        (code, text(&output.stdout), text(&output.stderr))
    }

    fn json(&self, words: &[&str]) -> Value {
        let (code, stdout, stderr) = self.verb(words);
        assert_eq!(code, 0, "{stderr}");
        serde_json::from_str(&stdout).expect("JSON")
    }

    fn states(&self, words: &[&str]) -> Vec<String> {
        let listed = self.json(words);
        let runs = listed["runs"].as_array().expect("a list");
        let states = runs.iter().map(|run| run["state"].as_str().expect("text"));
        states.map(str::to_owned).collect()
    }

    /// All bytes of the history, without recorded output.
    fn text(&self) -> String {
        self.text_below("history")
    }

    fn text_below(&self, directory: &str) -> String {
        let Ok(files) = std::fs::read_dir(self.state().join(directory)) else {
            return String::new();
        };
        let files = files.map(|file| file.expect("listed").path());
        let files = files.filter(|path| path.is_file());
        let texts = files.map(|path| std::fs::read_to_string(path).expect("read"));
        texts.collect()
    }

    /// The lines of one kind, all valid against the schema.
    fn lines(&self, kind: &str) -> Vec<Value> {
        let schema = serde_json::from_str(&schema::text(SchemaName::History)).expect("JSON");
        let schema = jsonschema::validator_for(&schema).expect("a schema");
        let text = self.text() + &self.text_below("history/output");
        let lines = text.lines().map(|line| {
            let line: Value = serde_json::from_str(line).expect("JSON");
            assert!(schema.is_valid(&line), "{line:#}");
            line
        });
        lines.filter_map(|line| line.get(kind).cloned()).collect()
    }
}

///
#[test]
fn a_run_is_recorded_without_the_output_of_its_body_and_without_secrets() {
    let place = Place::new();
    let body = [
        "run",
        "--secret",
        "S=env:VALUE",
        "--",
        "sh",
        "-c",
        "echo sec-of-body; exit 3",
    ];
    let done = place.case(&body).env("VALUE", "the-value-7531").done();
    done.assert_exited(3);
    let mut captured = Command::new(runner());
    captured
        .args(["run", "--json", "--", "echo", "captured-4711"])
        .env("RUNNER_OPT_STATE_DIRECTORY", place.state());
    let captured = captured.output().expect("started");
    assert!(String::from_utf8_lossy(&captured.stdout).contains("captured-4711"));
    let refused = place.done(&["run", "--ro", "/nonexistent/path", "--", "true"]);
    assert_eq!(refused.outcome(), "refused");

    assert_eq!(place.states(&["ps", "--json"]), Vec::<String>::new());
    assert_eq!(
        place.states(&["ps", "-a", "--json"]),
        ["refused", "exited", "exited"]
    );
    let listed = place.json(&["ps", "-a", "--json"]);
    let first = &listed["runs"][2];
    assert_eq!(first["subject"][0], "sh");
    assert_eq!(first["exit_code"], 3);
    let run_id = done.report["run_id"].as_str().expect("an id");
    let recorded = place.json(&["inspect", run_id]);
    for key in [
        "outcome",
        "exit",
        "limits",
        "secrets",
        "usage",
        "started_at",
    ] {
        assert_eq!(recorded[key], done.report[key], "{key}");
    }
    assert_eq!(
        recorded["secrets"][0]["variable"],
        done.report["secrets"][0]["variable"]
    );
    let last = place.json(&["inspect"]);
    assert_eq!(last["outcome"], "refused");
    let text = place.text();
    for secret in ["the-value-7531", "sec-of-body\\n", "\"captured-4711\\n"] {
        assert!(!text.contains(secret), "{secret}: {text}");
    }
    let (code, stdout, _) = place.verb(&["ps", "-a"]);
    assert_eq!(code, 0);
    assert!(
        stdout.contains(run_id) && stdout.contains("exited (3)"),
        "{stdout}"
    );
    let (code, _, stderr) = place.verb(&["inspect", "zz"]);
    assert_eq!(code, 125);
    assert!(stderr.contains("runner ps -a"), "{stderr}");
}

#[test]
fn a_run_that_goes_on_is_listed_and_one_whose_runner_was_killed_too() {
    let place = Place::new();
    let mut running = place
        .case(&["run", "--", "sh", "-c", "exec sleep 600"])
        .start();
    running.until_body_is("sleep");
    assert_eq!(place.states(&["ps", "--json"]), ["running"]);
    running.signal(rustix::process::Signal::KILL);
    drop(running.finish());
    // Its child, which the kernel kills with it, has the lock of the record until it is dead.
    eventually("the run is listed as killed", || {
        place.states(&["ps", "-a", "--json"]) == ["killed"]
    });
    assert_eq!(place.states(&["ps", "--json"]), Vec::<String>::new());
}

#[test]
fn flags_and_configuration_decide_whether_a_run_is_recorded() {
    let place = Place::new();
    place
        .done(&["run", "--no-record", "--", "true"])
        .assert_exited(0);
    let off = place.ground.write("off.yaml", "audit: off\n");
    let off = format!("--policy={}", off.display());
    place.done(&["run", &off, "--", "true"]).assert_exited(0);
    assert!(!place.state().exists(), "something was recorded");

    let required = place.ground.write("required.yaml", "audit: required\n");
    let required = format!("--policy={}", required.display());
    let refused = place.done(&["run", &required, "--no-record", "--", "true"]);
    refused.assert_error("refused", "record_required");
    place
        .done(&["run", &required, "--", "true"])
        .assert_exited(0);
    assert_eq!(place.states(&["ps", "-a", "--json"]), ["exited"]);
}

/// A record that others can read, or that cannot be written, is none.
#[test]
fn a_history_that_is_not_safe_is_a_warning_or_with_required_a_refusal() {
    let place = Place::new();
    place.done(&["run", "--", "true"]).assert_exited(0);
    let directory = place.state().join("history");
    let open = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(&directory, open).expect("changed");
    let done = place.done(&["run", "--", "true"]);
    done.assert_exited(0);
    // Refused before there is a run.
    let refused = place.done(&["run", "--in", "malformed", "--", "true"]);
    assert_eq!(refused.outcome(), "refused");
    for report in [&done.report, &refused.report] {
        let warnings = report["warnings"].to_string();
        assert_eq!(warnings.matches("run_unrecorded").count(), 1, "{warnings}");
    }

    let required = place.ground.write("required.yaml", "audit: required\n");
    let required = format!("--policy={}", required.display());
    let workspace = place.ground.workspace();
    let rw = workspace.to_str().expect("text");
    let made = workspace.join("made");
    let body = format!("touch {}", made.display());
    let done = place.done(&["run", &required, "--rw", rw, "--", "sh", "-c", &body]);
    done.assert_error("refused", "run_unrecorded");
    assert!(!made.exists(), "the body ran");
}

/// the history is not an output, and the body does not see it.
#[test]
fn a_body_does_not_change_the_history() {
    let place = Place::new();
    place.done(&["run", "--", "true"]).assert_exited(0);
    let before = place.text();
    let bundle = place.ground.bundle(&[
        (
            "manifest.yaml",
            "run: [sh, main.sh]\noutputs: {files: {x: {path: history/x}}}\n",
        ),
        ("main.sh", "echo forged > \"$SCRATCH/x\" || true\n"),
    ]);
    let state = place.state();
    let state = state.to_str().expect("text");
    let bundle = bundle.to_str().expect("text");
    let words = ["exec", "--workspace", state, "--out", "x=history/x", bundle];
    let done = place.done(&words);
    done.assert_error("refused", "destination_refused");
    assert!(!place.state().join("history/x").exists());
    let rw = ["run", "--rw", state, "--", "true"];
    place
        .done(&rw)
        .assert_error("refused", "mount_holds_history");
    let body = format!("ls {state}/history && exit 1; echo forged > {state}/history/x; exit 0");
    place
        .done(&["run", "--", "sh", "-c", &body])
        .assert_exited(0);
    assert!(place.text().starts_with(&before));
    assert!(!place.text().contains("\nforged"));
}

/// A-65, F-03: what the body wrote is kept only where that is asked for, without the values of secrets.
#[test]
fn recorded_output_is_printed_again_to_the_same_streams_without_secrets() {
    let place = Place::new();
    let value = "the-value-7531";
    let body = "printf 'out %s\\n' $S; printf 'err \\377 %s\\n' $S >&2; exit 3";
    let words = [
        "run",
        "--record-output",
        "--secret",
        "S=env:VALUE",
        "--",
        "sh",
        "-c",
        body,
    ];
    let done = place.case(&words).env("VALUE", value).done();
    done.assert_exited(3);
    assert!(
        done.text().contains(value),
        "what is passed on is not masked"
    );
    let run_id = done.report["run_id"].as_str().expect("an id");
    let logs = |words: &[&str]| {
        let mut logs = Command::new(runner());
        logs.arg("logs").args(words);
        logs.env("RUNNER_OPT_STATE_DIRECTORY", place.state());
        logs.output().expect("started")
    };
    for words in [&[][..], &["last"], &[run_id]] {
        let printed = logs(words);
        assert_eq!(printed.status.code(), Some(0));
        assert_eq!(printed.stdout, b"out ***\n");
        assert_eq!(printed.stderr, b"err \xff ***\n");
    }
    // Neither in the records of runs, nor in the words of the command.
    assert!(!place.text().contains("out ***"));
    let words = ["run", "--secret", "S=env:VALUE", "--", "echo", value];
    place
        .case(&words)
        .env("VALUE", value)
        .done()
        .assert_exited(0);
    let all = place.text() + &place.text_below("history/output");
    assert!(!all.contains(value), "{all}");

    let printed = logs(&[]);
    assert_eq!(printed.status.code(), Some(125));
    let stderr = String::from_utf8_lossy(&printed.stderr);
    assert!(stderr.contains("--record-output"), "{stderr}");
    assert!(stderr.contains("output_not_recorded"), "{stderr}");
    let file = std::fs::read_dir(place.state().join("history/output"));
    let file = file
        .expect("listed")
        .next()
        .expect("a file")
        .expect("listed");
    let mode = file.metadata().expect("there").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
}

#[test]
fn recorded_output_is_cut_which_is_said_and_captured_output_is_recorded_too() {
    let place = Place::new();
    let body = "head -c 3000000 /dev/zero | tr '\\0' x";
    let done = place.done(&["run", "--record-output", "--", "sh", "-c", body]);
    done.assert_exited(0);
    let (code, stdout, stderr) = place.verb(&["logs"]);
    assert_eq!((code, stdout.len()), (0, 1 << 20));
    let expected = "the last 1951424 of 3000000 bytes of standard output were not recorded";
    assert!(stderr.contains(expected), "{stderr}");
    let (_, _, stderr) = place.verb(&["logs", "-q"]);
    assert_eq!(stderr, "");

    let mut captured = Command::new(runner());
    captured
        .args(["run", "--json", "--record-output", "--", "echo", "captured"])
        .env("RUNNER_OPT_STATE_DIRECTORY", place.state());
    let captured = captured.output().expect("started");
    assert!(String::from_utf8_lossy(&captured.stdout).contains("captured"));
    assert_eq!(place.verb(&["logs"]).1, "captured\n");
    // A document on standard output, which is kept for another reason, too.
    let bundle = place.ground.bundle(&[
        (
            "manifest.yaml",
            "run: [sh, main.sh]\noutputs: {type: object}\n",
        ),
        ("main.sh", "echo '{\"a\": 1}'\n"),
    ]);
    let bundle = bundle.to_str().expect("text");
    let done = place.done(&["exec", "--record-output", bundle]);
    done.assert_exited(0);
    assert_eq!(done.report["output"]["a"], 1);
    assert_eq!(place.verb(&["logs"]).1, "{\"a\": 1}\n");
    // A terminal has one stream.
    let words = [
        "run",
        "-t",
        "--record-output",
        "--",
        "sh",
        "-c",
        "echo a; echo b >&2",
    ];
    place.done(&words).assert_exited(0);
    assert_eq!(place.verb(&["logs"]).1, "a\r\nb\r\n");
}

#[test]
fn output_is_not_recorded_where_nothing_may_be() {
    let place = Place::new();
    let both = place.done(&["run", "--record-output", "--no-record", "--", "true"]);
    both.assert_error("refused", "usage");
    let off = place.ground.write("off.yaml", "audit: off\n");
    let off = format!("--policy={}", off.display());
    let forbidden = place.done(&["run", &off, "--record-output", "--", "true"]);
    forbidden.assert_error("refused", "record_forbidden");
    assert!(!place.state().exists(), "something was recorded");
    place
        .done(&["run", "--record-output", "--", "true"])
        .assert_exited(0);
    let directory = place.state().join("history/output");
    let open = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(&directory, open).expect("changed");
    let done = place.done(&["run", "--record-output", "--", "true"]);
    done.assert_exited(0);
    let warnings = done.report["warnings"].to_string();
    assert!(warnings.contains("run_unrecorded"), "{warnings}");
}

/// each secret that a run asked for, who asked, and what was decided.
#[test]
fn each_decision_about_a_secret_is_recorded_before_the_body_starts() {
    let place = Place::new();
    let ground = &place.ground;
    let value = "the-value-7531";
    let secret = ground.write("vault/prod/key", value);
    let private = std::fs::Permissions::from_mode(0o600);
    std::fs::set_permissions(secret, private).expect("set");
    let inventory = ground.write("SECRETS.md", "");
    let vault = ground.path("vault");
    let text = format!(
        "secrets: {{provider: {{directory: {}}}, inventory: {}}}\n",
        vault.display(),
        inventory.display()
    );
    let policy = ground.write("policy.yaml", text);
    let policy = format!("--policy={}", policy.display());
    let listed = |slug: &str, tool: &str| {
        let text = format!(
            "---\nsecrets:\n- slug: {slug}\n  name: n\n  description: d\n  \
             access: {{bind: [{{tool: {tool}}}]}}\n---\n"
        );
        ground.write("SECRETS.md", text);
    };
    let bundle = |slug: &str| {
        let manifest =
            format!("id: deploy\nrun: [sh, main.sh]\nsecrets: {{KEY: {{vault: {slug}}}}}\n");
        let bundle = ground.bundle(&[("manifest.yaml", &manifest), ("main.sh", "exit 0\n")]);
        bundle.to_str().expect("text").to_owned()
    };
    let exec = |flags: &[&str], bundle: &str| {
        let words = [&["exec", &policy, "--grant=secrets"], flags, &[bundle]].concat();
        place.case(&words).env("VALUE", value).done()
    };
    listed("prod/key", "deploy");
    exec(&["--secret", "MINE=env:VALUE"], &bundle("prod/key")).assert_exited(0);
    listed("prod/key", "other");
    exec(&[], &bundle("prod/key")).assert_error("refused", "secret_not_granted");
    listed("prod/none", "deploy");
    exec(&[], &bundle("prod/none")).assert_error("refused", "secret_unresolved");
    let denied = ground.write("denied.yaml", "deny_grants: [secrets]\n");
    let denied = format!("--policy={}", denied.display());
    let key = bundle("prod/key");
    let manifest = ground.write(
        "own.yaml",
        "id: deploy\nrun: [sh, main.sh]\nsecrets: {KEY: {vault: prod/key}}\n",
    );
    let manifest = format!("--manifest={}", manifest.display());
    let done = place.done(&["exec", &denied, &manifest, &key]);
    done.assert_error("refused", "grant_forbidden");

    let decisions = place.lines("secret");
    let rows: Vec<_> = decisions
        .iter()
        .map(|row| {
            let text = |key: &str| row[key].as_str().unwrap_or("null").to_owned();
            [
                text("variable"),
                text("slug"),
                text("consumer"),
                text("decision"),
            ]
            .join(" ")
        })
        .collect();
    assert_eq!(
        rows,
        [
            "MINE null the tool `deploy` granted",
            "KEY prod/key the tool `deploy` granted",
            "KEY prod/key the tool `deploy` refused",
            "KEY prod/none the tool `deploy` unresolved",
            "KEY prod/key the tool `deploy` refused",
        ]
    );
    let reason = |row: usize| decisions[row]["reason"].as_str().expect("text");
    assert!(reason(1).contains("access.bind of"), "{}", reason(1));
    assert!(reason(2).contains("SECRETS.md:3"), "{}", reason(2));
    assert!(reason(4).contains("deny_grants"), "{}", reason(4));
    let text = place.text();
    assert!(!text.contains(value), "{text}");
    let line = |what: &str| text.find(what).expect("a line");
    assert!(line("{\"secret\"") < line("{\"ended\""), "before the end");
}

/// each path, host and variable of the caller that a run was granted, and by what.
#[test]
fn each_grant_is_recorded_before_the_body_starts() {
    let place = Place::new();
    let ground = &place.ground;
    let read = ground.write("data/read", "");
    let write = ground.path("written");
    std::fs::create_dir(&write).expect("made");
    let manifest = "run: main.sh\nsandbox:\n  provider: local\n  config: {}\n  \
                    mounts: [{source: workspace, at: /work}]\n  env: {passthrough: [MINE]}\n\
                    network: {egress: [a.example.com]}\n";
    let bundle = ground.bundle(&[("manifest.yaml", manifest), ("main.sh", "exit 0\n")]);
    let text = |path: &std::path::Path| path.to_str().expect("text").to_owned();
    let (read, write, bundle) = (text(&read), text(&write), text(&bundle));
    let workspace = text(&ground.workspace());
    let flags = ["--ro", &read, "--rw", &write, "-e", "GIVEN=value-7531"];
    let workspace_flag = ["--workspace", &workspace];
    let grants = ["--grant=mounts,env,egress", "--allow-net=b.example.com:80"];
    let words = [&["exec"], &flags[..], &workspace_flag, &grants, &[&bundle]].concat();
    place
        .case(&words)
        .env("MINE", "value-8642")
        .done()
        .assert_exited(0);
    assert_eq!(place.verb(&["run", "--", "true"]).0, 0);

    let recorded = place.text();
    assert!(!recorded.contains("value-"), "{recorded}");
    let line = |what: &str| recorded.find(what).expect("a line");
    assert!(line("{\"grants\"") < line("{\"ended\""), "before the end");
    let granted = place.lines("grants");
    assert_eq!(granted.len(), 1, "a run without grants has no line");
    let rows = |list: &str, keys: [&str; 2]| -> Vec<String> {
        let rows = granted[0][list].as_array().expect("a list").iter();
        let rows = rows.map(|row| {
            keys.map(|key| row[key].as_str().unwrap_or("null"))
                .join(" ")
        });
        rows.collect()
    };
    let paths = rows("paths", ["from", "decided_by"]);
    for (from, by) in [
        (workspace, "/sandbox/mounts/0"),
        (read, "--ro"),
        (write, "--rw"),
    ] {
        assert!(
            paths.contains(&format!("{from} {by}")),
            "{from} {by}: {paths:?}"
        );
    }
    assert_eq!(
        rows("hosts", ["host", "granted_by"]),
        [
            "a.example.com --grant egress",
            "b.example.com:80 --allow-net"
        ]
    );
    assert_eq!(
        rows("variables", ["name", "given_by"]),
        ["MINE sandbox.env.passthrough", "GIVEN -e"]
    );
}

const ABC: &str = "sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";

/// A run whose input and output files have the content `abc`.
fn run_with_files<'place>(place: &'place Place, main: &str, flags: &[&str]) -> Case<'place> {
    let bundle = place
        .ground
        .bundle(&[("manifest.yaml", "run: [sh, main.sh]\n"), ("main.sh", main)]);
    let workspace = place.ground.workspace();
    std::fs::write(workspace.join("a.txt"), "abc").expect("written");
    let workspace = workspace.to_str().expect("text");
    let files = ["--workspace", workspace, "--in=a=a.txt", "--out=b=b.txt"];
    let bundle = bundle.to_str().expect("text");
    place.case(&[&["exec"], flags, &files, &[bundle]].concat())
}

/// inputs and outputs are recorded with their digests, each in one line.
#[test]
fn each_staged_and_each_synced_file_is_recorded_with_its_digest() {
    let place = Place::new();
    let run = run_with_files(&place, "cp /scratch/a /scratch/b\n", &[]);
    let done = run.done();
    done.assert_exited(0);
    let recorded = place.json(&["inspect"]);
    for (list, key, line) in [("inputs", "a", "staged"), ("outputs", "b", "synced")] {
        assert_eq!(recorded[list][0]["key"], key);
        assert_eq!(recorded[list][0]["sha256"], ABC, "{recorded:#}");
        assert_eq!(recorded[list], done.report[list]);
        let lines = place.lines(line);
        assert_eq!(lines.len(), 1);
        assert_eq!(lines[0]["files"], done.report[list]);
    }
    // In one place.
    assert_eq!(place.text().matches(ABC).count(), 2, "{}", place.text());
    place.done(&["run", "--", "true"]).assert_exited(0);
    for line in ["staged", "synced"] {
        assert_eq!(place.lines(line).len(), 1, "a run without files has a line");
    }
}

/// what was staged is known also of a run whose runner was killed.
#[test]
fn the_staged_files_of_a_run_whose_runner_was_killed_are_recorded() {
    let place = Place::new();
    let run = run_with_files(&place, "exec sleep 600\n", &[]);
    let mut running = run.start();
    running.until_body_is("sleep");
    running.signal(rustix::process::Signal::KILL);
    drop(running.finish());
    let started = &place.lines("started")[0];
    let staged = &place.lines("staged")[0];
    assert_eq!(staged["run_id"], started["run_id"]);
    let row = &staged["files"][0];
    assert_eq!(
        (&row["path"], &row["sha256"]),
        (&"a.txt".into(), &ABC.into())
    );
    assert_eq!(row["bytes"], 3);
    for line in ["synced", "ended"] {
        assert_eq!(place.lines(line), Vec::<Value>::new());
    }
    let run = started["run_id"].as_str().expect("an id");
    assert_eq!(place.json(&["inspect", run])["inputs"], staged["files"]);
}

/// Fills the history of a user, as far as its files may have `more` bytes, and starts the run there.
fn run_with_space<'case>(place: &Place, case: Case<'case>, more: u64) -> Case<'case> {
    let history = place.state().join("history");
    let file = std::fs::read_dir(history)
        .expect("listed")
        .find_map(|file| {
            let path = file.expect("listed").path();
            path.is_file().then_some(path)
        });
    let file = file.expect("a file");
    // No other file that the run writes is as large.
    let line = format!("{}\n", "x".repeat((1 << 20) - 1));
    let mut file = std::fs::OpenOptions::new()
        .append(true)
        .open(file)
        .expect("opened");
    std::io::Write::write_all(&mut file, line.as_bytes()).expect("written");
    let bytes = file.metadata().expect("there").len() + more;
    // Instead of the signal, a write gets EFBIG.
    let limit = format!("--fsize={bytes}");
    case.through("env", &["--ignore-signal=XFSZ", "prlimit", &limit])
}

/// a run whose end is not recorded has failed where it must be recorded, whatever its body did.
#[test]
fn a_run_whose_end_cannot_be_recorded_is_warned_of_or_fails() {
    let place = Place::new();
    let required = place.ground.write("required.yaml", "audit: required\n");
    let required = format!("--policy={}", required.display());
    let made = place.ground.workspace();
    let rw = made.to_str().expect("text");
    place.done(&["run", "--", "true"]).assert_exited(0);
    for (flags, name, code) in [(vec![], "optional", 0), (vec![&*required], "required", 125)] {
        let body = format!("touch {rw}/{name}");
        let words = [&["run", "--rw", rw], &flags[..], &["--", "sh", "-c", &body]].concat();
        // Enough for the line `started`.
        let run = run_with_space(&place, place.case(&words), 1024);
        // The exit code is not that of the outcome.
        let done = run.without("I8").done();
        assert!(made.join(name).exists(), "the body did not run");
        assert_eq!(done.code, code, "{}", done.stderr);
        assert!(done.stderr.contains("run_unrecorded"), "{}", done.stderr);
        assert_eq!(done.outcome(), "exited");
        let runs = place.json(&["ps", "-a", "--json"]);
        assert_eq!(runs["runs"][0]["state"], "killed", "{runs:#}");
    }
    // The line that was cut is ignored.
    place
        .done(&["run", &required, "--", "true"])
        .assert_exited(0);
    let states = place.states(&["ps", "-a", "--json"]);
    assert_eq!(states, ["exited", "killed", "killed", "exited"]);
}

/// the same for the files.
#[test]
fn files_that_cannot_be_recorded_refuse_or_fail_a_run_that_must_be_recorded() {
    let place = Place::new();
    let required = place.ground.write("required.yaml", "audit: required\n");
    let required = format!("--policy={}", required.display());
    let main = "cp /scratch/a /scratch/b\n";
    let run = |flags: &[&str]| run_with_files(&place, main, flags);
    run(&[&required]).done().assert_exited(0);
    let text = place.text();
    // The runs differ by a few digits.
    let before = |line: &str| text.find(line).expect("a line") as u64 + 20;
    let (staged, synced) = (before("{\"staged\""), before("{\"synced\""));
    let output = place.ground.workspace().join("b.txt");
    let remove = || std::fs::remove_file(&output);
    remove().expect("the first run wrote it");
    let refused = run_with_space(&place, run(&[&required]), staged).done();
    refused.assert_error("refused", "run_unrecorded");
    assert!(remove().is_err(), "the body ran");
    let failed = run_with_space(&place, run(&[&required]), synced).done();
    failed.assert_error("failed", "run_unrecorded");
    assert_eq!(failed.code, 125);
    remove().expect("the output is synced before it is recorded");
    let warned = run_with_space(&place, run(&[]), staged).done();
    warned.assert_exited(0);
    let warnings = warned.report["warnings"].to_string();
    assert!(warnings.contains("run_unrecorded"), "{warnings}");
}
