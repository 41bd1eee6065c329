//! Small programs that every host has: a pipeline, a static binary.

use crate::bundling::exec_bundled;
use support::Ground;
use support::bodies::{c_body, copy_program};

const THREADS: &str = include_str!("../bodies/real/programs_threads.c");

#[test]
fn a_shell_pipeline_counts_words() {
    let ground = Ground::new();
    let folder = ground.folder(&[
        ("words.txt", "pear\napple\npear\nfig\napple\npear\n"),
        (
            "manifest.yaml",
            "name: count\nrun: sort words.txt | uniq -c | sort -rn | awk '{ print $2 \"=\" $1 }'\n",
        ),
    ]);
    let done = exec_bundled(&ground, &[], &folder, &[]);
    done.assert_exited(0);
    assert_eq!(done.text(), "pear=3\napple=2\nfig=1\n");
}

#[test]
fn a_static_binary_in_a_bundle_starts_threads_and_children() {
    let ground = Ground::new();
    let program = c_body("threads", THREADS);
    let folder = ground.path("static");
    std::fs::create_dir_all(folder.join("bin")).expect("made");
    copy_program(&program, &folder.join("bin/threads"));
    std::fs::write(folder.join("manifest.yaml"), "name: t\nrun: bin/threads\n").expect("written");
    let done = exec_bundled(&ground, &[], &folder, &["word"]);
    done.assert_exited(0);
    assert_eq!(done.text(), "word 22\n");
}

#[test]
fn a_binary_given_by_its_path_runs_wherever_it_lies() {
    let ground = Ground::new();
    let program = c_body("threads", THREADS);
    let path = program.to_str().expect("a plain path");
    let done = ground.run(&[], &[path, "absolute"]);
    done.assert_exited(0);
    assert_eq!(done.text(), "absolute 22\n");
    let mut case = ground.command(&["run", "--", "./threads", "relative"]);
    let directory = program.parent().expect("a parent");
    case.command.current_dir(directory);
    let done = case.done();
    done.assert_exited(0);
    assert_eq!(done.text(), "relative 22\n");
}

#[test]
fn a_full_disk_is_an_error_that_the_program_sees_and_no_signal() {
    let ground = Ground::new();
    let beside = "x".repeat(100_000);
    let script = include_str!(
        "../bodies/real/a_full_disk_is_an_error_that_the_program_sees_and_no_signal.sh"
    );
    let folder = ground.folder(&[
        ("manifest.yaml", "name: fill\nrun: fill.sh\n"),
        ("beside.txt", &beside),
        ("fill.sh", script),
    ]);
    let done = exec_bundled(&ground, &["--disk", "8m"], &folder, &[]);
    // A hole takes no space: the limit ends the program with SIGXFSZ.
    done.assert_exited(0);
    assert_eq!(done.text(), "No space left on device\n1\n153\n");
}
