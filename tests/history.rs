//! The history of runs: every run is recorded for its user, without what its body wrote, and nothing that a
//! body does changes it.

#![expect(clippy::expect_used, reason = "test code: a failure is a panic")]

use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::process::Command;

use serde_json::Value;

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

    /// All bytes of the history.
    fn text(&self) -> String {
        let Ok(files) = std::fs::read_dir(self.state().join("history")) else {
            return String::new();
        };
        let files = files.map(|file| std::fs::read_to_string(file.expect("listed").path()));
        files.map(|text| text.expect("read")).collect()
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
    assert_eq!(place.states(&["ps", "--json"]), Vec::<String>::new());
    assert_eq!(place.states(&["ps", "-a", "--json"]), ["killed"]);
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
