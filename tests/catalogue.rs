//! docs/threats.md as a test: every row has a test that names it in its comment, every such comment
//! names a row, and the last column of the tables is generated from the comments.
//!
//! `RUNNER_UPDATE_GOLDEN=1` writes that column.

#![expect(
    clippy::expect_used,
    reason = "a test that cannot read the source has nothing to say"
)]

#[path = "catalogue/comments.rs"]
mod comments;
#[path = "catalogue/run.rs"]
mod run;
#[path = "catalogue/table.rs"]
mod table;

use std::fs;
use std::path::{Path, PathBuf};

use comments::{Found, Id, Proof, checks_of, rows_of, tests_of};

const DOCUMENT: &str = "docs/threats.md";

#[test]
#[expect(clippy::print_stdout, reason = "scripts/threats reads it in the log")]
fn every_row_has_a_test_and_the_table_names_it() {
    let (proofs, mut errors) = proofs();
    let tests = table::by_row(&proofs);
    for line in table::told(&tests) {
        println!("{line}");
    }
    let path = root().join(DOCUMENT);
    let document = fs::read_to_string(&path).expect("the document is readable");
    let (rows, wrong) = table::rows(&document);
    errors.extend(wrong);
    errors.extend(table::disagreements(&rows, &tests));
    let generated = table::generated(&document, &rows, &tests);
    if std::env::var_os("RUNNER_UPDATE_GOLDEN").is_some() {
        fs::write(&path, generated).expect("written");
    } else if generated != document {
        errors.push(format!(
            "the last column is not what the tests say: \
             RUNNER_UPDATE_GOLDEN=1 cargo test --test catalogue writes it{}",
            first_difference(&document, &generated)
        ));
    }
    assert!(errors.is_empty(), "{DOCUMENT}:\n{}", errors.join("\n"));
}

fn first_difference(document: &str, generated: &str) -> String {
    (1..)
        .zip(document.lines().zip(generated.lines()))
        .find(|(_, (is, should))| is != should)
        .map(|(number, (_, should))| format!("; line {number} should be\n{should}"))
        .unwrap_or_default()
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The statements of all files, and their errors.
fn proofs() -> (Vec<Proof>, Vec<String>) {
    let mut proofs = Vec::new();
    let mut errors = Vec::new();
    let mut add = |path: &str, found: Found| {
        let wrong = found.errors.iter();
        errors.extend(wrong.map(|error| format!("{path}:{error}")));
        if let Some(wrong) = not_a_program(path).filter(|_| !found.proofs.is_empty()) {
            errors.push(wrong);
        }
        proofs.extend(found.proofs);
    };
    for path in files("tests")
        .iter()
        .chain(&files("src"))
        .chain(&files("crates"))
    {
        // Its invalid examples are strings; its comments are about ids.
        if path.ends_with(".rs") && !path.starts_with("tests/catalogue") {
            add(path, tests_of(&text(path), &module_path(path)));
        }
    }
    for path in files("tests/guest").iter().chain(&files("scripts")) {
        if let Ok(text) = fs::read_to_string(root().join(path)) {
            add(path, checks_of(&text, path));
        }
    }
    (proofs, errors)
}

fn text(path: &str) -> String {
    fs::read_to_string(root().join(path)).expect("a source file is readable")
}

/// Every file below a directory of the tree, sorted, relative to the tree.
fn files(directory: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut pending: Vec<PathBuf> = vec![root().join(directory)];
    while let Some(directory) = pending.pop() {
        for entry in fs::read_dir(directory).expect("readable") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                pending.push(path);
            } else {
                let path = path.strip_prefix(root()).expect("below the tree");
                found.push(path.to_str().expect("UTF-8").to_owned());
            }
        }
    }
    found.sort();
    found
}

/// `tests/exec/main.rs` is `exec`, `tests/exec/grants.rs` is `exec::grants`,
/// `crates/egress/tests/relay/floods.rs` is `relay::floods`, and `crates/spec/src/path.rs` is
/// `runner_spec::path`.
fn module_path(path: &str) -> String {
    let path = path.strip_suffix(".rs").unwrap_or(path);
    let path = match (path.strip_prefix("src/"), path.strip_prefix("crates/")) {
        (Some(path), _) => format!("runner/{path}"),
        (None, Some(path)) => match path.split_once("/tests/") {
            Some((_, test)) => test.to_owned(),
            None => format!("runner_{}", path.replacen("/src/", "/", 1)),
        },
        (None, None) => path.trim_start_matches("tests/").to_owned(),
    };
    let path = ["/mod", "/main", "/lib"]
        .iter()
        .fold(path.as_str(), |path, end| {
            path.strip_suffix(end).unwrap_or(path)
        });
    path.replace('/', "::")
}

/// A file directly below tests/ is named by its path: a test program must be there.
fn not_a_program(path: &str) -> Option<String> {
    let (program, _) = path.strip_prefix("tests/")?.split_once('/')?;
    let places = [
        format!("tests/{program}.rs"),
        format!("tests/{program}/main.rs"),
    ];
    let is_known = ["support", "guest"].contains(&program)
        || places.iter().any(|place| root().join(place).exists());
    (!is_known).then(|| format!("{path}: no test program has the name of its directory"))
}

