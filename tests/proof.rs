//! The table of proofs: docs/security.md shows what docs/security.json records, which a command
//! printed. Nothing is measured here.

#![expect(
    clippy::expect_used,
    reason = "a test that cannot read the tree has nothing to say"
)]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::{Value, json};

fn tree(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

fn text(path: &str) -> String {
    fs::read_to_string(tree(path)).expect("a file of the tree")
}

fn proof(words: &[&str]) -> Output {
    Command::new("python3")
        .arg(tree("scripts/lib/proof.py"))
        .args(words)
        .output()
        .expect("python3 starts")
}

fn prove(words: &[&str]) -> Output {
    Command::new(tree("scripts/prove"))
        .args(words)
        .output()
        .expect("bash starts")
}

fn printed(output: &Output) -> String {
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout.clone()).expect("UTF-8")
}

/// Name, tier and command of each row.
fn rows() -> Vec<[String; 3]> {
    let listed = printed(&prove(&["--list"]));
    let cells = |line: &str| -> Vec<String> { line.split('\t').map(str::to_owned).collect() };
    listed
        .lines()
        .map(|line| cells(line).try_into().expect("three cells"))
        .collect()
}

/// A directory with a log of this text, and a path for a figure from it.
struct Taking {
    ground: tempfile::TempDir,
}

impl Taking {
    fn new() -> Self {
        let ground = tempfile::tempdir().expect("a directory");
        Self { ground }
    }

    fn kept(&self) -> PathBuf {
        self.ground.path().join("kept.json")
    }

    /// Whether a figure was found.
    fn take(&self, name: &str, log: &str) -> bool {
        let path = self.ground.path().join("log");
        fs::write(&path, log).expect("written");
        let paths = [path, self.kept()];
        let [log, kept] = paths.each_ref().map(|path| path.to_str().expect("UTF-8"));
        proof(&["take", name, log, kept]).status.success()
    }

    /// The record of this row.
    fn entry(&self, name: &str) -> Value {
        let kept = fs::read_to_string(self.kept()).unwrap_or_default();
        let kept: Value = serde_json::from_str(&kept).unwrap_or_default();
        let rows = kept["rows"].as_array().cloned().unwrap_or_default();
        let found = rows.into_iter().find(|row| row["name"] == name);
        found.unwrap_or_default()
    }
}

#[test]
fn the_document_shows_what_the_kept_figures_say() {
    let kept = tree("docs/security.json");
    let table = printed(&proof(&["render", kept.to_str().expect("UTF-8")]));
    let document = text("docs/security.md");
    let shown = document
        .split_once("<!-- proof -->\n\n")
        .and_then(|(_, rest)| rest.split_once("\n<!-- /proof -->"))
        .expect("the marks of the table")
        .0;
    assert_eq!(shown, table, "run scripts/prove --write-docs NAME");
}

#[test]
fn the_table_of_fuzzing_is_what_was_kept_of_its_runs() {
    let rendered = Command::new(tree("scripts/lib/fuzzing_docs.py"))
        .arg("render")
        .output()
        .expect("python3 starts");
    let run = "run scripts/lib/fuzzing_docs.py render >docs/fuzzing.md";
    assert_eq!(text("docs/fuzzing.md"), printed(&rendered), "{run}");
}

#[test]
fn each_kept_row_says_what_was_found_where_and_when_or_why_not() {
    let kept: Value = serde_json::from_str(&text("docs/security.json")).expect("JSON");
    let known = rows();
    for row in kept["rows"].as_array().expect("rows") {
        let is_known = known.iter().any(|[name, ..]| row["name"] == *name);
        assert!(is_known, "no row of this name: {row}");
        for name in ["on", "kernel", "as"] {
            assert!(row[name].is_string(), "{name} is missing: {row}");
        }
        let found = row["found"].is_string();
        assert!(found != row["not_measured"].is_string(), "{row}");
    }
}

