//! A body cannot prevent its own end.

use std::path::{Path, PathBuf};

use crate::back_end::one_at_a_time;
use support::bodies::c_body;
use support::invariants::{eventually, living};
use support::{Done, Ground, Running, is_root, needs_root, skip};

fn run(flags: &[&str], name: &str, text: &str) -> Done {
    let program = c_body(name, text);
    Ground::new().run(flags, &[program.to_str().expect("plain")])
}

/// C-20
#[test]
fn a_body_that_ignores_every_signal_is_killed_after_the_grace() {
    let text = include_str!(
        "../bodies/limits/a_body_that_ignores_every_signal_is_killed_after_the_grace.c"
    );
    let done = run(&["--timeout=200ms", "--grace=200ms"], "deaf", text);
    done.assert_outcome("timed_out", 124);
    assert_eq!(done.report["exit"]["signal"].as_i64().unwrap_or(9), 9);
}

/// C-20: the body can use the grace.
#[test]
fn a_body_that_ends_within_the_grace_ends_as_it_likes_and_is_timed_out_all_the_same() {
    let script = "trap 'echo saved; exit 0' TERM; echo up; while :; do sleep 0.05; done";
    let flags = ["--timeout=5s", "--grace=60s"];
    let done = Ground::new().run(&flags, &["/bin/sh", "-c", script]);
    done.assert_outcome("timed_out", 124);
    assert_eq!(done.text(), "up\nsaved\n");
    assert_eq!(done.report["exit"]["code"], 0);
}

/// The stop signal can be chosen.
#[test]
fn the_stop_signal_is_the_one_that_was_asked_for() {
    let script = "trap 'echo usr1; exit 0' USR1; echo up; while :; do sleep 0.05; done";
    let flags = ["--timeout=5s", "--grace=60s", "--stop-signal=USR1"];
    let done = Ground::new().run(&flags, &["/bin/sh", "-c", script]);
    done.assert_outcome("timed_out", 124);
    assert_eq!(done.text(), "up\nusr1\n");
}

/// C-21
#[test]
fn a_body_that_stops_itself_and_its_children_ends_at_the_deadline() {
    let script = "sleep 600 & kill -STOP $!; kill -STOP $$; echo never";
    let flags = ["--timeout=300ms", "--grace=100ms"];
    let done = Ground::new().run(&flags, &["/bin/sh", "-c", script]);
    // SIGCONT follows the stop signal, so that a stopped body receives it.
    done.assert_outcome("timed_out", 124);
    assert_eq!(done.text(), "");
}

/// C-21: only SIGKILL interrupts a parent that waits for its vfork.
#[test]
fn a_parent_that_hangs_in_vfork_ends_at_the_deadline() {
    let text = include_str!("../bodies/limits/a_parent_that_hangs_in_vfork_ends_at_the_deadline.c");
    let done = run(&["--timeout=200ms", "--grace=100ms"], "vfork-hang", text);
    done.assert_outcome("timed_out", 124);
}

/// C-21
#[test]
fn a_body_that_lets_itself_be_traced_ends_at_the_deadline() {
    let text =
        include_str!("../bodies/limits/a_body_that_lets_itself_be_traced_ends_at_the_deadline.c");
    let done = run(&["--timeout=300ms", "--grace=100ms"], "traced", text);
    done.assert_outcome("timed_out", 124);
    // The filter refuses the call; its child stops all the same.
    assert_eq!(done.text(), "EPERM\n");
}

/// A freezer group of version 1, which is thawed when the value is dropped.
struct Freezer(PathBuf);

impl Freezer {
    fn freeze(&self, process: &str) {
        std::fs::write(self.0.join("cgroup.procs"), process).expect("moved");
        std::fs::write(self.0.join("freezer.state"), "FROZEN").expect("frozen");
    }
}

impl Drop for Freezer {
    fn drop(&mut self) {
        if let Err(error) = std::fs::write(self.0.join("freezer.state"), "THAWED") {
            println!("{}: {error}", self.0.display());
        }
    }
}

