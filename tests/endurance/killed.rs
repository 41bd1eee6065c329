//! Many supervisors that are killed at random times.

use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::flat::{Counted, adopt_orphans, await_orphans};
use crate::harness::{Place, how_many, in_a_process_of_its_own};
use support::{random, runner};

/// E-04, E-05: then one start after all of them.
#[test]
fn many_killed_supervisors_are_cleaned_up_by_the_next_run() {
    in_a_process_of_its_own(
        "killed::many_killed_supervisors_are_cleaned_up_by_the_next_run",
        kill_them,
    );
}

/// The duration of a run whose body does nothing.
fn start() {
    let status = runs("/bin/true", "").status();
    assert!(status.expect("started").success());
}

fn runs(program: &str, argument: &str) -> Command {
    let mut command = Command::new(runner());
    command
        .args(["run", "--", program])
        .args(Some(argument).filter(|argument| !argument.is_empty()))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    command
}

fn kill_them(place: &Place) {
    const LANES: usize = 2;
    adopt_orphans();
    let kills = how_many([20, 1_000, 10_000]);
    start();
    let since = Instant::now();
    start();
    // From before its first step to well after the start of the body.
    let longest_us = since.elapsed().as_micros() * 3 / 2;
    let before = Counted::look(place);
    let next = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..LANES {
            scope.spawn(|| {
                while next.fetch_add(1, Ordering::Relaxed) < kills {
                    kill_one(longest_us);
                }
            });
        }
    });
    // A run lives as long as its init: the next start does not clean up one that is still ending.
    await_orphans();
    start();
    let leaks = before.leaks(place);
    println!("endurance: kills={kills} leaks={}", leaks.len());
    assert_eq!(leaks, [""; 0]);
}

fn kill_one(longest_us: u128) {
    let mut supervisor = runs("/bin/sleep", "600")
        .spawn()
        .expect("the runner starts");
    let number = u128::from_str_radix(&random(), 16).expect("digits") % longest_us;
    let moment = Duration::from_micros(u64::try_from(number).expect("small"));
    std::thread::sleep(moment);
    supervisor.kill().expect("killed");
    supervisor.wait().expect("waited");
}
