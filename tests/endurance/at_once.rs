//! Many concurrent runs.

use std::io::{PipeReader, Read as _};
use std::process::{Child, Command, Stdio};

use crate::flat::{Counted, adopt_orphans, kib};
use crate::harness::{Place, how_many, in_a_process_of_its_own};
use support::bodies::c_body;
use support::runner;

/// Prints that it runs, and ends with its input.
const WAITING: &str = include_str!("../bodies/endurance/at_once_waiting.c");
/// Maximum memory of one supervisor, in KiB.
const SUPERVISOR_KIB_MAX: u64 = 64 << 10;

/// E-19: all bodies run at the same time, and all ids differ.
#[test]
fn many_concurrent_runs_succeed_and_leak_nothing() {
    in_a_process_of_its_own(
        "at_once::many_concurrent_runs_succeed_and_leak_nothing",
        run_them,
    );
}

fn run_them(place: &Place) {
    adopt_orphans();
    let runs = how_many([30, 1_000, 1_000]);
    let body = c_body("waiting", WAITING);
    let first = Command::new(runner())
        .args(["run", "--"])
        .arg(&body)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .status();
    assert!(first.expect("started").success());
    let before = Counted::look(place);
    let (input, held_open) = std::io::pipe().expect("a pipe");
    let (output, written) = std::io::pipe().expect("a pipe");
    let mut supervisors: Vec<Child> = (0..runs)
        .map(|_| {
            Command::new(runner())
                .args(["run", "-i", "--timeout=600s", "--"])
                .arg(&body)
                .stdin(input.try_clone().expect("a descriptor"))
                .stdout(written.try_clone().expect("a descriptor"))
                .spawn()
                .expect("the runner starts")
        })
        .collect();
    drop((input, written));
    await_all(output, runs);
    let records = std::fs::read_dir(place.runtime().join("runs")).expect("readable");
    let names = records.map(|entry| entry.expect("readable").file_name());
    let records = names
        .filter(|name| !name.to_string_lossy().starts_with(".spare-"))
        .count();
    assert_eq!(records, runs, "two runs share a record, or one has none");
    let peaks = supervisors
        .iter()
        .map(|child| kib(&format!("/proc/{}/status", child.id()), "VmHWM:"));
    let peak_kib = peaks.max().expect("some");
    assert!(
        peak_kib <= SUPERVISOR_KIB_MAX,
        "a supervisor used {peak_kib} KiB"
    );
    drop(held_open);
    for child in &mut supervisors {
        assert_eq!(child.wait().expect("waited").code(), Some(0));
    }
    drop(supervisors);
    let leaks = before.leaks(place);
    println!(
        "endurance: at_once={runs} leaks={} supervisor_peak_kib={peak_kib}",
        leaks.len()
    );
    assert_eq!(leaks, [""; 0]);
}

/// One byte from each body: then all of them run.
fn await_all(mut output: PipeReader, runs: usize) {
    let mut bytes = vec![0; runs];
    output
        .read_exact(&mut bytes)
        .expect("all bodies run, or one of them never did");
    assert!(bytes.iter().all(|byte| *byte == b'.'));
}
