//! A supervisor that waits makes no system calls.

use support::Ground;
use support::bodies::c_body;

use crate::aimed::has_strace;

const POLLS_MAX: usize = 50;

/// While init ends, some of its descriptors are readable for good: nothing is gained by asking again.
#[test]
fn the_end_of_init_is_waited_for_without_asking_again_and_again() {
    if !has_strace() {
        return;
    }
    let body = c_body("slow_end", include_str!("../bodies/lifetime/slow_end.c"));
    let ground = Ground::new();
    let log = ground.path("trace");
    let mut case = ground.command(&["run", "--", body.to_str().expect("plain")]);
    let to = log.to_str().expect("plain");
    case.behind(&[
        "strace",
        "-f",
        "--seccomp-bpf",
        "-e",
        "trace=ppoll",
        "-o",
        to,
    ]);
    case.done().assert_exited(0);
    let trace = std::fs::read_to_string(&log).expect("written");
    let polls = trace
        .lines()
        .filter(|line| line.contains(" ppoll("))
        .count();
    assert!((1..POLLS_MAX).contains(&polls), "{polls} polls");
}
