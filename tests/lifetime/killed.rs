//! SIGKILL to the supervisor at any time: the body dies, and the next start removes the leftovers.

use std::io::Write as _;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::runtime::Runtime;
use support::bodies::c_body;
use support::invariants::{eventually, groups_of, living};
use support::tar::gzip;
use support::{Ground, Running, tier_includes};

/// A case whose supervisor is killed leaves its record and its groups, and no report.
fn start<'ground>(ground: &'ground Ground, runtime: &Runtime, body: &[&str]) -> Running<'ground> {
    let case = runtime.case(ground, &[], body);
    case.without("I4").without("I5").without("I8").start()
}

fn kill(running: Running<'_>) {
    running.signal(Signal::KILL);
    // Invariant 2 checks that no process of the run is alive.
    assert_eq!(running.done().code, 137);
}

/// The next start, which removes everything that these runs left.
fn start_again(runtime: &Runtime, runs: &[String]) {
    let ground = Ground::new();
    runtime
        .case(&ground, &[], &["/bin/true"])
        .done()
        .assert_exited(0);
    runtime.assert_nothing_left(runs);
}

/// E-01
#[test]
fn the_body_dies_with_a_killed_supervisor() {
    let (ground, runtime) = (Ground::new(), Runtime::new());
    let body = ["/bin/sh", "-c", "trap '' TERM HUP; sleep 600 & sleep 600"];
    let mut running = start(&ground, &runtime, &body);
    running.until("two processes", || 2 < living(ground.marker()).len());
    let runs = runtime.records();
    kill(running);
    start_again(&runtime, &runs);
}

/// A-61, E-01: while it unpacks.
#[test]
fn the_process_that_unpacks_dies_with_a_killed_supervisor() {
    let (ground, runtime) = (Ground::new(), Runtime::new());
    // Only the beginning of an archive: its reader waits for the rest.
    let (end, mut pipe) = std::io::pipe().expect("a pipe");
    pipe.write_all(&gzip(b"a tar")[..10]).expect("fits");
    let mut case = runtime.command(&ground, &["exec", "-"]);
    case.command.stdin(end);
    let mut running = case.without("I4").without("I5").without("I8").start();
    let pid = running.pid();
    let children = format!("/proc/{pid}/task/{pid}/children");
    let confined = || {
        let children = std::fs::read_to_string(&children).unwrap_or_default();
        let mut children = children.split_whitespace();
        let is_confined = |pid: &&str| {
            let status = std::fs::read_to_string(format!("/proc/{pid}/status"));
            status.is_ok_and(|status| status.contains("Seccomp:\t2"))
        };
        children.find(is_confined).map(str::to_owned)
    };
    running.until("the reader", || confined().is_some());
    let reader = format!("/proc/{}", confined().expect("a reader"));
    let runs = runtime.records();
    kill(running);
    drop(pipe);
    eventually("the reader has ended", || {
        !std::path::Path::new(&reader).exists()
    });
    start_again(&runtime, &runs);
}

/// E-03: the parent-death signal belongs to the thread that cloned. The supervisor has only one
/// thread, from the clone to the end, so no thread can exit before the body.
#[test]
fn the_supervisor_is_one_thread_and_the_body_never_loses_its_parent() {
    let (ground, runtime) = (Ground::new(), Runtime::new());
    let body = ["/bin/sh", "-c", "sleep 0.3; echo lived"];
    let mut running = runtime.case(&ground, &[], &body).start();
    let threads = format!("/proc/{}/task", running.pid());
    running.until("the body", || !living(ground.marker()).is_empty());
    assert_eq!(std::fs::read_dir(threads).expect("readable").count(), 1);
    let done = running.done();
    done.assert_exited(0);
    assert_eq!(done.text(), "lived\n");
}

/// E-02
#[test]
fn a_body_that_has_hidden_itself_dies_with_a_killed_supervisor() {
    let (ground, runtime) = (Ground::new(), Runtime::new());
    let text = include_str!(
        "../bodies/lifetime/a_body_that_has_hidden_itself_dies_with_a_killed_supervisor.c"
    );
    let program = c_body("hidden", text);
    let body = [program.to_str().expect("plain")];
    let mut running = start(&ground, &runtime, &body);
    running.until("five processes", || 4 < living(ground.marker()).len());
    let runs = runtime.records();
    kill(running);
    start_again(&runtime, &runs);
}

