//! What a person reads after a limit: one line that names it, its value and whose word it was.

use crate::back_end::has_groups;
use crate::support::Ground;

/// Without groups each stated limit has one more line, which says that it is weaker.
fn without_weaker(words: &str) -> String {
    let weaker = "(limit_weaker)";
    words
        .split_inclusive('\n')
        .filter(|line| has_groups() || !line.trim_end().ends_with(weaker))
        .collect()
}

#[test]
fn each_limit_that_ends_a_body_says_so_in_one_line() {
    let ground = Ground::new();
    let cases = [
        (
            &["--timeout=100ms", "--grace=0s"][..],
            "sleep 9",
            "runner: timed out: the wall time limit ended the body (100 ms, from flag); --timeout sets it\n",
        ),
        (
            &["--cpu-time=50ms", "--grace=0s"],
            "while :; do :; done",
            "runner: out of CPU time: the CPU time limit ended the body (50 ms, from flag); --cpu-time sets it\n",
        ),
    ];
    for (flags, script, words) in cases {
        let done = ground.run(flags, &["/bin/sh", "-c", script]);
        assert_eq!(without_weaker(&done.stderr), words);
    }
}

/// A quiet runner says errors all the same.
#[test]
fn a_body_that_ends_well_is_not_spoken_about() {
    let done = Ground::new().run(&["--timeout=60s", "--memory=64m"], &["/bin/true"]);
    done.assert_exited(0);
    assert_eq!(without_weaker(&done.stderr), "");
}
