//! The benches in the documents: their names, marks, and commands. Nothing is measured here.

#![expect(
    clippy::expect_used,
    reason = "a test that cannot read the tree has nothing to say"
)]

#[path = "../benches/support/marks.rs"]
#[expect(
    dead_code,
    unreachable_pub,
    reason = "a part of the benches, which use all of it"
)]
mod marks;

use std::collections::BTreeSet;
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

/// The benches of Cargo.toml.
fn benches() -> BTreeSet<String> {
    let manifest = text("Cargo.toml");
    let tables = manifest.split("[[bench]]").skip(1);
    tables
        .filter_map(|table| table.split('"').nth(1).map(str::to_owned))
        .collect()
}

fn script(words: &[&str]) -> Output {
    Command::new(tree("scripts/bench"))
        .args(words)
        .output()
        .expect("bash starts")
}

fn marks_py(words: &[&Path]) -> Output {
    Command::new("python3")
        .arg(tree("scripts/lib/marks.py"))
        .args(words)
        .output()
        .expect("python3 starts")
}

/// With `RUNNER_BIN` set to a program only where `program` says so.
fn profile(program: Option<&Path>, words: &[&str]) -> Command {
    let mut command = Command::new(tree("scripts/profile"));
    command.args(words).env_remove("RUNNER_BIN");
    if let Some(program) = program {
        command.env("RUNNER_BIN", program);
    }
    command
}

fn printed(output: &Output) -> String {
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout.clone()).expect("UTF-8")
}

#[test]
fn each_mark_belongs_to_a_bench_and_has_a_name_of_its_own() {
    let benches = benches();
    let mut names = BTreeSet::new();
    for mark in marks::MARKS {
        assert!(benches.contains(mark.bench), "no bench {}", mark.bench);
        assert!(names.insert(mark.name), "twice: {}", mark.name);
    }
}

/// The rows `| bench | mark | limit | …` of docs/performance.md compared with the list of the benches.
#[test]
fn the_documents_have_the_marks_that_the_benches_have() {
    let document = text("docs/performance.md");
    let table = document
        .split_once("<!-- marks -->")
        .and_then(|(_, rest)| rest.split_once("<!-- /marks -->"))
        .expect("the markers of the table")
        .0;
    let cells = |line: &str| -> Vec<String> {
        let cells = line.split('|').skip(1).take(3);
        cells.map(|cell| cell.trim().replace('`', "")).collect()
    };
    let rows = table.lines().filter(|line| line.starts_with("| `"));
    let documented: BTreeSet<Vec<String>> = rows.map(cells).collect();
    let known: BTreeSet<Vec<String>> = marks::MARKS
        .iter()
        .map(|mark| vec![mark.bench.into(), mark.name.into(), mark.limit_text()])
        .collect();
    let only = |one: &BTreeSet<Vec<String>>, other| {
        let only: Vec<String> = one.difference(other).map(|row| row.join(" | ")).collect();
        only.join("\n")
    };
    assert!(
        documented == known,
        "run scripts/bench --write-docs NAME; only in the document:\n{}\nonly in the benches:\n{}",
        only(&documented, &known),
        only(&known, &documented)
    );
}

/// For each missed mark, the document explains its limit.
#[test]
fn a_missed_mark_is_explained() {
    let document = text("docs/performance.md");
    let kept: Value = serde_json::from_str(&text("docs/performance.json")).expect("JSON");
    let explained = document
        .split_once("### What limits the missed marks")
        .and_then(|(_, rest)| rest.split_once("\n## "))
        .expect("the section about missed marks")
        .0;
    let whos = kept["results"].as_object().expect("benches").values();
    let marks = whos.flat_map(|of| of.as_object().expect("who").values());
    for mark in marks.flat_map(|marks| marks.as_array().expect("marks")) {
        let name = mark["name"].as_str().expect("a name");
        assert!(
            mark["met"] != json!(false) || explained.contains(name),
            "docs/performance.md does not say what limits: {name}"
        );
    }
}

