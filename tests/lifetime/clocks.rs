//! Clocks that jump, and a supervisor that fails during a run.

use std::path::{Path, PathBuf};

use rustix::process::Signal;

use crate::runtime::Runtime;
use support::bodies::c_body;
use support::invariants::living;
use support::{Done, Ground, tier_includes};

/// Prints what it does.
const CLOCK: &str = include_str!("clock.c");

/// The exit code of Rust's `main` after a panic.
const PANICKED: i32 = 101;

const HALF_A_DAY_MS: u64 = 12 * 3_600_000;

fn clock() -> PathBuf {
    c_body("clock", CLOCK)
}

fn text(path: &Path) -> &str {
    path.to_str().expect("plain")
}

/// How often the clock was read.
fn looks(file: &Path) -> u32 {
    let said = std::fs::read_to_string(file).expect("written");
    said.trim().parse().expect("a number")
}

/// E-18: the wall clock is a day ahead, a day behind, a day ahead, at each read.
#[test]
fn a_wall_clock_that_jumps_changes_no_time_limit() {
    let ground = Ground::new();
    let file = ground.path("looks");
    let clock = clock();
    let words = [text(&clock), text(&file), "jump"];
    let run = |flags: &[&str], body: &[&str]| {
        let words_of_run: Vec<&str> = [&["run"], flags, &["--"], body].concat();
        let mut case = ground.command(&words_of_run);
        case.behind(&words);
        let done = case.done();
        assert!(0 < looks(&file), "the wall clock was never looked at");
        done
    };
    // The measured time is neither a day nor zero.
    let assert_not_jumped = |done: &Done| {
        let wall_time_ms = done.report["usage"]["wall_time_ms"].as_u64();
        let told = wall_time_ms.expect("measured");
        assert!((1..HALF_A_DAY_MS).contains(&told), "{done:#?}");
    };
    // A day's jump does not end the run early …
    let done = run(&["--timeout=600s", "--grace=300s"], &["/bin/sleep", "0.3"]);
    done.assert_exited(0);
    assert_not_jumped(&done);
    // … and does not prevent its end.
    let body = ["/bin/sh", "-c", "trap '' TERM; while :; do sleep 1; done"];
    let done = run(&["--timeout=200ms", "--grace=200ms"], &body);
    done.assert_outcome("timed_out", 124);
    assert_not_jumped(&done);
}

/// A run in which the `number`-th read of the clock fails. Its groups and its record may remain.
fn with_broken_look(ground: &Ground, runtime: &Runtime, number: u32) -> (Done, u32) {
    let file = ground.path("looks");
    let clock = clock();
    let number = number.to_string();
    let body = ["/bin/sh", "-c", "echo up; sleep 0.2"];
    let case = runtime.case(ground, &["--cpu-time=60s"], &body);
    let mut case = case.without("I4").without("I5").without("I8");
    case.behind(&[text(&clock), text(&file), "fail", &number]);
    let done = case.done();
    (done, looks(&file))
}

/// E-25: Rust's clock panics if the kernel returns an error. Tries each read (in the default tier about
/// fifty of them: on a busy host a run reads the clock thousands of times): before the start of the body,
/// while it runs, and after its end. Invariant 2 checks that no process of the run survives.
#[test]
fn a_supervisor_that_panics_takes_its_body_along_and_the_next_start_clears_up() {
    let (ground, runtime) = (Ground::new(), Runtime::new());
    let (done, whole) = with_broken_look(&ground, &runtime, 0);
    assert_eq!(done.code, 0, "{done:#?}");
    let (mut with_body, mut without) = (0, 0);
    let mut runs = Vec::new();
    let step = match tier_includes("long") {
        true => 1,
        false => (whole / 50).max(4),
    };
    let step = usize::try_from(step).expect("small");
    for number in (1..=whole).step_by(step) {
        let (done, _) = with_broken_look(&ground, &runtime, number);
        if done.code == 0 {
            // The number of reads varies between runs.
            assert_eq!(done.text(), "up\n", "look {number}: {done:#?}");
            continue;
        }
        assert_eq!(done.code, PANICKED, "look {number}: {done:#?}");
        assert!(done.stderr.contains("panicked at"), "{}", done.stderr);
        assert_ne!(done.outcome(), "exited", "look {number}: {done:#?}");
        runs.extend(runtime.records());
        match done.text().is_empty() {
            true => without += 1,
            false => with_body += 1,
        }
    }
    println!("{whole} looks: {without} panics before the body spoke, {with_body} after it");
    assert!(
        0 < with_body && 0 < without,
        "{with_body} with the body, {without} without"
    );
    runtime
        .case(&ground, &[], &["/bin/true"])
        .done()
        .assert_exited(0);
    runtime.assert_nothing_left(&runs);
}

/// E-25: signals that no program can handle, while the body runs.
#[test]
fn a_supervisor_that_crashes_takes_its_body_along_and_the_next_start_clears_up() {
    let (ground, runtime) = (Ground::new(), Runtime::new());
    let mut runs = Vec::new();
    for (signal, code) in [
        (Signal::ABORT, 134),
        (Signal::SEGV, 139),
        (Signal::BUS, 135),
        (Signal::ILL, 132),
        (Signal::FPE, 136),
        (Signal::SYS, 159),
    ] {
        let body = ["/bin/sh", "-c", "trap '' TERM HUP; sleep 600 & sleep 600"];
        let case = runtime.case(&ground, &[], &body);
        let mut running = case.without("I4").without("I5").without("I8").start();
        running.until("two processes", || 2 < living(ground.marker()).len());
        runs.extend(runtime.records());
        running.signal(signal);
        assert_eq!(running.done().code, code);
    }
    runtime
        .case(&ground, &[], &["/bin/true"])
        .done()
        .assert_exited(0);
    runtime.assert_nothing_left(&runs);
}
