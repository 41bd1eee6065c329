//! The ways in which a body can end, and how the report distinguishes them: exit, signal, time, memory.

use crate::back_end::{assert_state, has_groups, limit, one_at_a_time, usage};
use support::bodies::c_body;
use support::{Done, Ground};

fn sh(flags: &[&str], script: &str) -> Done {
    Ground::new().run(flags, &["/bin/sh", "-c", script])
}

/// C-26
#[test]
fn an_exit_code_in_the_reserved_range_is_an_exit() {
    for code in [0, 1, 124, 125, 126, 127, 129, 137, 139, 143, 255] {
        let done = sh(&[], &format!("exit {code}"));
        done.assert_exited(code);
        assert_eq!(done.report["exit"]["code"], code);
        assert!(done.report["exit"]["signal"].is_null());
        assert_eq!(done.own_errors(), [""; 0]);
    }
}

/// C-26
#[test]
fn a_signal_by_the_body_itself_is_not_blamed_on_a_limit() {
    for (name, number) in [
        ("KILL", 9),
        ("TERM", 15),
        ("XCPU", 24),
        ("INT", 2),
        ("SEGV", 11),
    ] {
        let done = sh(&["--cpu-time=60s"], &format!("kill -{name} $$; sleep 5"));
        done.assert_outcome("signaled", 128 + number);
        assert_eq!(done.report["exit"]["signal"], number);
        assert_eq!(usage(&done, "oom_kills"), 0);
    }
}

/// C-24
#[test]
fn sleeping_beyond_the_wall_time_is_timed_out() {
    let done = sh(&["--timeout=300ms", "--grace=100ms"], "sleep 600");
    done.assert_outcome("timed_out", 124);
    assert_eq!(limit(&done, "wall_time_ms"), (Some(300), "flag"));
    assert!(done.stderr.contains("runner: timed out"), "{}", done.stderr);
}

#[test]
fn computing_beyond_the_cpu_time_is_another_end_than_the_wall_time() {
    let done = sh(
        &["--cpu-time=300ms", "--timeout=120s", "--grace=100ms"],
        "while :; do :; done",
    );
    done.assert_outcome("cpu_exhausted", 124);
    assert_state(&done, "cpu_time");
    assert!(done.stderr.contains("CPU time"), "{}", done.stderr);
    let used = usage(&done, "user_time_ms") + usage(&done, "system_time_ms");
    // Without cgroups, the time of the children that init has waited for is counted, which includes
    // the shell. Both times are rounded down to milliseconds.
    assert!(300 <= used + 2 || !has_groups(), "{done:#?}");
}

/// The CPU time of all processes together; no single process exceeds the limit.
#[test]
fn cpu_time_counts_for_the_whole_tree() {
    let script = "for i in 1 2 3 4 5 6; do (while :; do :; done) & done; wait";
    let done = sh(
        &["--cpu-time=600ms", "--timeout=120s", "--grace=0s"],
        script,
    );
    done.assert_outcome("cpu_exhausted", 124);
}

/// Processes that end between two samples of the supervisor.
#[test]
fn cpu_time_of_ended_processes_counts() {
    let script = "while :; do (i=0; while [ $i -lt 2000 ]; do i=$((i+1)); done); done";
    let done = sh(
        &["--cpu-time=600ms", "--timeout=120s", "--grace=0s"],
        script,
    );
    done.assert_outcome("cpu_exhausted", 124);
}

/// C-23: an upper bound on the used time: other programs decide how much CPU is available.
#[test]
fn a_share_of_the_processors_is_not_exceeded() {
    let _turn = one_at_a_time();
    let script = "for i in 1 2 3; do (while :; do :; done) & done; wait";
    let flags = ["--timeout=2s", "--grace=0s", "--cpus=0.3"];
    if !has_groups() {
        sh(&flags, script).assert_error("refused", "limit_unenforceable");
        return;
    }
    let done = sh(&flags, script);
    done.assert_outcome("timed_out", 124);
    assert_state(&done, "cpu_share");
    let used = usage(&done, "user_time_ms") + usage(&done, "system_time_ms");
    let wall = usage(&done, "wall_time_ms");
    // One period of 100 ms at each end.
    let most = wall * 3 / 10 * 11 / 10 + 120;
    assert!((1..=most).contains(&used), "{used} of {wall} ms");
}

