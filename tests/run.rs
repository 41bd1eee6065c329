//! `runner run`: a command with no bundle.

mod support;

use support::Ground;

#[test]
fn a_command_runs_and_its_exit_code_passes_through() {
    let ground = Ground::new();
    ground.run(&[], &["/bin/true"]).assert_exited(0);
    ground
        .run(&[], &["/bin/sh", "-c", "exit 42"])
        .assert_exited(42);
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
