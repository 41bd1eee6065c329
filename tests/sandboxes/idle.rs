//! `create --idle-timeout`.

use std::io::{BufRead as _, BufReader};

use crate::host::Host;
use serde_json::Value;
use support::invariants::eventually;
use support::{has_cgroup, skip};

/// Creates a sandbox that ends when it is idle. Returns the path of its report.
fn create(host: &Host, time: &str) -> std::path::PathBuf {
    let report = host.ground.path("report.json");
    let json = format!("--json={}", report.display());
    host.create("one", &["--idle-timeout", time, "--grace", "0s", &json]);
    report
}

#[track_caller]
fn assert_ended_idle(host: &Host, report: &std::path::Path) {
    eventually("nothing is left", || {
        host.files("sandboxes").is_empty() && host.files("runs").is_empty()
    });
    eventually("the report is written", || report.exists());
    let text = std::fs::read_to_string(report).expect("a report");
    let report: Value = serde_json::from_str(&text).expect("a report");
    assert_eq!(report["outcome"], "timed_out", "{report}");
    assert_eq!(report["warnings"][0]["code"], "sandbox_idle", "{report}");
}

/// E-34.
#[test]
fn a_sandbox_in_which_no_command_ever_runs_ends_and_says_so() {
    let host = Host::new();
    let report = create(&host, "300ms");
    assert_ended_idle(&host, &report);
    let gone = host.shell("one", "true");
    assert!(gone.stderr.contains("(no_sandbox)"), "{gone:?}");
}

/// E-34: what is left in the background is no command, nor is a list or a reader of a log.
#[test]
fn a_running_command_keeps_the_sandbox_and_a_process_in_the_background_does_not() {
    let host = Host::new();
    let report = create(&host, "1s");
    let text = "sleep 1000 & exec sleep 2.5";
    assert_eq!(host.shell("one", text).code, 0);
    // Looking at it is no use of it.
    eventually("it has ended", || host.list().is_empty());
    assert_ended_idle(&host, &report);
}

/// E-34.
#[test]
fn the_idle_time_of_a_paused_sandbox_stands_still() {
    if !has_cgroup() {
        return skip("without a cgroup there may be no freezer");
    }
    let host = Host::new();
    let report = create(&host, "1s");
    let mut child = host.start("one", "echo up; read line");
    let mut lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
    assert_eq!(lines.next().expect("a line").expect("read"), "up");
    child.wait().expect("ended");
    assert_eq!(host.say(&["sandbox", "pause", "one"]).code, 0);
    let begin = std::time::Instant::now();
    eventually("more than its time has passed", || {
        assert_eq!(host.list().len(), 1, "it ended");
        begin.elapsed() > std::time::Duration::from_secs(2)
    });
    assert_eq!(host.say(&["sandbox", "resume", "one"]).code, 0);
    assert_ended_idle(&host, &report);
}

#[test]
fn idle_times_that_are_none_are_refused_and_the_longest_never_ends() {
    let host = Host::new();
    for time in ["0", "0s", "5", "-1s", "none", "", "99999999999999999999s"] {
        let refused = host.say(&["sandbox", "create", &format!("--idle-timeout={time}")]);
        assert_eq!(refused.code, 125, "{time}: {refused:?}");
        assert!(refused.stderr.contains("(usage)"), "{time}: {refused:?}");
    }
    host.assert_empty();
    host.create("one", &["--idle-timeout", "9223372036854ms"]);
    assert_eq!(host.shell("one", "echo on").stdout, "on\n");
    assert_eq!(host.say(&["sandbox", "rm", "one"]).code, 0);
}

/// E-34.
#[test]
fn an_idle_sandbox_is_paused_until_the_next_command_and_a_pause_by_hand_is_not_undone() {
    let host = Host::new();
    let words = [
        "sandbox",
        "create",
        "--name",
        "one",
        "--pause-after-idle",
        "200ms",
    ];
    if !has_cgroup() {
        let refused = host.say(&words);
        assert_eq!(refused.code, 125, "{refused:?}");
        assert!(
            refused.stderr.contains("(sandbox_lifecycle)"),
            "{refused:?}"
        );
        host.assert_empty();
        return;
    }
    assert_eq!(host.say(&words).code, 0);
    for _twice in 0..2 {
        eventually("it is paused", || host.list()[0]["is_paused"] == true);
        assert_eq!(host.shell("one", "sleep 0.5; echo on").stdout, "on\n");
    }
    eventually("it is paused", || host.list()[0]["is_paused"] == true);
    assert_eq!(host.say(&["sandbox", "pause", "one"]).code, 0);
    let refused = host.shell("one", "true");
    assert!(refused.stderr.contains("(sandbox_paused)"), "{refused:?}");
    assert_eq!(host.say(&["sandbox", "rm", "one"]).code, 0);
    host.assert_empty();
}

#[test]
fn a_sandbox_that_would_be_paused_before_its_idle_end_is_refused() {
    if !has_cgroup() {
        return skip("without a cgroup a pause is refused for another reason");
    }
    let host = Host::new();
    let words = [
        "sandbox",
        "create",
        "--idle-timeout",
        "2s",
        "--pause-after-idle",
        "1s",
    ];
    let refused = host.say(&words);
    assert_eq!(refused.code, 125, "{refused:?}");
    assert!(
        refused.stderr.contains("(sandbox_lifecycle)"),
        "{refused:?}"
    );
    host.assert_empty();
}
