//! Builds and version control inside the sandbox.

use std::os::unix::fs::PermissionsExt as _;
use std::process::Command;

use crate::bundling::exec_bundled;
use support::packages::{has, succeed};
use support::{Ground, skip};

const MAKEFILE: &str = "OBJECTS = main.o one.o two.o three.o four.o
program: $(OBJECTS)
\tgcc -o $@ $(OBJECTS)
%.o: %.c
\tgcc -O2 -Wall -c -o $@ $<
";

const MAIN: &str = "#include <stdio.h>
int one(void), two(void), three(void), four(void);
int main(void) { printf(\"%d\\n\", one() + two() + three() + four()); return 0; }
";

#[test]
fn make_builds_in_parallel_and_the_program_comes_back_and_runs() {
    let ground = Ground::new();
    let folder = ground.folder(&[
        (
            "manifest.yaml",
            "name: program\nrun: make -j4 && cp program /scratch/program\n",
        ),
        ("Makefile", MAKEFILE),
        ("main.c", MAIN),
        ("one.c", "int one(void) { return 1; }\n"),
        ("two.c", "int two(void) { return 2; }\n"),
        ("three.c", "int three(void) { return 3; }\n"),
        ("four.c", "int four(void) { return 4; }\n"),
    ]);
    let workspace = ground.workspace();
    let flags = [
        "--out",
        "program=bin/program",
        "--workspace",
        workspace.to_str().expect("a plain path"),
    ];
    let done = exec_bundled(&ground, &flags, &folder, &[]);
    done.assert_exited(0);
    let program = workspace.join("bin/program");
    let mode = std::fs::metadata(&program)
        .expect("synced")
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o755);
    assert_eq!(succeed(&mut Command::new(&program)).as_deref(), Ok("10\n"));
    let outputs = done.report["outputs"].as_array().expect("outputs");
    assert_eq!(outputs.len(), 1, "{done:#?}");
}

#[test]
fn git_clones_commits_and_shows_its_log() {
    let ground = Ground::new();
    if !has("git") {
        return;
    }
    let script = include_str!("../bodies/real/git_clones_commits_and_shows_its_log.sh");
    let manifest = "name: history\nrun: [bash, -eu, work.sh]\n";
    let folder = ground.folder(&[
        ("manifest.yaml", manifest),
        ("text", "a line\n"),
        ("work.sh", script),
    ]);
    let done = exec_bundled(&ground, &[], &folder, &[]);
    done.assert_exited(0);
    assert_eq!(done.text(), "two\none\ntwo\none\n");
}

#[test]
fn java_compiles_and_runs_within_the_default_memory() {
    let ground = Ground::new();
    if !std::path::Path::new("/usr/bin/javac").exists() {
        return skip("there is no javac");
    }
    let source = "public class Main {
    public static void main(String[] words) throws Exception {
        Thread thread = new Thread(() -> System.out.println(\"from a thread\"));
        thread.start();
        thread.join();
    }
}
";
    let manifest = "name: threads\nrun: javac Main.java && java Main\n";
    let folder = ground.folder(&[("manifest.yaml", manifest), ("Main.java", source)]);
    let done = exec_bundled(&ground, &[], &folder, &[]);
    done.assert_exited(0);
    assert_eq!(done.text(), "from a thread\n");
}