/// E-04
#[test]
fn the_next_run_removes_leftovers_of_a_killed_run_only() {
    let runtime = Runtime::new();
    let (live_ground, dead_ground) = (Ground::new(), Ground::new());
    let body = [
        "/bin/sh",
        "-c",
        "trap 'echo asked; exit 0' TERM; echo up; while :; do sleep 0.05; done",
    ];
    let mut live = runtime.case(&live_ground, &["--grace=60s"], &body).start();
    live.until("the live body", || !living(live_ground.marker()).is_empty());
    let live_run = runtime.records();
    assert_eq!(live_run.len(), 1);
    let mut dead = start(&dead_ground, &runtime, &["/bin/sleep", "600"]);
    dead.until("the other body", || {
        !living(dead_ground.marker()).is_empty()
    });
    let dead_run: Vec<String> = runtime
        .records()
        .into_iter()
        .filter(|run| !live_run.contains(run))
        .collect();
    assert_eq!(dead_run.len(), 1);
    kill(dead);
    assert_eq!(
        runtime.records().len(),
        2,
        "the killed one could not remove its record"
    );

    let next = Ground::new();
    runtime
        .case(&next, &[], &["/bin/true"])
        .done()
        .assert_exited(0);
    assert_eq!(runtime.records(), live_run);
    assert!(groups_of(&dead_run[0]).is_empty());
    assert!(
        !living(live_ground.marker()).is_empty(),
        "the live run was touched"
    );
    live.signal(Signal::TERM);
    let done = live.done();
    done.assert_outcome("cancelled", 143);
    assert_eq!(done.text(), "up\nasked\n");
    runtime.assert_nothing_left(&[live_run, dead_run].concat());
}

/// Delays from the start of a run to well after the start of its body.
fn delays(runtime: &Runtime, count: u32) -> impl Iterator<Item = Duration> {
    let ground = Ground::new();
    let started = Instant::now();
    runtime
        .case(&ground, &[], &["/bin/true"])
        .done()
        .assert_exited(0);
    let whole = started.elapsed();
    (0..count).map(move |step| whole * step / count)
}

/// E-05
#[test]
fn a_supervisor_killed_at_any_time_is_cleaned_up_by_the_next_run() {
    let (ground, runtime) = (Ground::new(), Runtime::new());
    let mut runs = Vec::new();
    let mut before_the_body = 0;
    let count = if tier_includes("long") { 60 } else { 20 };
    for delay in delays(&runtime, count) {
        let running = start(&ground, &runtime, &["/bin/sleep", "600"]);
        std::thread::sleep(delay);
        before_the_body += u32::from(living(ground.marker()).is_empty());
        kill(running);
        runs.extend(runtime.records());
    }
    println!("{before_the_body} of {count} were killed before their body ran");
    runtime
        .case(&ground, &[], &["/bin/true"])
        .done()
        .assert_exited(0);
    eventually("what killed runs left is gone", || {
        runtime.records().is_empty() && runs.iter().all(|run| groups_of(run).is_empty())
    });
    runtime.assert_nothing_left(&runs);
}

/// E-05, E-06: a supervisor that is asked to end during its setup ends and leaves nothing.
#[test]
fn a_supervisor_terminated_at_any_time_cleans_up() {
    let (ground, runtime) = (Ground::new(), Runtime::new());
    let count = if tier_includes("long") { 40 } else { 16 };
    for delay in delays(&runtime, count) {
        let case = runtime.case(&ground, &["--grace=0s"], &["/bin/sleep", "600"]);
        // If it ends before the run has begun, there is no report.
        let running = case.without("I8").start();
        std::thread::sleep(delay);
        running.signal(Signal::TERM);
        let done = running.done();
        assert_eq!(done.code, 143, "{done:#?}");
        assert!(
            ["cancelled", "no report"].contains(&done.outcome()),
            "{done:#?}"
        );
        assert_eq!(runtime.records(), Vec::<String>::new(), "after {delay:?}");
    }
}
