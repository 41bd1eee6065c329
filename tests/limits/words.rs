//! Messages after a limit: one line with its name, value and source.

use crate::back_end::has_groups;
use support::Ground;

/// Without cgroups each stated limit has one more line, which says that it is weaker.
fn without_weaker(lines: &[&str]) -> String {
    let lines = lines.iter();
    lines
        .filter(|line| has_groups() || !line.ends_with("(limit_weaker)"))
        .map(|line| format!("{line}\n"))
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
        assert_eq!(without_weaker(&done.own_errors()), words);
    }
}

/// `--quiet` still prints errors.
#[test]
fn a_body_that_ends_well_is_not_spoken_about() {
    let done = Ground::new().run(&["--timeout=60s", "--memory=64m"], &["/bin/true"]);
    done.assert_exited(0);
    assert_eq!(without_weaker(&done.own_errors()), "");
}

/// One limit of the report: requested, effective, source.
fn limit(report: &serde_json::Value, name: &str) -> serde_json::Value {
    let limits = report["limits"].as_object().expect("limits");
    limits.get(name).expect("the limit").clone()
}

#[test]
fn a_flag_beyond_the_built_in_maxima_holds_as_it_was_stated() {
    let ground = Ground::new();
    let done = ground.run(
        &["--timeout=48h", "--memory=8g", "--pids=5000"],
        &["/bin/true"],
    );
    done.assert_exited(0);
    for (name, value) in [
        ("wall_time_ms", 48 * 3_600_000_u64),
        ("memory_bytes", 8 << 30),
        ("processes", 5_000),
    ] {
        assert_eq!(limit(&done.report, name)["effective"], value, "{name}");
        assert_eq!(limit(&done.report, name)["source"], "flag", "{name}");
    }
    let done = ground.run(&["--timeout=none"], &["/bin/true"]);
    done.assert_exited(0);
    let wall_time = limit(&done.report, "wall_time_ms");
    assert!(wall_time["effective"].is_null(), "{wall_time}");
}

#[test]
fn a_flag_beyond_a_maximum_of_the_configuration_is_refused_with_file_and_line() {
    let ground = Ground::new();
    let policy = ground.write("policy.yaml", "maxima:\n  memory: 64m\n  timeout: 10s\n");
    let policy = format!("--policy={}", policy.display());
    for (flag, line, maximum) in [
        ("--memory=65m", 2, "64 MiB"),
        ("--timeout=1d", 3, "10 s"),
        ("--timeout=none", 3, "10 s"),
    ] {
        let done = ground.run(&[&policy, flag], &["/bin/true"]);
        assert_eq!(done.code, 125, "{}", done.stderr);
        assert_eq!(done.report["error"]["code"], "limit_above_maximum");
        let place = format!("policy.yaml:{line} allows at most {maximum}");
        assert!(done.stderr.contains(&place), "{}", done.stderr);
    }
    let done = ground.run(&[&policy, "--memory=64m", "--timeout=10s"], &["/bin/true"]);
    done.assert_exited(0);
}

#[test]
fn a_lowered_limit_is_reported_on_the_terminal() {
    let done = Ground::new().run(&["--memory=64m", "--disk=1g"], &["/bin/true"]);
    done.assert_exited(0);
    assert!(
        done.stderr
            .contains("--disk asks for 1 GiB, but 32 MiB applies: files count as memory"),
        "{}",
        done.stderr
    );
}

#[test]
fn a_stated_cgroup_parent_that_cannot_be_used_is_refused() {
    let ground = Ground::new();
    let mut case = ground.command(&["run", "--", "/bin/true"]);
    case = case.env(
        "RUNNER_OPT_CGROUP_PARENT",
        "/runner-tests/there-is-no-such-group",
    );
    let done = case.done();
    assert_eq!(done.code, 125, "{}", done.stderr);
    assert_eq!(done.report["error"]["code"], "cgroup_parent_unusable");
}
