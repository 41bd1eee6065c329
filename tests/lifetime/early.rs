//! The prefork, which starts before the command line is read: a refusal ends and reaps it, and it
//! dies with a supervisor that is killed at any time.

use std::process::{Command, Stdio};

use crate::runtime::Runtime;
use support::bodies::c_body;
use support::{Ground, runner};

/// Starts its arguments as a subreaper. With a time in microseconds, it kills the supervisor after
/// that time and waits for all orphans; otherwise an orphan is an error, with exit code 70.
const GUARDIAN: &str = include_str!("../bodies/lifetime/early_guardian.c");

fn guarded(runtime: &Runtime, kill_after_us: i32, words: &[&str]) -> Option<i32> {
    Command::new(c_body("guardian", GUARDIAN))
        .arg(kill_after_us.to_string())
        .arg(runner())
        .args(words)
        .env("RUNNER_OPT_RUNTIME_DIRECTORY", &runtime.path)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .expect("started")
        .code()
}

#[test]
fn a_refusal_ends_and_reaps_the_child_that_was_made_for_it() {
    let runtime = Runtime::new();
    for (words, code) in [
        (&["run"][..], 125),
        (&["run", "--nonsense", "x"], 125),
        (&["run", "--help"], 0),
        (&["run", "--policy", "/nonexistent", "--", "/bin/true"], 125),
        (&["run", "--json=/nonexistent/r", "--", "/bin/true"], 125),
        (&["run", "--ro", "/nonexistent", "--", "/bin/true"], 125),
        (&["run", "--", "/nonexistent"], 127),
        (&["exec", "/nonexistent.tar.gz"], 125),
        (&["exec", "/dev/null"], 125),
        (&["run", "--", "/bin/true"], 0),
    ] {
        assert_eq!(guarded(&runtime, -1, words), Some(code), "{words:?}");
    }
    runtime.assert_nothing_left(&[]);
}

#[test]
fn a_supervisor_that_is_killed_at_any_moment_takes_the_child_along() {
    let (ground, runtime) = (Ground::new(), Runtime::new());
    let mut runs = Vec::new();
    for step in 0..40 {
        let words = ["run", "--", "/bin/sleep", "600"];
        assert_eq!(guarded(&runtime, step * 200, &words), Some(0), "{step}");
        runs.extend(runtime.records());
    }
    // The next start removes the leftovers of the killed ones.
    let again = runtime.case(&ground, &[], &["/bin/true"]);
    again.done().assert_exited(0);
    runtime.assert_nothing_left(&runs);
}

#[test]
fn a_body_may_use_the_processors_that_its_caller_may() {
    let runtime = Runtime::new();
    let allowed = |program: &std::ffi::OsStr, words: &[&str]| {
        let output = Command::new("taskset")
            .args(["--cpu-list", "0"])
            .arg(program)
            .args(words)
            .env("RUNNER_OPT_RUNTIME_DIRECTORY", &runtime.path)
            .output()
            .expect("started");
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).expect("text")
    };
    let look = ["Cpus_allowed_list", "/proc/self/status"];
    let inside = [&["run", "--", "/usr/bin/grep"], &look[..]].concat();
    let outside = Command::new("/usr/bin/grep").args(look).output();
    let all = outside.expect("started").stdout;
    for _ in 0..20 {
        let output = Command::new(runner())
            .args(&inside)
            .env("RUNNER_OPT_RUNTIME_DIRECTORY", &runtime.path)
            .output()
            .expect("started");
        assert_eq!(output.stdout, all, "{output:?}");
    }
    let one = allowed("/usr/bin/grep".as_ref(), &look);
    assert_eq!(allowed(&runner(), &inside), one);
    runtime.assert_nothing_left(&[]);
}
