//! Limits of a sandbox hold for all its commands together.

use crate::host::Host;
use support::invariants::eventually;
use support::{has_cgroup, skip};

/// E-31.
#[test]
fn the_lifetime_ends_the_sandbox_and_what_runs_in_it() {
    let host = Host::new();
    let report = host.ground.path("report.json");
    let json = format!("--json={}", report.display());
    host.create("one", &["--timeout", "2s", "--grace", "0s", &json]);
    assert_eq!(
        host.start("one", "exec sleep 1000")
            .wait()
            .expect("ended")
            .code(),
        Some(137)
    );
    eventually("the report is written", || report.exists());
    eventually("nothing is left", || host.files("sandboxes").is_empty());
    let text = std::fs::read_to_string(&report).expect("read");
    let report: serde_json::Value = serde_json::from_str(&text).expect("a report");
    assert_eq!(report["outcome"], "timed_out", "{report}");
}

#[test]
fn memory_and_processes_are_limited_for_all_commands_together() {
    if !has_cgroup() {
        return skip("a limit for all processes together needs a cgroup");
    }
    let host = Host::new();
    let report = host.ground.path("report.json");
    let json = format!("--json={}", report.display());
    host.create("one", &["-m", "96m", "--pids", "24", &json]);
    // Each alone would fit. The kernel chooses which of them it kills.
    let hog = "import time; x = bytearray(60 << 20); time.sleep(1000)";
    for _ in 0..2 {
        let words = ["sandbox", "exec", "-d", "one", "--", "python3", "-c", hog];
        assert_eq!(host.say(&words).code, 0);
    }
    eventually("one is killed", || {
        let commands = host.list()[0]["commands"].clone();
        commands.as_array().expect("a list").len() == 1
    });
    let bomb = "for i in $(seq 60); do sleep 1000 & done; wait";
    let bombed = host.shell("one", bomb);
    assert!(bombed.stderr.contains("fork"), "{bombed:?}");
    assert_eq!(host.say(&["sandbox", "rm", "-f", "one"]).code, 0);
    let text = std::fs::read_to_string(&report).expect("read");
    let report: serde_json::Value = serde_json::from_str(&text).expect("a report");
    assert!(report["usage"]["oom_kills"].as_u64() >= Some(1), "{report}");
}

#[test]
fn a_later_command_is_limited_as_the_first_would_be() {
    let host = Host::new();
    host.create("one", &["--nofile", "33", "--fsize", "1m"]);
    for _ in 0..2 {
        let done = host.shell("one", "ulimit -n; ulimit -f");
        // In blocks of 512 bytes.
        assert_eq!(done.stdout, "33\n2048\n", "{done:?}");
    }
}
