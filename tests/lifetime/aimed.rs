//! Which processes the supervisor signals and which cgroups it removes, observed with strace.

use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::process::Signal;

use crate::runtime::Runtime;
use support::invariants::{groups_of, living};
use support::{Case, Done, Ground, has_cgroup, needs_root, skip};

/// Whether strace is installed and may trace.
pub(crate) fn has_strace() -> bool {
    let tried = Command::new("strace")
        .args(["-o/dev/null", "true"])
        .output();
    let works = tried.is_ok_and(|output| output.status.success());
    if !works {
        skip("strace is not installed, or cannot trace here");
    }
    works
}

/// Calls that signal a process by its number.
const BY_NUMBER: [&str; 5] = [
    "kill(",
    "tkill(",
    "tgkill(",
    "rt_sigqueueinfo(",
    "rt_tgsigqueueinfo(",
];

/// Traces the case with all its processes.
fn traced(case: &mut Case<'_>, log: &Path) {
    let log = log.to_str().expect("plain");
    let calls =
        "trace=execve,kill,tkill,tgkill,rt_sigqueueinfo,rt_tgsigqueueinfo,pidfd_send_signal";
    case.behind(&["strace", "-f", "-o", log, "-e", calls, "-e", "signal=none"]);
}

/// Asserts that the supervisor signals no process by number; returns how many signals it sent
/// through pidfds. Init may signal the body's process group, whose leader only init can reap.
#[track_caller]
fn assert_aimed(log: &Path) -> usize {
    let trace = std::fs::read_to_string(log).expect("written");
    let mut calls = trace.lines().filter_map(|line| line.split_once(' '));
    let (supervisor, first) = calls.next().expect("a call");
    assert!(first.trim_start().starts_with("execve("), "{trace}");
    let mut by_descriptor = 0;
    for (pid, call) in calls {
        let call = call.trim_start();
        let is_by_number = BY_NUMBER.iter().any(|name| call.starts_with(name));
        if pid == supervisor {
            assert!(!is_by_number, "the supervisor: {call}");
            by_descriptor += usize::from(call.starts_with("pidfd_send_signal("));
        } else if is_by_number {
            assert!(call.starts_with("kill(-2, "), "{pid}: {call}");
        }
    }
    by_descriptor
}

/// E-21: a pid may have been reused when a signal is sent to it; a pidfd refers to one process.
/// However a run ends, the supervisor sends no signal by number.
#[test]
fn the_supervisor_sends_signals_through_pidfds_only() {
    if !has_strace() {
        return;
    }
    let ground = Ground::new();
    let stubborn = "trap '' TERM; while :; do sleep 0.1; done";
    let mut by_descriptor = 0;
    for (flags, body, outcome) in [
        (&[][..], "exit 0", "exited"),
        (&["--timeout=100ms", "--grace=100ms"], stubborn, "timed_out"),
        (
            &["--cpu-time=100ms", "--grace=0s"],
            "while :; do :; done",
            "cpu_exhausted",
        ),
        (
            &["--max-output=10b", "--on-output-limit=kill"],
            "yes",
            "output_limit",
        ),
        (&[], "sleep 600 & exec sleep 0.1", "exited"),
    ] {
        let log = ground.path("trace");
        let words = [&["run"], flags, &["--", "/bin/sh", "-c", body]].concat();
        let mut case = ground.command(&words).without("I8");
        traced(&mut case, &log);
        let done = case.done();
        assert_eq!(done.outcome(), outcome, "{body}: {done:#?}");
        by_descriptor += assert_aimed(&log);
    }
    // Cancelled: strace forwards the signal.
    let log = ground.path("trace");
    let mut case = ground.command(&["run", "--grace=100ms", "--", "/bin/sh", "-c", stubborn]);
    traced(&mut case, &log);
    let mut running = case.start();
    running.until("the body", || 1 < living(ground.marker()).len());
    let supervisor = supervisor_below(running.pid());
    rustix::process::kill_process(supervisor, Signal::TERM).expect("sent");
    running.done().assert_outcome("cancelled", 143);
    by_descriptor += assert_aimed(&log);
    assert!(0 < by_descriptor, "no signal was seen at all");
}

/// The child of a program that runs the runner.
fn supervisor_below(pid: i32) -> rustix::process::Pid {
    let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"));
    let children = children.expect("readable");
    let first = children.split_whitespace().next().expect("a child");
    rustix::process::Pid::from_raw(first.parse().expect("a pid")).expect("a pid")
}

/// Runs `runner run -- /bin/true` with EBUSY for those calls of unlinkat(2) that `which` names; one
/// earlier call removes the file that tests whether the report can be written.
fn with_busy_groups(ground: &Ground, runtime: &Runtime, which: &str) -> Done {
    let inject = format!("inject=unlinkat:error=EBUSY:when={which}");
    let mut case = runtime
        .case(ground, &[], &["/bin/true"])
        .without("I4")
        .without("I5");
    case.behind(&["strace", "-o", "/dev/null", "-e", &inject]);
    case.done()
}

/// E-29: the kernel returns EBUSY for a moment after the last process of a group has gone.
#[test]
fn busy_groups_are_removed_after_a_moment_or_reported_and_removed_later() {
    if !has_strace() {
        return;
    }
    let (ground, runtime) = (Ground::new(), Runtime::new());
    if !has_cgroup() {
        return needs_root("without groups there is none to remove");
    }
    let run_of = |done: &Done| done.report["run_id"].as_str().expect("an id").to_owned();
    let done = with_busy_groups(&ground, &runtime, "2..10");
    done.assert_exited(0);
    assert_eq!(done.report["warnings"], serde_json::json!([]), "{done:#?}");
    assert_eq!(groups_of(&run_of(&done)), Vec::<PathBuf>::new());
    runtime.assert_nothing_left(&[]);

    // EBUSY beyond the timeout: the outcome stays that of the body, and the leftover is reported
    // and recorded.
    let done = with_busy_groups(&ground, &runtime, "2+");
    done.assert_exited(0);
    let warnings = done.report["warnings"].to_string();
    assert!(
        warnings.contains("cannot remove the run's cgroups"),
        "{done:#?}"
    );
    let run = run_of(&done);
    assert_ne!(groups_of(&run), Vec::<PathBuf>::new());
    assert_eq!(runtime.records(), [run.as_str()]);
    runtime
        .case(&ground, &[], &["/bin/true"])
        .done()
        .assert_exited(0);
    runtime.assert_nothing_left(&[run]);
}