fn id(text: &str) -> Id {
    comments::parse_id(text).expect("an id")
}

fn list(text: &str) -> String {
    match rows_of(text) {
        Ok(rows) => {
            let rows: Vec<String> = rows.iter().map(Id::to_string).collect();
            rows.join(" ")
        }
        Err(error) => format!("error: {error}"),
    }
}

#[test]
fn a_comment_states_the_rows_of_its_first_sentence() {
    for (text, expected) in [
        ("", ""),
        ("An archive of 3 files.", ""),
        ("A-07", "A-07"),
        ("D-06.", "D-06"),
        ("A-03: refused although it would stay inside.", "A-03"),
        ("D-03, D-27", "D-03 D-27"),
        (
            "B-29, B-19 (\"shocker\"), B-15 (CVE-2016-0728).",
            "B-15 B-19 B-29",
        ),
        ("B-35 (also with CVE-2019-10063, and beside that).", "B-35"),
        ("B-49, syscalls.md: nosuid everywhere.", "B-49"),
        ("B-20 … B-22 with a terminal of its own.", "B-20 B-21 B-22"),
        ("Case 9, H-02: the address.", "H-02"),
        ("Cases 18 to 20, H-14, H-15.", "H-14 H-15"),
        ("H-19, and what an address is.", "H-19"),
        ("A program in C11.", ""),
        (
            "As A-03 does.",
            "error: A-03 does not stand at the beginning",
        ),
        ("B-22 … B-20.", "error: B-22 … B-20 is not a range"),
        ("B-22 … C-30.", "error: B-22 … C-30 is not a range"),
        (
            "A-01: that. And A-02.",
            "error: a row is named after the first sentence",
        ),
        ("A-1: that.", "error: `A-1` looks like a row and is none"),
        ("a-01: that.", "error: `a-01` looks like a row and is none"),
        ("A01: that.", "error: `A01` looks like a row and is none"),
        ("A–01: that.", "error: `A–01` looks like a row and is none"),
        (
            "A-001: that.",
            "error: `A-001` looks like a row and is none",
        ),
        (
            "A-01, A-2: that.",
            "error: `A-2` looks like a row and is none",
        ),
    ] {
        assert_eq!(list(text), expected, "{text}");
    }
}

#[test]
fn a_comment_counts_right_above_a_test_and_is_an_error_elsewhere() {
    let text = "\
//! Names.

/// A-01: why
#[test]
#[expect(
    clippy::panic,
    reason = \"x\"
)]
fn one() {}

mod tests {
    /// A-02
    #[test]
    fn two() {
        // Nothing.
    }
}

on_both_captures! {
    /// H-01.
    fn three(setting) {
        nested();
    }
}

/// No row.
fn no_test() {}
";
    let found = tests_of(text, "program");
    assert_eq!(found.errors, [""; 0]);
    let names: Vec<(&str, usize)> = found
        .proofs
        .iter()
        .map(|proof| (proof.name.as_str(), proof.variants.len()))
        .collect();
    assert_eq!(
        names,
        [
            ("program::one", 0),
            ("program::tests::two", 0),
            ("program::three", 2)
        ]
    );
    for (text, error) in [
        (
            "/// A-01\nfn no_test() {}\n",
            "2: the comment above names rows, and this is no test",
        ),
        (
            "/// A-01\nstruct Any;\n",
            "2: the comment above names rows, and this is no test",
        ),
        (
            "//! F-15: a file about it.\n",
            "1: a row is named in a comment that is not right above a test",
        ),
        (
            "fn any() {\n    // B-03 too.\n}\n",
            "2: a row is named in a comment that is not right above a test",
        ),
        (
            "let x = 1; // B-03\n",
            "1: a row is named in a comment that is not right above a test",
        ),
        (
            "/// As A-03.\nstruct Any;\n",
            "2: the comment above: A-03 does not stand at the beginning",
        ),
        (
            "/// A1: so.\n#[test]\nfn one() {}\n",
            "3: p::one: `A1` looks like a row and is none",
        ),
    ] {
        let found = tests_of(text, "p");
        assert_eq!(
            (found.errors, found.proofs),
            (vec![error.to_owned()], vec![]),
            "{text}"
        );
    }
}

#[test]
fn a_script_states_rows_inside_the_function_that_checks_them() {
    let text = "\
#!/bin/bash
# What it is about.
restarted() {
    # E-20: as a person does it.
    systemctl restart
}
# E-12, E-16.
true
";
    let found = checks_of(text, "tests/guest/run");
    assert_eq!(found.errors, [""; 0]);
    let names: Vec<&str> = found
        .proofs
        .iter()
        .map(|proof| proof.name.as_str())
        .collect();
    assert_eq!(names, ["tests/guest/run: restarted", "tests/guest/run"]);
    let found = checks_of("# So E-20 is tried.\n", "scripts/any");
    assert_eq!(
        found.errors,
        ["2: scripts/any: E-20 does not stand at the beginning"]
    );
}

