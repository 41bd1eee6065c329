//! The benches as the documents speak of them: their names, their marks, and the command that runs
//! them. Nothing is measured here.

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

/// `| bench | mark | limit | …` of docs/performance.md against the benches' own list.
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

/// Whoever reads that a mark is missed finds there what limits it.
#[test]
fn a_missed_mark_is_explained() {
    let document = text("docs/performance.md");
    let kept: Value = serde_json::from_str(&text("docs/performance.json")).expect("JSON");
    let explained = document
        .split_once("### What limits the ones that are missed")
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
    for document in ["README.md", "docs/performance.md", "docs/egress.md"] {
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

/// One made-up result: a ratio, a time and a rate.
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
        "absent": [{"name": "somebody", "why": "not on the path"}],
        "markdown": "| a table |\n| --- |\n",
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
        "- somebody: not on the path",
    ] {
        assert!(page.lines().any(|found| found == line), "{line}\n{page}");
    }
    assert!(!page.contains("old"), "{page}");
    printed(&marks_py(&write));
    let again = fs::read_to_string(at("page.md")).expect("the page");
    assert_eq!(page, again, "written twice, the same comes out");

    let kept = at("kept.json");
    let check = [Path::new("check"), &found, &kept];
    // Within the tolerance; a time is no ratio.
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
