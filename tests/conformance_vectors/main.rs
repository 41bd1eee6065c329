//! The conformance vectors of `tests/conformance`, run through the public interfaces of this program.
//!
//! README.md there defines a vector. Nothing is skipped: a vector that cannot be run fails.

#![expect(
    clippy::expect_used,
    clippy::panic,
    reason = "test code: a failure is a panic that names the vector"
)]

mod actions;
mod archive;
mod asked;
mod ground;
mod judge;
mod outcome;
mod sources;
mod vector;

use std::io::Write as _;
use std::path::PathBuf;

use vector::Vector;

/// Entries of the folder that are not vectors.
const OTHER_FILES: [&str; 2] = ["README.md", "digest.py"];

fn folder() -> PathBuf {
    support::source_path("tests/conformance")
}

/// Every file of vectors, by name.
fn files() -> Vec<(String, Vec<Vector>)> {
    let mut files: Vec<(String, Vec<Vector>)> = std::fs::read_dir(folder())
        .expect("the folder is readable")
        .map(|entry| entry.expect("an entry").file_name())
        .map(|name| name.into_string().expect("a plain name"))
        .filter(|name| !OTHER_FILES.contains(&name.as_str()))
        .map(|name| {
            let vectors = vector::read(&folder().join(&name));
            (name, vectors)
        })
        .collect();
    files.sort_by(|(a, _), (b, _)| a.cmp(b));
    files
}

/// Writes to standard output itself: the output of `println!` is shown only if a test fails.
fn say(line: &str) {
    writeln!(std::io::stdout().lock(), "{line}").expect("written");
}

#[test]
fn every_vector_holds() {
    // `VECTORS=overlay` or `VECTORS=overlay:inline` runs those whose file or name contains it.
    let wanted = std::env::var("VECTORS").unwrap_or_default();
    let (wanted_file, wanted_name) = wanted.split_once(':').unwrap_or((&wanted, ""));
    let mut failures = Vec::new();
    let mut total = 0;
    for (file, vectors) in files() {
        if !file.contains(wanted_file) {
            continue;
        }
        let before = failures.len();
        let mut count = 0;
        for vector in vectors
            .iter()
            .filter(|vector| vector.name.contains(wanted_name))
        {
            count += 1;
            // A panic is a difference too, and the vectors after it still run.
            let judged =
                std::panic::catch_unwind(|| judge::differences(vector, &actions::run(vector)));
            let differences = judged.unwrap_or_else(|_| vec!["panicked, see above".to_owned()]);
            for difference in differences {
                failures.push(format!("{file}: {}: {difference}", vector.name));
            }
        }
        total += count;
        let failed = failures.len() - before;
        say(&format!("{file}: {count} vectors, {failed} differences"));
    }
    say(&format!("{total} vectors"));
    assert!(
        failures.is_empty(),
        "{} differences:\n{}",
        failures.len(),
        failures.join("\n")
    );
}

/// Implementations find the vectors by the lines that begin with `- name:`.
#[test]
fn every_vector_has_a_name_of_its_own_and_says_what_it_tests() {
    let mut total = 0;
    for (file, vectors) in files() {
        let text = std::fs::read_to_string(folder().join(&file)).expect("readable");
        let begun = text
            .lines()
            .filter(|line| line.starts_with("- name: "))
            .count();
        assert_eq!(begun, vectors.len(), "{file}");
        total += begun;
        let mut names: Vec<&str> = vectors.iter().map(|vector| vector.name.as_str()).collect();
        names.sort_unstable();
        for pair in names.windows(2) {
            assert_ne!(pair[0], pair[1], "{file}");
        }
        for vector in &vectors {
            assert!(!vector.spec.is_empty(), "{file}: {}", vector.name);
            assert!(
                vector.expect.says_something(),
                "{file}: {}: expects nothing",
                vector.name
            );
        }
    }
    assert!(200 <= total, "{total} vectors");
}

/// Two programs, one of them written from README.md alone.
#[test]
fn the_other_program_computes_the_same_digests() {
    if std::process::Command::new("python3")
        .arg("--version")
        .output()
        .is_err()
    {
        support::skip("python3 is not here to run digest.py");
        return;
    }
    let vectors = vector::read(&folder().join("digests.yaml"));
    let mut compared = 0;
    for vector in vectors
        .iter()
        .filter(|vector| vector.action == vector::Action::Digest)
    {
        // Unpacked trees contain no version control files, which `digest.py` does not know.
        let outcome = actions::run(vector);
        let again = tempfile::tempdir().expect("a directory");
        ground::make_found(again.path(), &outcome.tree);
        let done = std::process::Command::new("python3")
            .arg(folder().join("digest.py"))
            .arg(again.path())
            .output()
            .expect("python3 runs");
        let printed = String::from_utf8(done.stdout).expect("text");
        assert_eq!(
            Some(printed.trim()),
            vector.expect.digest.as_deref(),
            "{}: {}",
            vector.name,
            String::from_utf8_lossy(&done.stderr)
        );
        compared += 1;
    }
    assert!(20 <= compared, "{compared} digests");
}

/// Tests the comparison itself: an inverted vector must fail.
#[test]
fn a_wrong_expectation_is_reported() {
    let mut told = 0;
    for (file, vectors) in files() {
        let Some(vector) = vectors.iter().find(|vector| vector.expect.error.is_none()) else {
            continue;
        };
        let mut turned = vector.clone();
        turned.expect.error = Some("no_such_error".to_owned());
        let outcome = actions::run(&turned);
        assert!(
            !judge::differences(&turned, &outcome).is_empty(),
            "{file}: {}",
            vector.name
        );
        told += 1;
    }
    assert!(10 <= told, "{told} files");
}