/// E-27: if the end and the deadline coincide, the end comes first; the outcome is consistent everywhere.
#[test]
fn an_end_at_the_deadline_is_one_verdict_and_a_consistent_one() {
    for _ in 0..15 {
        let done = sh(&["--timeout=100ms", "--grace=1s"], "sleep 0.1; exit 6");
        match done.outcome() {
            "exited" => {
                done.assert_exited(6);
            }
            _ => {
                done.assert_outcome("timed_out", 124);
            }
        }
    }
}

/// The time of the body's first process and its children.
#[test]
fn the_used_time_is_reported() {
    let text = include_str!("../bodies/limits/the_used_time_is_reported.c");
    let program = c_body("burn", text);
    let done = Ground::new().run(&[], &[program.to_str().expect("plain")]);
    done.assert_exited(0);
    let used = usage(&done, "user_time_ms") + usage(&done, "system_time_ms");
    assert!(390 <= used, "{done:#?}");
    assert!(0 < usage(&done, "wall_time_ms"), "{done:#?}");
}

/// The source of a limit is beside it.
#[test]
fn the_strictest_source_of_a_limit_wins_and_is_reported() {
    let ground = Ground::new();
    let manifest = "name: x\nrun: {shell: 'exit 0'}\nrunner:\n  limits:\n    memory_mb: 64\n    cpu_ms: 90000\n";
    let bundle = ground.bundle(&[("manifest.yaml", manifest)]);
    let done = ground.exec(&["--memory=96m", "--pids=20"], &bundle);
    done.assert_exited(0);
    let (bytes, source) = limit(&done, "memory_bytes");
    assert_eq!(bytes, Some(64 << 20));
    assert!(source.contains("limits"), "{source}");
    assert_eq!(limit(&done, "cpu_time_ms").0, Some(90_000));
    assert_eq!(limit(&done, "processes"), (Some(20), "flag"));
    assert_eq!(limit(&done, "wall_time_ms").1, "default");
}

/// C-37
#[test]
fn tiny_limits_are_refused_or_enforced() {
    let ground = Ground::new();
    for flag in ["--memory=1", "--memory=1k", "--memory=1m"] {
        let done = ground.run(&[flag], &["/bin/true"]);
        done.assert_error("refused", "limit_too_small");
    }
    for flag in [
        "--memory=0",
        "--timeout=0s",
        "--cpu-time=0s",
        "--pids=0",
        "--cpus=0",
        "--disk=0",
        "--memory=-1",
        "--pids=-1",
        "--cpus=-1",
        "--timeout=-1s",
        "--pids=18446744073709551615",
        "--pids=18446744073709551616",
        "--pids=4194305",
        "--memory=99999999999g",
        "--cpus=nan",
        "--cpus=inf",
        "--timeout=99999999999999999999h",
    ] {
        let words = ["run", flag, "--", "/bin/true"];
        let done = ground.command(&words).done();
        done.assert_error("refused", "usage");
        assert!(!done.stderr.is_empty(), "{flag}");
    }
    ground
        .run(&["--timeout=1ms", "--grace=0s"], &["/bin/sleep", "9"])
        .assert_outcome("timed_out", 124);
    ground.run(&["--pids=1"], &["/bin/true"]).assert_exited(0);
    ground
        .run(&["--pids=1"], &["/bin/sh", "-c", "sleep 0 & exit 3"])
        .assert_exited(2);
    let done = ground.run(&["--disk=1"], &["/bin/true"]);
    done.assert_error("refused", "limit_too_small");
    assert!(done.stderr.contains("did you mean 1m"), "{done:#?}");
    ground
        .run(
            &["--disk=64k"],
            &["/bin/sh", "-c", "echo x >/tmp/x && echo y >/scratch/y"],
        )
        .assert_exited(0);
    let spin = ["/bin/sh", "-c", "while :; do :; done"];
    ground
        .run(&["--cpu-time=1ms", "--grace=0s", "--timeout=60s"], &spin)
        .assert_outcome("cpu_exhausted", 124);
    let done = ground.run(&["--max-output=1"], &["/bin/echo", "abc"]);
    assert_eq!((done.text().as_str(), done.code), ("a", 0));
    if has_groups() {
        ground
            .run(&["--cpus=0.01"], &["/bin/true"])
            .assert_exited(0);
    }
}

/// C-37, G-18: with the smallest memory limit, a program of this size starts.
#[test]
fn the_smallest_memory_that_is_allowed_starts_a_small_program() {
    let program = c_body("small", "int main(void) { return 8; }");
    let done = Ground::new().run(&["--memory=4m"], &[program.to_str().expect("plain")]);
    done.assert_exited(8);
}
