//! The built programs: position-independent, so that no address is known to an attacker.

#![expect(clippy::expect_used, reason = "test code: a failure is a panic")]

use std::path::Path;
use std::process::{Command, Output};

use support::{skip, source_path};

fn check(program: &Path) -> Output {
    Command::new(source_path("scripts/check-release"))
        .arg(program)
        .output()
        .expect("the script runs")
}

#[test]
fn all_programs_are_static_position_independent_and_read_only_after_their_start() {
    let program = Path::new(env!("CARGO_BIN_EXE_runner"));
    for name in ["runner", "runner-server", "runner-worker"] {
        let done = check(&program.with_file_name(name));
        assert!(done.status.success(), "{name}: {done:?}");
    }
}

#[test]
fn a_program_at_fixed_addresses_with_libraries_and_an_executable_stack_is_called_so() {
    let directory = tempfile::tempdir().expect("a directory");
    let (source, program) = (
        directory.path().join("weak.c"),
        directory.path().join("weak"),
    );
    std::fs::write(&source, "int main(void) { return 0; }\n").expect("written");
    let built = Command::new("cc")
        .args([
            "-no-pie",
            "-Wl,-z,norelro",
            "-Wl,-z,lazy",
            "-z",
            "execstack",
            "-o",
        ])
        .args([&program, &source])
        .output()
        .expect("cc runs");
    assert!(built.status.success(), "{built:?}");
    let done = check(&program);
    assert_eq!(done.status.code(), Some(1), "{done:?}");
    let told = String::from_utf8_lossy(&done.stderr);
    for words in [
        "lies at fixed addresses",
        "is not marked as position-independent",
        "wants a dynamic loader",
        "wants libraries",
        "nothing that becomes read-only",
        "binds late",
        "has an executable stack",
    ] {
        assert!(told.contains(words), "{words}: {told}");
    }
}

/// The feature `planted-bugs` is for tests.
#[test]
fn a_program_with_planted_bugs_is_called_so() {
    let program = Path::new(env!("CARGO_BIN_EXE_runner")).with_file_name("examples/planted");
    if !program.exists() {
        skip("no program with planted bugs: see tests/takeover/main.rs");
        return;
    }
    let done = check(&program);
    assert_eq!(done.status.code(), Some(1), "{done:?}");
    let told = String::from_utf8_lossy(&done.stderr);
    assert!(
        told.contains("contains the bugs that tests plant"),
        "{told}"
    );
}