#[test]
fn the_documents_name_only_benches_that_exist() {
    let benches = benches();
    for document in [
        "README.md",
        "docs/costs.md",
        "docs/performance.md",
        "docs/egress.md",
    ] {
        let text = text(document);
        for (at, words) in text.match_indices("cargo bench --bench ") {
            let rest = &text[at + words.len()..];
            let end = rest.find(|letter: char| !letter.is_ascii_lowercase());
            let name = &rest[..end.unwrap_or(rest.len())];
            assert!(
                name.is_empty() || benches.contains(name),
                "{document}: no bench {name}"
            );
        }
    }
}

#[test]
fn the_command_knows_every_bench_and_refuses_others() {
    let listed = printed(&script(&["--list"]));
    let listed: BTreeSet<String> = listed.lines().map(str::to_owned).collect();
    assert_eq!(listed, benches());
    let planned = printed(&script(&["--dry-run", "--quick"]));
    for bench in &listed {
        let line = format!("cargo bench --bench {bench} -- --quick");
        assert!(planned.contains(&line), "{planned}");
    }
    let one = printed(&script(&["--dry-run", "launch"]));
    assert!(one.lines().all(|line| line.contains("launch")), "{one}");
    for wrong in [&["no-such-bench"] as &[&str], &["--no-such-option"]] {
        let refused = script(wrong);
        assert_eq!(refused.status.code(), Some(2), "{refused:?}");
    }
}

#[test]
fn the_help_of_the_command_is_its_header() {
    let help = printed(&script(&["--help"]));
    for option in ["--quick", "--json", "--check", "--write-docs", "--dry-run"] {
        assert!(help.contains(option), "{option}: {help}");
    }
}

/// `scripts/scale` of this tree.
fn scale(tree: &Path, option: &str) -> Output {
    Command::new(tree.join("scripts/scale"))
        .arg(option)
        .output()
        .expect("python3 starts")
}

#[test]
fn the_page_and_the_plot_about_scale_are_computed_from_the_figures() {
    printed(&scale(&tree(""), "--check"));
    let help = printed(&scale(&tree(""), "--help"));
    for option in ["--write", "--check", "--measure"] {
        assert!(help.contains(option), "{option}: {help}");
    }
    assert_eq!(scale(&tree(""), "--no-such").status.code(), Some(2));
}

/// In a copy, each source of figures is changed: the page is found to be another one, and is written anew.
#[test]
fn a_figure_that_changes_is_missing_on_the_page_about_scale() {
    let copy = tempfile::tempdir().expect("a directory");
    let at = |path: &str| copy.path().join(path);
    for directory in ["scripts/lib", "docs"] {
        fs::create_dir_all(at(directory)).expect("a directory");
        for entry in fs::read_dir(tree(directory)).expect("listed") {
            let entry = entry.expect("an entry");
            if entry.file_type().expect("a type").is_file() {
                fs::copy(entry.path(), at(directory).join(entry.file_name())).expect("copied");
            }
        }
    }
    fs::copy(tree("scripts/scale"), at("scripts/scale")).expect("copied");
    printed(&scale(copy.path(), "--check"));

    let replace = |path: &str, old: &str, new: &str| {
        let text = fs::read_to_string(at(path)).expect("read");
        assert_eq!(text.matches(old).count(), 1, "{path}: {old}");
        fs::write(at(path), text.replace(old, new)).expect("written");
    };
    let figures: Value = serde_json::from_str(&text("docs/scale.json")).expect("JSON");
    let runc = figures["launches_us"]["runc"].as_u64().expect("a number");
    let performance = text("docs/performance.md");
    let mut rows = performance.lines();
    let row = rows
        .find(|line| line.starts_with("| 2 | "))
        .expect("two workers");
    let faster = row.replace("| 2 | ", "| 2 | 1");
    for (path, old, new) in [
        (
            "docs/scale.json",
            format!("\"runc\": {runc}"),
            format!("\"runc\": {}", 2 * runc),
        ),
        ("docs/performance.md", row.to_owned(), faster.clone()),
        (
            "docs/scale.svg",
            "<title>Many machines".to_owned(),
            "<title>Machines".to_owned(),
        ),
    ] {
        replace(path, &old, &new);
        let refused = scale(copy.path(), "--check");
        assert_eq!(refused.status.code(), Some(1), "{path}: {refused:?}");
        printed(&scale(copy.path(), "--write"));
        printed(&scale(copy.path(), "--check"));
    }
    // A row that the page about performance loses is no zero.
    let lost = faster.replace("| 2 | ", "| two | ");
    replace("docs/performance.md", &faster, &lost);
    let refused = scale(copy.path(), "--check");
    assert_eq!(refused.status.code(), Some(1), "{refused:?}");
    let said = String::from_utf8_lossy(&refused.stderr);
    assert!(said.contains("has no row `2`"), "{said}");
}

