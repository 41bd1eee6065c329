//! Sandboxes that are paused.

use std::io::{BufRead as _, BufReader};

use crate::host::Host;
use rustix::process::{Signal, kill_process};
use support::has_cgroup;
use support::invariants::{eventually, groups_of, living};
use support::processes::supervisors;

/// Whether the kernel says that all processes of the only sandbox are stopped.
fn is_frozen(host: &Host) -> bool {
    let states = host.list();
    let run_id = states[0]["run_id"].as_str().expect("an id");
    groups_of(run_id).iter().any(|group| {
        let read = |file| std::fs::read_to_string(group.join(file)).unwrap_or_default();
        read("cgroup.events").contains("frozen 1") || read("freezer.state").starts_with("FROZEN")
    })
}

#[test]
fn a_paused_sandbox_starts_nothing_and_goes_on_when_it_is_resumed() {
    let host = Host::new();
    host.create("one", &[]);
    let paused = host.say(&["sandbox", "pause", "one"]);
    if paused.code != 0 {
        assert_eq!(paused.code, 125);
        assert!(!has_cgroup(), "{paused:?}");
        assert!(paused.stderr.contains("(sandbox_no_freezer)"), "{paused:?}");
        assert_eq!(host.shell("one", "true").code, 0);
        return;
    }
    assert_eq!((paused.code, &*paused.stdout), (0, "one\n"), "{paused:?}");
    eventually("it is stopped", || is_frozen(&host));
    assert_eq!(host.list()[0]["is_paused"], true);
    let listed = host.say(&["sandbox", "ls"]);
    assert!(listed.stdout.contains(", paused"), "{listed:?}");
    let refused = host.shell("one", "true");
    assert_eq!(refused.code, 125);
    assert!(refused.stderr.contains("(sandbox_paused)"), "{refused:?}");
    for _twice in 0..2 {
        assert_eq!(host.say(&["sandbox", "resume", "one"]).code, 0);
    }
    assert_eq!(host.shell("one", "echo on").stdout, "on\n");
    assert_eq!(host.list()[0]["is_paused"], false);
}

#[test]
fn a_paused_sandbox_is_removed_by_force_and_by_the_end_of_its_supervisor() {
    if !has_cgroup() {
        return support::skip("without a cgroup there may be no freezer");
    }
    let host = Host::new();
    for by_signal in [false, true] {
        host.create("one", &[]);
        let mut child = host.start(
            "one",
            "trap 'echo asked; exit 4' TERM; echo up; while :; do sleep 0.05; done",
        );
        let mut lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
        assert_eq!(lines.next().expect("a line").expect("read"), "up");
        assert_eq!(host.say(&["sandbox", "pause", "one"]).code, 0);
        eventually("it is stopped", || is_frozen(&host));
        let busy = host.say(&["sandbox", "rm", "one"]);
        assert!(busy.stderr.contains("(sandbox_busy)"), "{busy:?}");
        if by_signal {
            kill_process(host.supervisor(), Signal::TERM).expect("sent");
            assert_eq!(lines.next().expect("a line").expect("read"), "asked");
            assert_eq!(child.wait().expect("ended").code(), Some(4));
            eventually("nothing is left", || host.files("sandboxes").is_empty());
        } else {
            assert_eq!(host.say(&["sandbox", "rm", "-f", "one"]).code, 0);
            assert_eq!(child.wait().expect("ended").code(), Some(137));
        }
        eventually("no record is left", || host.files("runs").is_empty());
    }
}

/// E-31: processes that are stopped by cgroups of version 1 ignore their death signal.
#[test]
fn a_paused_sandbox_whose_supervisor_is_killed_is_removed_by_the_next_start() {
    if !has_cgroup() {
        return support::skip("without a cgroup there may be no freezer");
    }
    let host = Host::new();
    let marker = format!("RUNNER_TEST_MARKER={}", host.ground.marker());
    host.create("one", &["-e", &marker]);
    host.detach("one", "sleep 1000");
    assert_eq!(host.say(&["sandbox", "pause", "one"]).code, 0);
    eventually("it is stopped", || is_frozen(&host));
    kill_process(host.supervisor(), Signal::KILL).expect("sent");
    eventually("its supervisor is gone", || {
        supervisors(&host.runtime_directory()).is_empty()
    });
    assert_eq!(host.say(&["gc"]).code, 0);
    assert!(living(host.ground.marker()).is_empty());
    host.assert_empty();
}