/// A figure of a program that is not in the tree could not be measured again.
#[test]
fn a_row_with_a_figure_has_a_command_that_is_in_the_tree() {
    let kept: Value = serde_json::from_str(&text("docs/security.json")).expect("JSON");
    let kept = kept["rows"].as_array().expect("rows");
    for [name, tier, command] in rows() {
        assert!(
            ["quick", "full", "whole"].contains(&tier.as_str()),
            "{name}"
        );
        let found = kept.iter().find(|row| row["name"] == *name);
        if found.is_none_or(|row| row["found"].is_null()) {
            continue;
        }
        let words: Vec<&str> = command.split(' ').collect();
        for pair in words.windows(2) {
            let paths = match pair {
                ["--test", program] => vec![
                    format!("tests/{program}.rs"),
                    format!("tests/{program}/main.rs"),
                ],
                ["--bench", bench] => vec![format!("benches/{bench}.rs")],
                [word, _] if word.contains('/') => vec![(*word).to_owned()],
                _ => continue,
            };
            let is_there = paths.iter().any(|path| tree(path).exists());
            assert!(is_there, "{name}: none of {paths:?}");
        }
    }
}

#[test]
fn a_figure_is_taken_as_its_command_printed_it() {
    let storms = json!({"rows": [
        {"table": "fork storms: from the limit to nobody left", "name": "bomb", "p50_ms": 1.25, "p99_ms": 7.0, "rounds": 100},
        {"table": "peak of the supervisor's memory", "name": "names", "p99_mib": 3.0},
        {"table": "peak of the supervisor's memory", "name": "output", "p99_mib": 10.04},
    ]});
    let logs = [
        (
            "cases",
            "x\nthreats: 262 of 273 rows passed\n\n9 passed, 0 failed, 0 skipped (default, 9 s)\n"
                .to_owned(),
            "262 of 273 rows passed",
        ),
        // libtest may print before it on the same line; the last one counts.
        (
            "faults",
            "faults: injected=1 wrong=0\ntest a ... faults: injected=2 wrong=0\nfaults: kills=3\n"
                .to_owned(),
            "injected=2 wrong=0; kills=3",
        ),
        // Of several lines of one kind, the worst counts, at any position.
        (
            "leaks",
            "endurance: runs=9 leaks=3\nendurance: runs=9 leaks=0\n".to_owned(),
            "runs=9 leaks=3",
        ),
        (
            "peak",
            storms.to_string(),
            "10.0 MiB (output; the largest of 2 bodies)",
        ),
        (
            "kill",
            storms.to_string(),
            "bomb: 1.2 ms, p99 7.0 ms (100 rounds)",
        ),
        (
            "fuzzing",
            "fuzzing: 1,000,234 inputs executed, 2.0 hours, 2 of 3 targets\n".to_owned(),
            "1,000,234 inputs executed, 2.0 hours, 2 of 3 targets",
        ),
    ];
    for (name, log, found) in logs {
        let taking = Taking::new();
        assert!(taking.take(name, &log), "{name}: {log}");
        assert_eq!(taking.entry(name)["found"], found);
    }
}

#[test]
fn nothing_is_kept_of_a_command_that_did_not_print_its_line() {
    for (name, log) in [
        ("cases", ""),
        ("cases", "the threats: 5 of 5\nthreats:\n"),
        // A run that was cut off, and runs with a fault.
        ("cases", "threats: 5 of 5\n"),
        (
            "cases",
            "threats: 5 of 5\n9 passed, 1 failed, 0 skipped (default, 9 s)\n",
        ),
        (
            "cases",
            "PROBLEM: left behind\nthreats: 5 of 5\n9 passed, 0 failed, 0 skipped\n",
        ),
        ("peak", "{\"rows\": []}"),
        ("kill", "no JSON"),
        ("kill", "{\"rows\": []}"),
        ("fuzzing", "archive: 5 inputs, 7 edges\n"),
    ] {
        let taking = Taking::new();
        assert!(!taking.take(name, log), "{name}: {log}");
        assert!(!taking.kept().exists(), "{name}: {log}");
    }
}

#[test]
fn a_row_that_could_not_be_measured_takes_the_place_of_the_old_figure() {
    let taking = Taking::new();
    assert!(taking.take("cases", "threats: 5 of 5\n1 passed, 0 failed, 0 skipped\n"));
    let kept = taking.kept();
    let kept = kept.to_str().expect("UTF-8");
    printed(&proof(&[
        "missing",
        "cases",
        "its command ended with code 1",
        kept,
    ]));
    assert!(taking.entry("cases")["found"].is_null());
    let table = printed(&proof(&["render", kept]));
    assert!(table.contains("not measured: its command ended with code 1"));
    assert!(table.contains("not measured: nobody has yet"), "{table}");
    let refused = proof(&["missing", "no-such-row", "x", kept]);
    assert!(!refused.status.success());
}