/// A new freezer group; `None` (after a note) where there can be none.
fn freezer_group() -> Option<PathBuf> {
    let freezer = Path::new("/sys/fs/cgroup/freezer");
    let parent = std::env::var("RUNNER_OPT_CGROUP_PARENT").unwrap_or_default();
    if !is_root() {
        needs_root("only root can freeze with version 1");
        return None;
    }
    if parent.is_empty() {
        skip("no cgroup in which to freeze: RUNNER_OPT_CGROUP_PARENT names none");
        return None;
    }
    if !freezer.join("tasks").exists() {
        skip("no freezer of version 1, and what version 2 freezes can be killed");
        return None;
    }
    let group = freezer
        .join(parent.trim_start_matches('/'))
        .join(format!("frozen-{}", support::random()));
    std::fs::create_dir(&group).expect("made");
    Some(group)
}

/// Runs a script without the checks that need its processes to be gone. `freeze` gets the running
/// supervisor and freezes a process in the group. The run must end as failed while it is frozen.
#[track_caller]
fn fails_while_frozen(script: &str, freeze: impl Fn(&mut Running<'_>, &Ground, &Freezer)) {
    let Some(group) = freezer_group() else {
        return;
    };
    let ground = Ground::new();
    let shared = ground.path("shared");
    std::fs::create_dir(&shared).expect("made");
    let shared = shared.to_str().expect("plain");
    let flags = [
        "run",
        "--timeout=10s",
        "--grace=0s",
        "--ro",
        shared,
        "--",
        "/bin/sh",
        "-c",
        script,
        shared,
    ];
    let case = ground
        .command(&flags)
        .without("I2")
        .without("I4")
        .without("I5")
        .without("I6");
    let mut running = case.start();
    running.until("the body", || !living(ground.marker()).is_empty());
    let freezer = Freezer(group.clone());
    freeze(&mut running, &ground, &freezer);
    let done = running.done();
    drop(freezer);
    eventually("the killed tree is gone", || {
        living(ground.marker()).is_empty()
    });
    eventually("its group is empty", || std::fs::remove_dir(&group).is_ok());
    assert_eq!((done.outcome(), done.code), ("failed", 125), "{done:#?}");
    // The next start finds what could not be removed.
    ground.run(&[], &["/bin/true"]).assert_exited(0);
}

fn children(of: &str) -> Vec<String> {
    let path = format!("/proc/{of}/task/{of}/children");
    let text = std::fs::read_to_string(path).unwrap_or_default();
    text.split_whitespace().map(str::to_owned).collect()
}

/// C-22: a body that another process has frozen cannot be killed. The freezer of version 1 does that.
#[test]
fn a_tree_that_will_not_die_is_reported_and_not_waited_for() {
    fails_while_frozen("echo up; sleep 600", |running, _, freezer| {
        let init = children(&running.pid().to_string()).remove(0);
        // The wait for the exec looks like this sleep; the next sleep begins after the supervisor
        // knows that the body runs.
        running.until("init waits for what comes", || {
            let stat = std::fs::read_to_string(format!("/proc/{init}/stat")).unwrap_or_default();
            stat.contains(") S ")
        });
        freezer.freeze(&init);
    });
}

/// C-22: the first process of the body ends, and another one cannot be killed.
#[test]
fn a_process_that_will_not_die_after_the_first_one_is_not_waited_for() {
    let script = "sleep 600 & while ! [ -e \"$0/go\" ]; do sleep 0.05; done";
    fails_while_frozen(script, |running, ground, freezer| {
        let is_sleep = |pid: &i32| {
            let words = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            words == b"sleep\x00600\0"
        };
        let sleep = || living(ground.marker()).into_iter().find(is_sleep);
        running.until("the other process", || sleep().is_some());
        freezer.freeze(&sleep().expect("alive").to_string());
        ground.write("shared/go", "");
    });
}

/// C-25, C-20: all of it at the same time, several times.
#[test]
fn a_hostile_process_tree_is_killed_completely() {
    let _turn = one_at_a_time();
    let text = include_str!("../bodies/limits/a_hostile_process_tree_is_killed_completely.c");
    for grace in ["--grace=0s", "--grace=300ms"] {
        run(&["--pids=60", "--timeout=300ms", grace], "hostile", text)
            .assert_outcome("timed_out", 124);
    }
}
