//! The output of `scripts/threats` for logs of a test run.

use std::fs;
use std::path::Path;
use std::process::Command;

use support::skip;

const DOCUMENT: &str = "\
# Threats

## A: Any

| id | tier | what is tried | must | tests |
| --- | --- | --- | --- | --- |
| A-01 | U R | a `\\|` b | R | – |
| A-02 | U R long | any | R | – |
| A-03 | V | any | R | – |
| A-04 | U R | any | not applicable: because so | – |
| A-05 | R | any | R | – |
";

/// The output of libtest for one passed test with output.
const CATALOGUE: &str = "\
     Running tests/catalogue.rs (target/debug/deps/catalogue-0123456789abcdef)

running 1 test
test every_row ... ok

successes:

---- every_row stdout ----
row A-01 any::module::one
row A-01 any::both::tproxy
row A-02 any::two
row A-03 tests/guest/run: restarted
row A-05 runner_spec::path::tests::five


successes:
    every_row

test result: ok. 1 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s
";

/// The log of a program: each test, its result, and its output.
fn program(name: &str, tests: &[(&str, &str, &str)]) -> String {
    let mut log =
        format!("     Running tests/{name}.rs (target/debug/deps/{name}-0123456789abcdef)\n\n");
    log.push_str(&results(tests));
    log
}

fn results(tests: &[(&str, &str, &str)]) -> String {
    let lines = tests
        .iter()
        .map(|(name, result, _)| format!("test {name} ... {result}\n"));
    let said = tests
        .iter()
        .map(|(name, _, said)| format!("---- {name} stdout ----\n{said}\n\n"));
    format!(
        "running 9 tests\n{}\nsuccesses:\n\n{}\nsuccesses:\n    any\n\ntest result: ok. 9 passed; 0 failed\n",
        lines.collect::<String>(),
        said.collect::<String>()
    )
}

/// Prints a skip if the machine cannot run the script.
fn has_python() -> bool {
    let has = Command::new("python3").arg("--version").output().is_ok();
    if !has {
        skip("scripts/threats needs python3");
    }
    has
}

/// Runs the script on logs; returns its exit code and output.
fn threats(logs: &[(&str, String)], words: &[&str], strict: &str) -> (Option<i32>, String) {
    let directory = tempfile::tempdir().expect("a directory");
    let document = directory.path().join("threats.md");
    fs::write(&document, DOCUMENT).expect("written");
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts/threats");
    let mut command = Command::new(script);
    command.arg("--document").arg(&document).args(words);
    command.env("RUNNER_TESTS_STRICT", strict);
    for (name, text) in logs {
        let path = directory.path().join(name);
        fs::write(&path, text).expect("written");
        command.arg(path);
    }
    let output = command
        .current_dir(directory.path())
        .output()
        .expect("python3 starts");
    let mut said = String::from_utf8(output.stdout).expect("UTF-8");
    said.push_str(&String::from_utf8_lossy(&output.stderr));
    if let Ok(table) = fs::read_to_string(directory.path().join("table.md")) {
        said.push_str(&table);
    }
    (output.status.code(), said)
}

/// The root half of a run in which all tests of the tier passed.
fn sound() -> String {
    let any = program(
        "any",
        &[
            ("module::one", "ok", ""),
            ("both::tproxy - should panic", "ok", ""),
            ("two", "ok", "belongs to tier long: scripts/test --long"),
        ],
    );
    let library = "     Running unittests src/lib.rs (target/debug/deps/runner_spec-0123456789abcdef)\n\n\
        test path::tests::five ... ok\n\ntest result: ok. 1 passed; 0 failed\n";
    [
        CATALOGUE,
        &any,
        library,
        "   Doc-tests runner\n\ntest src/lib.rs - x (line 1) ... ok\n",
    ]
    .concat()
}