#[test]
fn the_command_refuses_rows_that_it_does_not_know_and_shows_what_it_would_run() {
    let planned = printed(&prove(&["--dry-run", "calls-default", "faults"]));
    assert_eq!(planned.lines().count(), 2, "{planned}");
    let quick = printed(&prove(&["--dry-run", "--quick"]));
    assert!(!quick.contains("cargo"), "{quick}");
    for wrong in [
        &["no-such-row"] as &[&str],
        &["--no-such-option"],
        &["--log"],
    ] {
        let refused = prove(wrong);
        assert_eq!(refused.status.code(), Some(2), "{refused:?}");
    }
    let help = printed(&prove(&["--help"]));
    assert!(help.starts_with("Measures"), "{help}");
}

/// A profile of Docker or Podman: calls that need a capability count only if it is granted.
#[test]
fn calls_of_a_profile_are_counted_as_its_tool_would_resolve_it() {
    let profile = json!({"defaultAction": "SCMP_ACT_ERRNO", "syscalls": [
        {"names": ["read", "write", "no_such_call"], "action": "SCMP_ACT_ALLOW"},
        {"names": ["bpf"], "action": "SCMP_ACT_ALLOW", "includes": {"caps": ["CAP_SYS_ADMIN"]}},
        {"names": ["chroot"], "action": "SCMP_ACT_ALLOW", "includes": {"caps": ["CAP_SYS_CHROOT"]}},
        {"names": ["clone"], "action": "SCMP_ACT_ALLOW", "args": [{"index": 0}], "excludes": {"caps": ["CAP_SYS_ADMIN"]}},
        {"names": ["clone3"], "action": "SCMP_ACT_ERRNO", "excludes": {"caps": ["CAP_SYS_ADMIN"]}},
        {"names": ["sync_file_range2"], "action": "SCMP_ACT_ALLOW", "includes": {"arches": ["arm64"]}},
    ]});
    let program = "import json, sys; sys.path.insert(0, sys.argv[1]); import reachable; \
                   found = reachable.of_profile(json.loads(sys.argv[2]), \
                   reachable.capabilities_of(sys.argv[3])); \
                   print(*sorted(found & reachable.known_calls()))";
    for defaults in [
        "return []string{\n\"CAP_SYS_CHROOT\",\n}\n",
        "#default_capabilities = [\n#  \"SYS_CHROOT\",\n# ]",
    ] {
        let output = Command::new("python3")
            .args(["-c", program])
            .arg(tree("scripts/lib"))
            .args([&profile.to_string(), defaults])
            .env("PYTHONDONTWRITEBYTECODE", "1")
            .output()
            .expect("python3 starts");
        assert_eq!(printed(&output).trim(), "chroot clone read write");
    }
}

#[test]
fn each_policy_reaches_as_many_calls_as_the_figures_and_the_readme_of_policies_say() {
    let golden = |name: &str| tree(&format!("tests/golden/filter/verdicts-{name}x86_64.txt"));
    for (name, files, count) in [
        ("calls-default", vec![golden("")], 288),
        ("calls-strict", vec![golden(""), golden("strict-")], 238),
    ] {
        let output = Command::new("python3")
            .arg(tree("scripts/lib/reachable.py"))
            .arg("verdicts")
            .args(files)
            .output()
            .expect("python3 starts");
        let found = printed(&output);
        assert_eq!(found.trim(), format!("reachable: {count} of 381"));
        let kept: Value = serde_json::from_str(&text("docs/security.json")).expect("JSON");
        let rows = kept["rows"].as_array().expect("rows");
        let row = rows.iter().find(|row| row["name"] == name);
        assert_eq!(
            found.trim().strip_prefix("reachable: "),
            row.expect("the row")["found"].as_str(),
            "run scripts/prove --write-docs {name}"
        );
    }
}
