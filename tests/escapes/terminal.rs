//! Terminals: the body cannot reach the caller's, has one of its own on request, and the caller's
//! is restored.

use std::path::Path;

use super::attempts::{case, program};
use support::{Done, Ground, skip};

/// Starts its arguments on a new terminal as session leader, in a mode without echo and line
/// editing so that injected bytes count as input; forwards the output; then prints the number of
/// unread bytes, and whether the settings are unchanged.
const HARNESS: &str = include_str!("../bodies/escapes/terminal_harness.py");

const PUSH: &str = include_str!("../bodies/escapes/terminal_push.c");

fn python() -> Option<&'static str> {
    ["/usr/bin/python3", "/usr/local/bin/python3"]
        .into_iter()
        .find(|path| Path::new(path).exists())
}

/// Runs it on a terminal; `None` after a skip.
fn on_a_terminal(
    ground: &Ground,
    steps: &str,
    flags: &[&str],
    program: &Path,
    words: &[&str],
) -> Option<Done> {
    let Some(python) = python() else {
        skip("the terminal's harness needs python3");
        return None;
    };
    let started = case(ground, flags, program, words);
    // I10 would measure this program.
    let done = started
        .through(python, &["-c", HARNESS, steps])
        .without("I10")
        .done();
    Some(done)
}

fn pushed_at(where_: &str) -> String {
    ["sti", "high", "highest", "linux", "linux high"]
        .map(|how| format!("{where_} {how} EPERM\n"))
        .concat()
}

/// B-20 (CVE-2017-5226), B-21 (CVE-2019-10063), B-22 (CVE-2023-28100).
#[test]
fn no_byte_is_pushed_into_the_caller_s_terminal() {
    for flags in [&[][..], &["-i"]] {
        let ground = Ground::new();
        let push = program("push", PUSH);
        let Some(done) = on_a_terminal(&ground, "", flags, &push, &[]) else {
            return;
        };
        done.assert_exited(0);
        let three = ["0", "1", "2"].map(pushed_at).concat();
        let text = done.text();
        let (body, harness) = text.split_once("controlling ").expect("the last line");
        assert_eq!(body, format!("{three}tty absent ENXIO\n"));
        assert!(!harness.starts_with("ok"), "{text}");
        assert!(harness.ends_with("\npushed 0\nrestored True\n"), "{text}");
    }
}

/// B-20 … B-22 with a terminal of the body's own.
#[test]
fn no_byte_is_pushed_into_the_body_s_own_terminal_either() {
    let ground = Ground::new();
    let push = program("push", PUSH);
    let Some(done) = on_a_terminal(&ground, "", &["-t"], &push, &[]) else {
        return;
    };
    done.assert_exited(0);
    let text = done.text().replace('\r', "");
    let four = ["0", "1", "2", "tty"].map(pushed_at).concat();
    assert!(text.starts_with(&four), "{text}");
    assert!(text.ends_with("pushed 0\nrestored True\n"), "{text}");
}

/// B-20, B-23.
#[test]
fn the_body_s_terminal_is_its_own_and_works() {
    let ground = Ground::new();
    let text = include_str!("../bodies/escapes/the_body_s_terminal_is_its_own_and_works.c");
    let own = program("own-terminal", text);
    let Some(done) = on_a_terminal(&ground, "cooked", &["-t", "-i"], &own, &[]) else {
        return;
    };
    done.assert_exited(0);
    // It leaves its own terminal in raw mode, and the caller's is still restored.
    let text = done.text().replace('\r', "");
    let expected = "name /dev/pts/0\nall 1\ntty ok\nsession 1\nsame 1\ngroup 0\nraw 0\n\
        pushed 0\nrestored True\n";
    assert_eq!(text, expected);
}

/// B-23.
#[test]
fn the_window_size_follows_the_caller_s_terminal() {
    let ground = Ground::new();
    let text = include_str!("../bodies/escapes/the_window_size_follows_the_caller_s_terminal.c");
    let sizes = program("window-size", text);
    let Some(done) = on_a_terminal(&ground, "resize", &["-t"], &sizes, &[]) else {
        return;
    };
    done.assert_exited(0);
    assert_eq!(
        done.text().replace('\r', ""),
        "33 77\n40 100\npushed 0\nrestored True\n"
    );
}

/// B-23: however the body ends.
#[test]
fn the_caller_s_terminal_is_restored_after_a_body_that_was_killed() {
    let ground = Ground::new();
    let text = "int main(void) { kill(getpid(), SIGKILL); for (;;) pause(); }";
    let killed = program("killed", text);
    let Some(done) = on_a_terminal(&ground, "cooked", &["-t", "-i"], &killed, &[]) else {
        return;
    };
    done.assert_outcome("signaled", 137);
    assert!(
        done.text().ends_with("pushed 0\nrestored True\n"),
        "{done:#?}"
    );
}

/// B-23: without `-t` the body's escape sequences arrive unchanged in its output; it still has no
/// terminal whose mode it could change.
#[test]
fn without_a_terminal_of_its_own_the_body_changes_no_mode() {
    let ground = Ground::new();
    let text =
        include_str!("../bodies/escapes/without_a_terminal_of_its_own_the_body_changes_no_mode.c");
    let modes = program("modes", text);
    let Some(done) = on_a_terminal(&ground, "cooked", &["-i"], &modes, &[]) else {
        return;
    };
    done.assert_exited(0);
    assert_eq!(
        done.text(),
        "0 ENOTTY\n0 ENOTTY\n1 ENOTTY\n1 ENOTTY\n2 ENOTTY\n2 ENOTTY\npushed 0\nrestored True\n"
    );
}
