//! Hostile C bodies: each prints one line per attempt, `name ok` or `name ERRNO`, and exits with 0.

use std::path::{Path, PathBuf};

use support::bodies::c_body;
use support::{Case, Done, Ground};

/// The prelude of every hostile body: the headers, and `try`, which prints the result of an attempt.
const PRELUDE: &str = include_str!("../bodies/escapes/attempts_prelude.c");

/// Compiles the prelude with this text.
pub fn program(name: &str, text: &str) -> PathBuf {
    c_body(name, &format!("{PRELUDE}\n{text}"))
}

/// `runner run FLAGS… -- PROGRAM ARGUMENTS…` in the surroundings of these attempts; the program is
/// visible inside at its own path.
pub fn case<'a>(ground: &'a Ground, flags: &[&str], program: &Path, words: &[&str]) -> Case<'a> {
    let program = program.to_str().expect("a plain path");
    let mut line = vec!["run", "--ro", program];
    line.extend(flags);
    line.extend(["--", program]);
    line.extend(words);
    let mut case = ground.command(&line);
    super::surround(&mut case);
    case
}

/// Runs a hostile body to its end; it must exit with 0.
#[track_caller]
pub fn attempt(ground: &Ground, name: &str, text: &str) -> Done {
    attempt_with(ground, &[], name, text, &[])
}

/// The same as [`attempt`], with flags for the runner and arguments for the body.
#[track_caller]
pub fn attempt_with(
    ground: &Ground,
    flags: &[&str],
    name: &str,
    text: &str,
    words: &[&str],
) -> Done {
    let done = case(ground, flags, &program(name, text), words).done();
    done.assert_exited(0);
    done
}

/// Asserts that the body printed exactly these lines, ignoring leading white space.
#[track_caller]
pub fn assert_lines(done: &Done, expected: &str) {
    let expected: Vec<&str> = expected
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty())
        .collect();
    let text = done.text();
    let found: Vec<&str> = text.lines().collect();
    assert_eq!(found, expected, "{}", done.stderr);
}

/// Asserts that every line is an attempt, at least `least` of them, that failed with one of `refusals`.
#[track_caller]
pub fn assert_all_refused(done: &Done, least: usize, refusals: &[&str]) {
    let text = done.text();
    assert!(least <= text.lines().count(), "{text}");
    for line in text.lines() {
        let answer = line.rsplit(' ').next().expect("a word");
        assert!(refusals.contains(&answer), "{line}\nin\n{text}");
    }
}

/// Runs `sh -c TEXT`, which must exit with 0; returns its lines.
#[track_caller]
pub fn shell(ground: &Ground, flags: &[&str], text: &str) -> Vec<String> {
    let line = [&["run"], flags, &["--", "/bin/sh", "-c", text]].concat();
    let mut case = ground.command(&line);
    super::surround(&mut case);
    let done = case.done();
    done.assert_exited(0);
    done.text().lines().map(str::to_owned).collect()
}