#[test]
fn rows_of_higher_tiers_and_of_the_guest_are_counted_apart() {
    if !has_python() {
        return;
    }
    let logs = [("root.log", sound())];
    let (code, said) = threats(&logs, &[], "1");
    assert_eq!(
        said,
        "threats: only with --long: A-02\n\
         threats: only in scripts that did not run: A-03\n\
         threats: 2 of 5 rows passed, 1 not applicable, 1 only with --long, 1 only in scripts that did not run\n"
    );
    assert_eq!(code, Some(0));
    let long = sound().replace("belongs to tier long", "took its time");
    let words = ["--script", "tests/guest/run=0", "--markdown", "table.md"];
    let (code, said) = threats(&[("root.log", long)], &words, "1");
    assert!(
        said.starts_with("threats: 4 of 5 rows passed, 1 not applicable\n"),
        "{said}"
    );
    assert!(
        said.contains("| A-01 | U R | a `\\|` b | R | passed |\n"),
        "{said}"
    );
    assert!(said.contains("| A-04 | U R | any | not applicable: because so | not applicable |\n"));
    assert_eq!(code, Some(0));
}

#[test]
fn a_row_of_which_one_test_failed_did_not_pass_although_another_did() {
    if !has_python() {
        return;
    }
    let failed = program("any", &[("module::one", "FAILED", "")]);
    for logs in [
        vec![
            ("root.log", sound()),
            ("user-any.log", results(&[("module::one", "FAILED", "")])),
        ],
        vec![("root.log", sound() + &failed)],
    ] {
        let (code, said) = threats(&logs, &[], "1");
        assert!(
            said.contains("threats: A-01: a test failed: any::module::one\n"),
            "{said}"
        );
        assert!(said.contains("threats: 1 of 5 rows passed"), "{said}");
        assert_eq!(code, Some(1));
    }
    let (code, said) = threats(
        &[("root.log", sound())],
        &["--script", "tests/guest/run=3"],
        "1",
    );
    assert!(
        said.contains("threats: A-03: a test failed: tests/guest/run: restarted\n"),
        "{said}"
    );
    assert_eq!(code, Some(1));
}

#[test]
fn a_skipped_or_missing_test_does_not_pass_its_row() {
    if !has_python() {
        return;
    }
    let absent = sound().replace("test path::tests::five ... ok\n", "");
    let (code, said) = threats(&[("root.log", absent)], &[], "");
    assert!(
        said.contains("threats: A-05: no test ran: runner_spec::path::tests::five\n"),
        "{said}"
    );
    assert_eq!(code, Some(1));
    let skipped = |said| {
        let tests = [
            ("module::one", "ok", said),
            ("both::tproxy", "ok", said),
            ("two", "ok", ""),
        ];
        CATALOGUE.to_owned()
            + &program("any", &tests)
            + &program("runner_spec", &[("path::tests::five", "ok", "")])
    };
    for said_by_test in ["SKIPPED: no compiler", "was run as root: mounts"] {
        let logs = [("root.log", skipped(said_by_test))];
        let (code, said) = threats(&logs, &[], "");
        assert!(said.contains("threats: 2 of 5 rows passed"), "{said}");
        assert!(said.contains("1 skipped\n"), "{said}");
        assert_eq!(code, Some(0));
        let (code, said) = threats(&logs, &[], "1");
        assert!(
            said.contains("threats: A-01: its tests said SKIPPED: any::"),
            "{said}"
        );
        assert_eq!(code, Some(1));
    }
    // One half of the run is enough.
    let user = results(&[("module::one", "ok", "")]);
    let logs = [
        ("root.log", skipped("SKIPPED: any")),
        ("user-any.log", user),
    ];
    let (code, said) = threats(&logs, &[], "1");
    assert!(said.contains("threats: 3 of 5 rows passed"), "{said}");
    assert_eq!(code, Some(0));
}

#[test]
fn logs_without_the_catalogue_s_own_output_are_an_error() {
    if !has_python() {
        return;
    }
    let (code, said) = threats(
        &[("root.log", program("any", &[("two", "ok", "")]))],
        &[],
        "",
    );
    assert!(said.contains("tests/catalogue did not run"), "{said}");
    assert_eq!(code, Some(1));
}