/// A document with all rows, one of whose lines is replaced.
fn document(id: &str, line: &str) -> String {
    let mut text = String::new();
    for (section, count) in comments::SECTIONS {
        text.push_str(&format!(
            "## {section}: Any\n\n| id | tier | what | must | tests |\n"
        ));
        for number in 1..=*count {
            let row = Id {
                section: *section,
                number,
            };
            match row.to_string() == id {
                true => text.push_str(line),
                false => text.push_str(&format!("| {row} | U R | any | R | – |\n")),
            }
        }
    }
    text
}

/// The rows of a document without errors.
fn sound(document: &str) -> Vec<table::Row> {
    let (rows, wrong) = table::rows(document);
    assert_eq!(wrong, [""; 0]);
    rows
}

#[test]
fn a_table_that_cannot_be_read_as_it_is_meant_is_an_error() {
    let in_all: u32 = comments::SECTIONS.iter().map(|(_, count)| count).sum();
    assert_eq!(sound(&document("", "")).len(), in_all as usize);
    let absent = "| A-02 | P long | `a \\| b` | not applicable: because so | – |\n";
    let rows = sound(&document("A-02", absent));
    let mut absent = rows.iter().filter(|row| !row.is_applicable());
    assert_eq!(absent.next().map(|row| row.id), Some(id("A-02")));
    assert!(absent.next().is_none());
    for (line, expected) in [
        ("", "A-02 is missing"),
        (
            "| A-01 | U | any | R | – |\n",
            "line 5: A-01 is there twice",
        ),
        (
            "| A-02 | U | a | b | R | – |\n",
            "line 5: a row has five cells, and `\\|` for a bar in one",
        ),
        (
            "| A-02 | U | any | – |\n",
            "line 5: a row has five cells, and `\\|` for a bar in one",
        ),
        (
            "| A-02 | U | any |  | – |\n",
            "line 5: A-02: nothing below `must`",
        ),
        (
            "| A-02 | U | `a | b` | – |\n",
            "line 5: A-02: a cell has half a pair of backquotes",
        ),
        (
            "| A-02 | X | any | R | – |\n",
            "line 5: A-02: `X` is no tier",
        ),
        ("| A2 | U | any | R | – |\n", "line 5: `A2` is not an id"),
        (
            "| B-02 | U | any | R | – |\n",
            "line 5: B-02 stands in another section",
        ),
        (
            "| A-02 | U | any | not applicable | – |\n",
            "line 5: A-02: not applicable, and no reason",
        ),
        (
            "| A-02 | U | any | R | – |\n| A-99 | U | any | R | – |\n",
            "A-99 is one too many: section A has 91",
        ),
    ] {
        let (_, errors) = table::rows(&document("A-02", line));
        assert!(errors.contains(&expected.to_owned()), "{line}: {errors:?}");
    }
}

#[test]
fn rows_and_tests_that_do_not_know_each_other_are_errors() {
    let absent = "| A-02 | P | any | not applicable: because so | – |\n";
    let document = document("A-02", absent);
    let rows = sound(&document);
    let comments = "/// A-01, A-02, A-99.\n#[test]\nfn one() {}\n/// A-01\n#[test]\nfn two() {}\n";
    let found = tests_of(comments, "program");
    let tests = table::by_row(&found.proofs);
    let errors = table::disagreements(&rows, &tests);
    assert!(errors.contains(&"A-03 has no test".to_owned()));
    assert!(!errors.contains(&"A-01 has no test".to_owned()));
    assert!(
        errors.contains(
            &"A-02 is not applicable, and program::one says that it proves it".to_owned()
        )
    );
    assert!(errors.contains(&"program::one names A-99, and there is no such row".to_owned()));
    assert_eq!(
        table::told(&tests)[..2],
        ["row A-01 program::one", "row A-01 program::two"]
    );
    let generated = table::generated(&document, &rows, &tests);
    let line = "| A-01 | U R | any | R | `program::one`<br>`program::two` |";
    assert!(generated.lines().any(|other| other == line), "{generated}");
    let again = sound(&generated);
    assert_eq!(table::generated(&generated, &again, &tests), generated);
}

#[test]
fn a_row_with_many_tests_names_three_and_counts_the_others() {
    let comments: String = (0..5)
        .map(|n| format!("/// A-01\n#[test]\nfn n{n}() {{}}\n"))
        .collect();
    let found = tests_of(&comments, "p");
    let tests = table::by_row(&found.proofs);
    let document = document("", "");
    let rows = sound(&document);
    let line = "| A-01 | U R | any | R | `p::n0`<br>`p::n1`<br>`p::n2`<br>and 2 more |";
    let generated = table::generated(&document, &rows, &tests);
    assert!(generated.lines().any(|other| other == line), "{generated}");
}