/// One invented result: a ratio, a time and a rate.
fn result(ratio: f64, time: f64, rate: f64) -> Value {
    let mark = |name, limit: f64, at_least: bool, unit, value: f64| {
        let met = if at_least {
            limit <= value
        } else {
            value <= limit
        };
        json!({"name": name, "limit": limit, "at_least": at_least, "unit": unit, "value": value, "met": met})
    };
    json!({
        "bench": "launch",
        "marks": [
            mark("a ratio", 0.7, false, "", ratio),
            mark("a time", 10.0, false, "ms", time),
            mark("a rate", 2.0, true, "", rate),
            {"name": "a gap", "limit": 1.0, "at_least": false, "unit": "", "not_measured": "nobody"},
        ],
        "absent": [
            {"name": "one", "why": "one-tool is not on the path"},
            {"name": "two", "why": "two-tool is not on the path"},
            {"name": "three", "why": "needs root"},
        ],
        "markdown": "| a table |\n| --- |\n| bwrap |\n\n\
                     | pair | p50 |\n| --- | --- |\n| floor ÷ bwrap | 0.4 |\n| runner run ÷ bwrap | 0.6 |\n",
    })
}

#[test]
fn figures_are_written_into_the_documents_and_compared_with_them() {
    let ground = tempfile::tempdir().expect("a directory");
    let at = |name: &str| ground.path().join(name);
    let found = at("found");
    fs::create_dir(&found).expect("a directory");
    let find = |result: &Value| {
        fs::write(found.join("launch.json"), result.to_string()).expect("a result");
    };
    fs::write(at("kept.json"), r#"{"host": "", "results": {}}"#).expect("a file");
    let page = "<!-- marks -->\nold\n<!-- /marks -->\nkept\n<!-- launch as root -->\n<!-- /launch as root -->\n";
    fs::write(at("page.md"), page).expect("a file");

    find(&result(0.6, 9.0, 3.0));
    let write = [Path::new("write"), &found, &at("kept.json"), &at("page.md")];
    printed(&marks_py(&write));
    let page = fs::read_to_string(at("page.md")).expect("the page");
    for line in [
        "| `launch` | a ratio | ≤ 0.7 | 0.60 | – | met |",
        "| `launch` | a gap | ≤ 1 | not measured | – | not measured |",
        "kept",
        "| a table |",
        "| bwrap |",
        "| pair | p50 |",
        "| runner run ÷ bwrap | 0.6 |",
        "Not measured (not on the path): one, two.",
        "Not measured (needs root): three.",
    ] {
        assert!(page.lines().any(|found| found == line), "{line}\n{page}");
    }
    for gone in ["old", "floor ÷ bwrap"] {
        assert!(!page.contains(gone), "{gone}\n{page}");
    }
    printed(&marks_py(&write));
    let again = fs::read_to_string(at("page.md")).expect("the page");
    assert_eq!(page, again, "written twice, the same comes out");

    let kept = at("kept.json");
    let check = [Path::new("check"), &found, &kept];
    // Within the tolerance; a time is not a ratio.
    find(&result(0.74, 90.0, 2.5));
    printed(&marks_py(&check));
    for worse in [result(0.76, 9.0, 3.0), result(0.6, 9.0, 2.3)] {
        find(&worse);
        let refused = marks_py(&check);
        assert_eq!(refused.status.code(), Some(1), "{refused:?}");
    }
    let missed = printed(&marks_py(&[Path::new("table"), &found]));
    assert!(
        missed.contains("4 marks: 3 met, 0 missed, 1 not measured"),
        "{missed}"
    );
}

#[test]
fn the_profile_explains_itself_and_says_what_it_lacks() {
    let run = |mut command: Command| command.output().expect("bash starts");
    let help = printed(&run(profile(None, &["--help"])));
    for option in ["--rounds", "--json", "--parse", "RUNNER_BIN"] {
        assert!(help.contains(option), "{option}: {help}");
    }
    for wrong in [
        &["--no-such-option"] as &[&str],
        &["--rounds", "0"],
        &["--parse"],
        &["a-file"],
        &["--"],
    ] {
        let refused = run(profile(None, wrong));
        assert_eq!(refused.status.code(), Some(2), "{wrong:?}: {refused:?}");
    }
    let ground = tempfile::tempdir().expect("a directory");
    let mut nothing_built = profile(None, &[]);
    nothing_built.env("CARGO_TARGET_DIR", ground.path());
    let nowhere = ground.path().join("runner");
    for lacking in [nothing_built, profile(Some(&nowhere), &[])] {
        let refused = run(lacking);
        assert_eq!(refused.status.code(), Some(1), "{refused:?}");
        let said = String::from_utf8_lossy(&refused.stderr);
        assert!(said.contains("run cargo build --profile dist"), "{said}");
    }
}

/// The `-vv` output of a launch whose phase `prepare` and last step took this many milliseconds;
/// `waited` adds a step that only some launches have.
fn told(prepare: &str, execute: &str, waited: bool) -> String {
    let wait = if waited {
        "runner:    0.007    0.207  wait for the launch\n"
    } else {
        ""
    };
    format!(
        "runner: run 01m8\nrunner: prepare: {prepare} ms\n\
         runner:      took    until  phase of the supervisor\n\
         runner:    {prepare}    9.999  prepare\n\
         the body says: 0.001    0.002  nothing\n\
         runner:    0.250    9.999  body\n\
         runner:      took    until  step of the child, from its clone on\n\
         runner:    0.200    0.200  enter the new root\n\
         {wait}\
         runner:    {execute}    9.999  execute the program\n"
    )
}

/// Process 10 is the supervisor and 11 a thread of it, 12 is init and 13 the body's first process,
/// which starts 14. Each of the four clones returns, or appears, in another way.
const TRACE: &str = r#"10    execve("./runner", ["./runner", "run"], 0x7ffc /* 4 vars */) = 0
10    clone3({flags=CLONE_VM|CLONE_THREAD, exit_signal=0}, 88) = -1 EAGAIN (Resource temporarily unavailable)
10    clone3({flags=CLONE_VM|CLONE_THREAD, exit_signal=0} => {parent_tid=[11]}, 88) = 11
10    clone3({flags=CLONE_PIDFD|CLONE_NEWPID|CLONE_NEWUSER, exit_signal=SIGCHLD} <unfinished ...>
12    prctl(PR_SET_NAME, "init" <unfinished ...>
11    read(3,  <unfinished ...>
10    <... clone3 resumed> => {pidfd=[5]}, 88) = 12
12    <... prctl resumed>)              = 0
11    <... read resumed>"= -1", 4)      = 4
11    +++ exited with 0 +++
12    clone(child_stack=0x7f1b, flags=CLONE_VM|CLONE_VFORK|SIGCHLD <unfinished ...>
13    execve("/no/sh", ["sh"], 0x7f1b /* 9 vars */) = -1 ENOENT (No such file or directory)
13    execve("/bin/sh", ["sh"], 0x7f1b /* 9 vars */ <unfinished ...>
12    <... clone resumed>)              = 2
13    <... execve resumed>)             = 0
12    ppoll([{fd=4, events=POLLIN}], 1, NULL, NULL, 8 <unfinished ...>
13    clone(child_stack=NULL, flags=CLONE_CHILD_SETTID|SIGCHLD) = 3
14    write(1, "hello
", 6)            = 6
14    exit_group(0)                     = ?
14    +++ exited with 0 +++
13    --- SIGCHLD {si_signo=SIGCHLD} ---
13    exit_group(0)                     = ?
13    +++ exited with 0 +++
12    <... ppoll resumed>)              = 1 ([{fd=4, revents=POLLIN}])
12    exit_group(0)                     = ?
12    +++ exited with 0 +++
10    exit_group(0)                     = ?
"#;

/// The same processes with page faults: init has one before its message, 14 belongs to the body.
const FAULTS: &str = "\
       perf-exec     0/0     PERF_RECORD_COMM: perf-exec:10/10
          runner    10/10    PERF_RECORD_COMM exec: runner:10/10
          runner    10/10    page-faults:u:
          runner    10/10    PERF_RECORD_FORK(10:11):(10:10)
          runner    10/11    page-faults:u:
          runner    10/10    PERF_RECORD_FORK(12:12):(10:10)
          runner    12/12    page-faults:u:
            init    12/12    PERF_RECORD_COMM: init:12/12
            init    12/12    page-faults:u:
            init    12/12    PERF_RECORD_FORK(13:13):(12:12)
            init    13/13    page-faults:u:
              sh    13/13    PERF_RECORD_COMM exec: sh:13/13
              sh    13/13    page-faults:u:
              sh    13/13    PERF_RECORD_FORK(14:14):(13:13)
              sh    14/14    page-faults:u:
              sh    14/14    PERF_RECORD_EXIT(14:14):(13:13)
          runner    10/10    page-faults:u:
";

#[test]
fn a_profile_is_counted_from_what_the_runner_strace_and_perf_say() {
    let ground = tempfile::tempdir().expect("a directory");
    let mut words = vec!["--parse".to_owned()];
    for (name, text) in [
        ("first", told("1.500", "0.030", false)),
        ("second", told("0.900", "0.010", true)),
        ("third", told("1.000", "0.020", true)),
        ("trace", TRACE.to_owned()),
        ("faults", FAULTS.to_owned()),
    ] {
        let path = ground.path().join(name);
        fs::write(&path, text).expect("a file");
        words.push(path.to_str().expect("UTF-8").to_owned());
    }
    let parse = |words: &[&str]| profile(None, words).output().expect("bash starts");
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let page = printed(&parse(&words));
    for line in [
        "| prepare | 900 | 1,000 |",
        "| body | 250 | 250 |",
        "| all | 1,150 | 1,250 |",
        "| enter the new root | 200 | 200 | 3 |",
        "| wait for the launch | 7 | 7 | 2 |",
        "| execute the program | 10 | 20 | 3 |",
        "| all | 217 | 227 | 3 |",
        "| system call | supervisor | init | body's first process until its exec | all |",
        "| `clone3` | 3 |  |  | 3 |",
        "| `execve` | 1 |  | 2 | 3 |",
        "| `exit_group` | 1 | 1 |  | 2 |",
        "| `read` | 1 |  |  | 1 |",
        "| **all** | 6 | 4 | 2 | 12 |",
        "exec the body made 4 more.",
        "| supervisor | 3 |",
        "| init | 2 |",
        "| body's first process until its exec | 1 |",
        "| body after its exec | 2 |",
    ] {
        assert!(page.lines().any(|found| found == line), "{line}\n{page}");
    }
    assert!(!page.contains("nothing"), "{page}");
    let at = |name: &str| page.find(name).expect("a row");
    let sorted = at("| `exit_group`") < at("| `clone`");
    assert!(sorted, "the most frequent ones first: {page}");

    let words = [vec!["--json"], words].concat();
    let json: Value = serde_json::from_str(&printed(&parse(&words))).expect("JSON");
    assert_eq!(json["launches"], json!(3));
    assert_eq!(
        json["phases"][0],
        json!({"name": "prepare", "launches": 3, "min_us": 900, "median_us": 1000})
    );
    assert_eq!(
        json["system_calls"]["init"],
        json!({"total": 4, "calls": {"clone": 1, "exit_group": 1, "ppoll": 1, "prctl": 1}})
    );

    let wrong = ground.path().join("wrong");
    fs::write(&wrong, "neither\n").expect("a file");
    let refused = parse(&["--parse", wrong.to_str().expect("UTF-8")]);
    assert_eq!(refused.status.code(), Some(1), "{refused:?}");
}
