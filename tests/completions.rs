//! The completions, sourced by the shell itself.

#![expect(clippy::expect_used, reason = "test code: a failure is a panic")]

use std::process::Command;

use support::runner;

const COMPLETE: &str = include_str!("bodies/completions/complete.sh");

fn script(shell: &str) -> String {
    let output = Command::new(runner())
        .args(["completions", shell])
        .output()
        .expect("the runner starts");
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).expect("text")
}

#[test]
fn bash_completes_verbs_flags_and_values() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("completions");
    std::fs::write(&file, script("bash")).expect("written");
    let complete = directory.path().join("complete.sh");
    std::fs::write(&complete, COMPLETE).expect("written");
    for (words, expected) in [
        (&["doc"][..], "doctor"),
        (&["comple"], "completions"),
        (&["completions", "fi"], "fish"),
        (&["run", "--time"], "--timeout"),
        (&["why", "--sysc"], "--syscall --syscalls"),
        (&["why", "--op", "wr"], "write"),
        (&["source", "pu"], "pull push"),
        (&["exec", "--no-such"], ""),
    ] {
        let output = Command::new("bash")
            .args(["--norc", "--noprofile"])
            .args([&complete, &file])
            .args(words)
            .output()
            .expect("bash starts");
        let found = String::from_utf8_lossy(&output.stdout);
        let mut found: Vec<&str> = found.split_whitespace().collect();
        found.sort_unstable();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!((&*found.join(" "), &*errors), (expected, ""), "{words:?}");
    }
}

#[test]
fn each_shell_gets_a_script_of_its_own() {
    for (shell, line) in [
        ("bash", "complete -F _runner"),
        ("zsh", "#compdef runner"),
        ("fish", "complete -c runner"),
    ] {
        let script = script(shell);
        assert!(script.contains(line), "{shell}");
        assert!(
            script.contains("doctor") && script.contains("timeout"),
            "{shell}"
        );
    }
}
