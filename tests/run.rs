//! `runner run`: a command with no bundle.

mod support;

use support::Ground;
use support::bodies::c_body;

#[test]
fn a_command_runs_and_its_exit_code_passes_through() {
    let ground = Ground::new();
    ground.run(&[], &["/bin/true"]).assert_exited(0);
    ground
        .run(&[], &["/bin/sh", "-c", "exit 42"])
        .assert_exited(42);
}

#[test]
fn a_program_given_by_its_path_is_shown_as_a_single_file_and_runs() {
    let ground = Ground::new();
    let body = c_body("ends-with-7", "int main(void) { return 7; }");
    let body = body.to_str().expect("UTF-8");
    ground.run(&[], &[body]).assert_exited(7);
    ground.run(&["--rw", body], &[body]).assert_exited(7);
    // Only its owner may read it: as root it must be shown as the body's own.
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o700);
    std::fs::set_permissions(body, mode).expect("set");
    ground.run(&[], &[body]).assert_exited(7);
}

#[test]
fn a_relative_program_is_that_of_the_directory_it_starts_in_and_not_the_host_s() {
    let ground = Ground::new();
    let lent = tempfile::tempdir().expect("a directory");
    let mode: std::fs::Permissions = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(lent.path(), mode.clone()).expect("set");
    let docs = lent.path().join("docs");
    std::fs::create_dir(&docs).expect("made");
    std::fs::set_permissions(&docs, mode.clone()).expect("set");
    let tool = docs.join("threats.md");
    std::fs::write(&tool, "#!/bin/sh\nexit 7\n").expect("written");
    std::fs::set_permissions(&tool, mode).expect("set");
    // The tests start in the directory of the package or in a copy, which have a file of that name.
    assert!(std::path::Path::new("./docs/threats.md").exists());
    let mount = format!("{}:/data:ro", lent.path().display());
    let words = ["--mount", &mount, "-w", "/data"];
    ground.run(&words, &["./docs/threats.md"]).assert_exited(7);
    let missing = ground.run(&words, &["./docs/performance.md"]);
    missing.assert_error("failed", "program_not_found");
    // The host has a file of the very path that is mounted: the one that is mounted is meant.
    let hidden = tempfile::tempdir().expect("a directory");
    std::fs::create_dir(hidden.path().join("docs")).expect("made");
    std::fs::write(hidden.path().join("docs/threats.md"), "").expect("written");
    let target = hidden.path().to_str().expect("UTF-8");
    let mount = format!("{}:{target}:ro", lent.path().display());
    let program = format!("{target}/docs/threats.md");
    let words = ["--mount", &mount];
    ground.run(&words, &[&program]).assert_exited(7);
}

#[test]
fn a_program_that_is_not_there_is_127_and_one_that_cannot_be_executed_126() {
    let ground = Ground::new();
    let done = ground.run(&[], &["no-such-program-7f3a"]);
    done.assert_error("failed", "program_not_found");
    let done = ground.run(&[], &["/usr/bin"]);
    done.assert_error("failed", "program_not_executable");
}

#[test]
fn the_output_of_the_body_is_its_own_and_nothing_is_added() {
    let ground = Ground::new();
    let done = ground.run(&[], &["/bin/sh", "-c", "echo out; echo err >&2"]);
    done.assert_exited(0);
    assert_eq!(
        (done.text().as_str(), done.stderr.as_str()),
        ("out\n", "err\n")
    );
}
